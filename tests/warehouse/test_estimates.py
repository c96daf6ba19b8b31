"""The rows of the table `estimate`: what they depend on, and what replaces them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.run.spec import units
from tests.warehouse import cells, runs
from tests.warehouse.made_up_databases import HALF, MADE_UP, Made, one_problem
from warehouse import database as databases
from warehouse import schema
from warehouse.database import WarehouseOutdated, reader, rows
from warehouse.load import load_run, load_runs, rebuild

STORED = "FROM estimate ORDER BY ALL"


def stored(database: Path) -> list[dict[str, object]]:
    with reader(database) as connection:
        return rows(connection, STORED)


def test_the_rows_depend_on_the_runs_and_not_on_the_order_of_loading(
    made: Callable[[str], Made], tmp_path: Path
) -> None:
    """A run that is repeated later changes the intervals of runs that were loaded before."""
    of = made("repeated")
    assert any(row["run_factor"] for row in stored(of.database))
    for folder in reversed(of.folders):
        load_run(folder, tmp_path / "w.duckdb")
    assert stored(tmp_path / "w.duckdb") == stored(of.database)


def test_grading_again_and_a_run_that_goes_on_replace_their_rows(tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"
    base = cells.finished(tmp_path, cells.VANILLA, HALF)
    under_way = cells.finished(tmp_path, cells.SPEC, HALF, latency=5, missing=12)
    list(load_runs([base, under_way], database))
    name, first = under_way.path.name, stored(database)
    shutil.rmtree(under_way.path)
    complete = cells.finished(tmp_path, cells.SPEC, HALF, latency=4)
    load_run(complete, database)
    second = stored(database)
    assert {row["run_id"] for row in first if row not in second} == {name}
    runs.write_grades(base, {unit.sample_id: "wrong" for unit in units(base.spec(), base.problems())}, version="2")
    load_run(base, database)
    with reader(database) as connection:
        [row] = rows(connection, f"SELECT * FROM pass_at_1 WHERE run_id = '{base.path.name}'")
        assert (row["pass_at_1"], row["low_95"], row["num_grader_versions"]) == (0, 0, 2)
    fresh = tmp_path / "fresh.duckdb"
    list(rebuild([complete, base], fresh))
    assert stored(fresh) == stored(database)
    load_run(base, database)
    assert stored(fresh) == stored(database)


def test_rows_of_other_methods_are_refused_until_they_are_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "w.duckdb"
    [*folders] = one_problem(tmp_path)
    list(load_runs(folders, database))
    monkeypatch.setattr(schema, "ESTIMATES_VERSION", schema.ESTIMATES_VERSION + 1)
    monkeypatch.setattr(databases, "_EMPTY_DATABASE", [])
    with pytest.raises(WarehouseOutdated, match=r"python -m warehouse\.load"), reader(database):
        pass
    list(rebuild(folders, database))
    assert len(stored(database)) > 0


EXPECTED = {
    6: {
        "acceptance_rate": 1.78868,
        "accuracy": 31.20773,
        "chain_length_ratio": 8.42361,
        "fallback_rate": 1.78868,
        "graded_accuracy": 36.54838,
        "graded_pass_at_1": 34.36942,
        "judge_auroc": 1.23323,
        "latency_seconds": 1274.10802,
        "maj_at_k": 34.64124,
        "pass_at_1": 29.02877,
        "pass_at_k": 149.9757,
        "rate_ratio": 12.21064,
        "ratio_of_means": 65.61915,
        "ratio_of_means_within_runs": 65.31755,
        "speed_up": 43.4817,
        "speed_up_within_runs": 42.99165,
    }
}
"""Sums over all rows of a metric, by the version of the methods."""


def test_other_values_need_another_version_of_the_methods(made: Callable[[str], Made]) -> None:
    """Whoever changes what is stored raises schema.ESTIMATES_VERSION, and adds what it is then."""
    found: dict[str, list[float]] = {}
    for name in MADE_UP:
        for row in stored(made(name).database):
            values = (row["estimate"], row["low_95"] or 0, row["high_95"] or 0, row["standard_error"] or 0)
            found.setdefault(str(row["metric"]), []).append(sum(float(str(value)) for value in values))
    sums = {metric: round(math.fsum(values), 5) for metric, values in found.items()}
    assert sums == pytest.approx(EXPECTED[schema.ESTIMATES_VERSION], abs=1e-4)
