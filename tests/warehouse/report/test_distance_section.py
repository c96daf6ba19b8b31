"""The section on the distance from the target: its figures, its numbers, and the steps that the target finds absurd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse import runs
from tests.warehouse.report.conftest import report
from tests.warehouse.test_distance import base_nats, estimates, made


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run whose second sample is absurd to the target, and the target alone."""
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


def test_absurd_steps_raise_an_alarm_and_are_listed_with_the_address_of_their_trace(
    scored: tuple[Path, str, str],
) -> None:
    where, own, base = scored
    text = markdown(where, own, base)
    assert "ABSURD TO THE TARGET: 3 of 18 accepted steps" in text
    assert f"{own} toy/1 0" in text.replace("\\", "")
    quiet = markdown(where, own, base, "--absurd-nats", "15")
    assert "ABSURD" not in quiet
    assert "Steps that the target finds absurd" not in quiet
    assert "15 nats or more" in quiet
