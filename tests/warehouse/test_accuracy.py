"""Accuracy: the views against numbers computed here from the same samples."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from grading import VERDICTS
from tests.warehouse import runs
from tests.warehouse.conftest import Ask, Loaded
from warehouse.database import Connection, reader
from warehouse.loading.runs import load_run
from warehouse.nightly.judge import GATES
from warehouse.statistics.intervals import mean


def test_every_planned_sample_has_one_verdict(loaded: Loaded, ask: Ask) -> None:
    for folder, expected in (
        (loaded.speculative, {"correct": 2, "wrong": 1, "truncated": 1, "error": 1, "not_run": 1}),
        (loaded.vanilla, {"correct": 6}),
        (loaded.limited, {"not_run": 4}),
    ):
        counts = {row["verdict"]: row["num_samples"] for row in ask("verdict_counts", folder)}
        assert counts == {verdict: expected.get(verdict, 0) for verdict in VERDICTS}
        spec = folder.spec()
        assert sum(counts.values()) == spec.num_problems * spec.samples
        assert math.fsum(row["share"] for row in ask("verdict_counts", folder)) == pytest.approx(1)


def test_pass_at_1_averages_problems_not_samples(loaded: Loaded, ask: Ask) -> None:
    [row] = ask("pass_at_1", loaded.speculative)
    assert (row["n"], row["k"], row["num_samples"], row["num_correct"]) == (3, 2, 6, 2)
    assert row["pass_at_1"] == pytest.approx(1 / 3)


def test_standard_errors_of_many_problems(tmp_path: Path) -> None:
    """Against statistics over the problem means, with the spread of a re-run beside it."""
    folder = runs.create(tmp_path, replace(runs.SPEC, samples=4))
    units = runs.planned(folder)
    is_right = {unit.sample_id: (unit.sample_index + i) % 3 == 0 for i, unit in enumerate(units)}
    runs.write_part(folder, [runs.speculative(unit) for unit in units])
    runs.write_grades(folder, {key: "correct" if right else "wrong" for key, right in is_right.items()})
    load_run(folder, tmp_path / "w.duckdb")
    means = [
        statistics.mean(is_right[unit.sample_id] for unit in units if unit.problem_id == problem.id)
        for problem in runs.PROBLEMS
    ]
    with reader(tmp_path / "w.duckdb") as connection:
        [row] = Ask(connection)("pass_at_1", folder)
    assert row["standard_error"] == pytest.approx(statistics.stdev(means) / math.sqrt(3))
    assert row["rerun_standard_error"] == pytest.approx(math.sqrt(sum(p * (1 - p) / 3 for p in means)) / 3)
    interval = mean(np.array(means))
    assert interval.kind == row["interval_kind"] == "Wilson, effective number"
    assert (row["low_95"], row["high_95"]) == pytest.approx((interval.low, interval.high))


def verdict_of(connection: Connection, sample_id: str) -> tuple[object, ...]:
    sql = "SELECT verdict, graded, grader_version FROM sample_grade WHERE sample_id = ?"
    [row] = connection.execute(sql, [sample_id]).fetchall()
    return tuple(row)


def test_the_grader_version_loaded_last_counts(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    sample = runs.speculative(runs.planned(folder)[0])
    runs.write_part(folder, [sample])
    expected: list[tuple[str | None, str, bool]] = [
        (None, "not_run", False),
        ("9", "wrong", True),
        ("10", "correct", True),
    ]
    for version, verdict, is_graded in expected:
        if version:
            runs.write_grades(folder, {sample.sample_id: verdict}, version)
        load_run(folder, database)
        with reader(database) as connection:
            assert verdict_of(connection, sample.sample_id) == (verdict, is_graded, version)


def test_one_grader_version_counts_and_no_sample_is_counted_twice(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    units = runs.planned(folder)
    runs.write_part(folder, [runs.speculative(unit) for unit in units])
    runs.write_grades(folder, {unit.sample_id: "wrong" for unit in units}, "1 sympy=1")
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in units[:4]}, "2 sympy=1")
    load_run(folder, database)
    for variable, version, correct, wrong, ungraded in (
        (None, "2 sympy=1", 4, 0, 2),
        ("1 sympy=1", "1 sympy=1", 0, 6, 0),
        ("another", None, 0, 0, 6),
    ):
        with reader(database) as connection:
            if variable:
                connection.execute("SET VARIABLE grader_version = ?", [variable])
            ask = Ask(connection)
            counts = {row["verdict"]: row["num_samples"] for row in ask("verdict_counts", folder)}
            assert counts == {v: {"correct": correct, "wrong": wrong, "not_run": ungraded}.get(v, 0) for v in VERDICTS}
            [score] = ask("pass_at_1", folder)
            assert (score["grader_version"], score["num_grader_versions"]) == (version, 2)
            assert (score["num_samples"], score["num_correct"], score["num_ungraded"]) == (6, correct, ungraded)
            assert sum(row["num_samples"] for row in ask("problem_score", folder)) == 6
            totals = {row["grader_version"]: row["num_grades"] for row in ask("grade_total", folder)}
            assert totals == {"1 sympy=1": 6, "2 sympy=1": 4, None: 0}
            [counted] = ask("counted_version", folder)
            assert counted["grader_version"] == version


def test_the_nightly_gates_watch_verdicts_that_exist() -> None:
    assert {verdict for verdicts in GATES.values() for verdict in verdicts} <= set(VERDICTS)
