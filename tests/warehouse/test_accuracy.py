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
from tests.warehouse.conftest import Ask, Loaded, views
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
    is_right = [(unit.sample_index + i) % 3 == 0 for i, unit in enumerate(units)]
    verdicts = ["correct" if right else "wrong" for right in is_right]
    with views(folder, [runs.speculative(unit) for unit in units], verdicts) as ask:
        [row] = ask("pass_at_1")
    means = [
        statistics.mean(right for unit, right in zip(units, is_right, strict=True) if unit.problem_id == problem.id)
        for problem in runs.PROBLEMS
    ]
    assert row["standard_error"] == pytest.approx(statistics.stdev(means) / math.sqrt(3))
    assert row["rerun_standard_error"] == pytest.approx(math.sqrt(sum(p * (1 - p) / 3 for p in means)) / 3)
    interval = mean(np.array(means))
    assert interval.kind == row["interval_kind"] == "Wilson, effective number"
    assert (row["low_95"], row["high_95"]) == pytest.approx((interval.low, interval.high))


def test_the_grader_version_that_graded_last_counts_and_no_sample_is_counted_twice(tmp_path: Path) -> None:
    folder = runs.finished(tmp_path)
    units = runs.planned(folder)
    runs.write_grades(folder, {unit.sample_id: "wrong" for unit in units}, "9 sympy=1")
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in units[:4]}, "10 sympy=1")
    for variable, version, correct, wrong, ungraded in (
        (None, "10 sympy=1", 4, 0, 2),
        ("9 sympy=1", "9 sympy=1", 0, 6, 0),
        ("another", None, 0, 0, 6),
    ):
        with views(folder) as ask:
            if variable:
                ask.connection.execute("SET VARIABLE grader_version = ?", [variable])
            counts = {row["verdict"]: row["num_samples"] for row in ask("verdict_counts")}
            [[score], [counted]] = [ask(view) for view in ("pass_at_1", "counted_version")]
            num_samples = sum(row["num_samples"] for row in ask("problem_score"))
            totals = {row["grader_version"]: row["num_grades"] for row in ask("grade_total")}
        assert counts == {v: {"correct": correct, "wrong": wrong, "not_run": ungraded}.get(v, 0) for v in VERDICTS}
        assert (score["grader_version"], score["num_grader_versions"]) == (version, 2)
        assert (score["num_samples"], score["num_correct"], score["num_ungraded"]) == (6, correct, ungraded)
        assert totals == {"9 sympy=1": 6, "10 sympy=1": 4, None: 0}
        assert (num_samples, counted["grader_version"]) == (6, version)


def test_the_nightly_gates_watch_verdicts_that_exist() -> None:
    assert {verdict for verdicts in GATES.values() for verdict in verdicts} <= set(VERDICTS)
