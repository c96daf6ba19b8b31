"""Right under one run, wrong under another."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from harness.problems.problem import dataset_hash
from tests.warehouse import runs
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run
from warehouse.report.facts import report_facts
from warehouse.report.traces import _flipped, read_samples


def test_flips_name_problem_runs_and_samples_and_bring_both_traces(tmp_path: Path) -> None:
    """Two samples each of three problems: problem 0 flips, problem 1 is split, problem 2 is right under both."""
    database = tmp_path / "w.duckdb"
    fast, slow = runs.create(tmp_path), runs.create(tmp_path, runs.VANILLA)
    verdicts = {
        fast: {"toy/0": ("wrong", "truncated"), "toy/1": ("correct", "wrong"), "toy/2": ("correct", "correct")},
        slow: {"toy/0": ("correct", "correct"), "toy/1": ("correct", "correct"), "toy/2": ("correct", "correct")},
    }
    for folder, verdict_lists in verdicts.items():
        units = runs.planned(folder)
        traces = [runs.vanilla(unit) if folder is slow else runs.speculative(unit) for unit in units]
        runs.write_part(folder, traces)
        runs.write_grades(folder, {unit.sample_id: verdict_lists[unit.problem_id][unit.sample_index] for unit in units})
        load_run(folder, database)
    with reader(database) as connection:
        [flip] = rows(connection, "FROM flips")
        assert (flip["problem_id"], flip["right_run_id"], flip["wrong_run_id"]) == (
            "toy/0",
            slow.path.name,
            fast.path.name,
        )
        assert (flip["right_score"], flip["wrong_score"]) == (1, 0)
        assert (flip["right_sample_index"], flip["wrong_sample_index"]) == (0, 0)
        names: dict[str, object] = {"good": slow.path.name, "bad": fast.path.name}
        [both] = rows(connection, "FROM flip_traces($good, $bad)", names)
        assert rows(connection, "FROM flip_traces($bad, $good)", names) == []
    assert both["right_trace"] == "[chain by target] Long. \\boxed{2}"
    assert both["wrong_trace"] == (
        "[guidance by target] Let us see. [draft by draft] So 2.\n[answer by target] \\boxed{2}"
    )
    assert (both["gold"], both["wrong_verdict"], both["wrong_first_accepted_draft"]) == ("2", "wrong", 1)


def test_runs_over_other_problems_do_not_flip(tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"
    for number, verdict in enumerate(("correct", "wrong")):
        problems = [replace(problem, text=f"{problem.text} {number}") for problem in runs.PROBLEMS]
        folder = runs.create(tmp_path, replace(runs.SPEC, dataset_hash=dataset_hash(problems)), problems=problems)
        unit = runs.planned(folder)[0]
        runs.write_part(folder, [runs.speculative(unit)])
        runs.write_grades(folder, {unit.sample_id: verdict})
        load_run(folder, database)
    with reader(database) as connection:
        assert rows(connection, "FROM flips") == []


def test_the_view_and_the_viewer_of_a_report_find_the_same_flips(tmp_path: Path) -> None:
    """Four runs with random verdicts, some samples without a grade; every pair of runs is compared."""
    database, generator = tmp_path / "w.duckdb", random.Random(3)
    folders = [runs.create(tmp_path, replace(runs.VANILLA, seed=seed)) for seed in range(4)]
    for folder in folders:
        units = runs.planned(folder)
        runs.write_part(folder, [runs.vanilla(unit) for unit in units])
        verdicts = {
            unit.sample_id: generator.choice(["correct", "correct", "wrong", "truncated", ""]) for unit in units
        }
        runs.write_grades(folder, {sample_id: verdict for sample_id, verdict in verdicts.items() if verdict})
        load_run(folder, database)
    with reader(database) as connection:
        in_view = rows(connection, "FROM flips")
        facts = report_facts(connection, [folder.path.name for folder in folders])
        samples = read_samples(connection, facts)
    assert in_view
    in_viewer = {samples.problems[problem]["problem_id"] for problem, _ in _flipped(samples)}
    assert in_viewer == {row["problem_id"] for row in in_view}
