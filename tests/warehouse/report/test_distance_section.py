"""Distances from the target in the report are the estimates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse import runs
from tests.warehouse.report.conftest import report
from tests.warehouse.test_distance import base_nats, estimates, made


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run whose second sample is improbable to the target, and the target alone."""
    where = tmp_path_factory.mktemp("scored")
    own, _ = made(where, runs.SPEC, lambda number: 14.0 if number == 1 else 0.5)
    base, _ = made(where, runs.VANILLA, base_nats)
    return where, own.path.name, base.path.name


def markdown(where: Path, *words: str) -> str:
    result = report(where / "w.duckdb", *words, "--format", "md")
    assert result.exit_code == 0, result.output
    return result.output


def test_the_table_has_the_numbers_of_the_estimates(scored: tuple[Path, str, str]) -> None:
    where, own, base = scored
    row = estimates(where, "distance_from_target")[own]
    text = markdown(where, own, base)
    for name in ("estimate", "low_95", "high_95"):
        assert f"{row[name]:.4f}".replace("-", "−") in text
