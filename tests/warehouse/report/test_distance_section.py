"""Distances from the target in the report are the estimates."""

from __future__ import annotations

from pathlib import Path

from tests.warehouse import runs
from tests.warehouse.report.conftest import report
from tests.warehouse.test_distance import base_nats, estimates, made


def test_the_table_has_the_numbers_of_the_estimates(tmp_path: Path) -> None:
    """The second sample of the run is improbable to the target."""
    own, _ = made(tmp_path, runs.SPEC, lambda number: 14.0 if number == 1 else 0.5)
    base, _ = made(tmp_path, runs.VANILLA, base_nats)
    row = estimates(tmp_path, "distance_from_target")[own.path.name]
    result = report(tmp_path / "w.duckdb", own.path.name, base.path.name, "--format", "md")
    assert result.exit_code == 0, result.output
    assert [f"{row[name]:.4f}".replace("-", "−") in result.output for name in ("estimate", "low_95", "high_95")] == [
        True
    ] * 3
