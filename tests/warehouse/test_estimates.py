"""The rows of the table `estimate`: what they depend on, and what replaces them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from syrupy.assertion import SnapshotAssertion

from jobs.run.spec import units
from tests.warehouse import cells, runs
from tests.warehouse.made_up_databases import HALF, MADE_UP, Made
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run, load_runs, rebuild
from warehouse.sql import schema

STORED = """
SELECT * EXCLUDE (estimate, interval.run_id) FROM estimate LEFT JOIN interval ON interval.estimate = id ORDER BY ALL
"""


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


def test_other_values_need_another_version_of_the_methods(
    made: Callable[[str], Made], snapshot: SnapshotAssertion
) -> None:
    """Whoever changes a function behind what is stored raises schema.ESTIMATES_VERSION, and adds what it is then.

    The sums are over all rows of a measure and question. The entries of the registry are part of the format of
    databases by themselves.
    """
    found: dict[str, list[float]] = {}
    for name in MADE_UP:
        for row in stored(made(name).database):
            numbers = [float(str(row[name] or 0)) for name in ("value", "low", "high", "standard_error")]
            found.setdefault(f"{row['measure']}, {row['question']}", []).append(sum(numbers))
    sums = {name: f"{math.fsum(values):.4f}" for name, values in sorted(found.items())}
    assert sums == snapshot(name=f"version {schema.ESTIMATES_VERSION}")
