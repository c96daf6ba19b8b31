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
from warehouse.database import WarehouseOutdated, reader, rows
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
    10: {
        "acceptance_rate, like these problems": 0.78868,
        "accuracy, like these problems": 31.11365,
        "accuracy, these problems": 32.4805,
        "answer_tokens, like these problems": 12.0,
        "cache_hit_rate, like these problems": 18.89605,
        "chain_length_ratio, like these problems": 8.42361,
        "critical_path_tokens, like these problems": 3431.6188,
        "draft_share, like these problems": 1.41327,
        "draft_steps, like these problems": 3.43171,
        "drafting_share, like these problems": 0.42252,
        "emitted_tokens, like these problems": 3407.6188,
        "emitted_tokens_per_second, like these problems": 527.6439,
        "fallback_rate, like these problems": 0.78868,
        "graded_accuracy, like these problems": 36.35416,
        "graded_accuracy, these problems": 39.69021,
        "graded_pass_at_1, like these problems": 34.37484,
        "graded_pass_at_1, these problems": 37.69021,
        "judge_auroc, like these problems": 0.0,
        "latency_seconds, like these problems": 2242.68381,
        "longest_draft_tokens, like these problems": 18.0,
        "maj_at_k, like these problems": 34.61688,
        "mean_fallback_rate, like these problems": 1.78868,
        "pass_at_1, like these problems": 29.13432,
        "pass_at_1, these problems": 30.4805,
        "pass_at_k, like these problems": 149.63587,
        "rate_ratio, like these problems": 12.20753,
        "ratio_of_means, like these problems": 61.30823,
        "reflection_in_drafts, like these problems": 0.0,
        "reflection_in_fallbacks, like these problems": 0.0,
        "samples_per_second, like these problems": 13.51038,
        "seconds_per_token, like these problems": 24.61684,
        "selection_share, like these problems": 0.21126,
        "speed_up, like these problems": 70.11871,
        "spent_tokens, like these problems": 3461.6188,
        "target_share, like these problems": 15.54287,
        "target_thinking_tokens, like these problems": 1682.8094,
        "thinking_tokens, like these problems": 1690.07735,
        "thought_tokens_per_second, like these problems": 104.29993,
        "tokens_per_second, like these problems": 104.75875,
        "truncated, like these problems": 3.45642,
    }
}
"""Sums over all rows of a measure and question, by the version of the methods."""


def test_other_values_need_another_version_of_the_methods(made: Callable[[str], Made]) -> None:
    """Whoever changes a function behind what is stored raises schema.ESTIMATES_VERSION, and adds what it is then.

    The entries of the registry are part of the format of databases by themselves.
    """
    found: dict[str, list[float]] = {}
    for name in MADE_UP:
        for row in stored(made(name).database):
            numbers = [float(str(row[name] or 0)) for name in ("value", "low", "high", "standard_error")]
            found.setdefault(f"{row['measure']}, {row['question']}", []).append(sum(numbers))
    sums = {name: round(math.fsum(values), 5) for name, values in found.items()}
    expected = EXPECTED[schema.ESTIMATES_VERSION]
    assert {name: sums.get(name) for name in expected} == pytest.approx(expected, abs=1e-4)
