"""Right under one run, wrong under another."""

from __future__ import annotations

from pathlib import Path

from tests.warehouse import runs
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run


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
