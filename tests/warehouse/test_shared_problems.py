"""Runs over parts of a dataset (`--limit`) are paired by the problems that both have, by id and content, everywhere."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from harness.problems.problem import dataset_hash
from tests.warehouse import cells, runs
from tests.warehouse.test_compare import compare, load, records
from warehouse.database import reader, rows
from warehouse.nightly.history import read_values
from warehouse.report.summary import summary
from warehouse.suites.measured import measure

GOOD = (4, 4, 4, 3, 3, 4, 2, 4, 1, 4, 0, 3)
BAD = (3, 1, 4, 1, 3, 2, 0, 3, 1, 2, 0, 1)
LIMIT = 5
FLIPPED = {"sums/1", "sums/3"}
"""The problems among the first five that most samples solve under GOOD and most do not under BAD."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The target alone over all problems, and another method over the first five, and over the last seven."""
    where = tmp_path_factory.mktemp("limited runs")
    made = {
        "whole": cells.finished(where, cells.VANILLA, GOOD, latency=20.0),
        "first": cells.finished(where, cells.SPEC, BAD[:LIMIT]),
        "last": cells.finished(where, replace(cells.SPEC, seed=1), BAD[LIMIT:], skipped=LIMIT),
    }
    return where, dict(zip(made, load(where, *made.values()), strict=True))


def test_flips_are_those_of_the_problems_that_both_runs_have(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, names = warehouse
    with reader(where / "w.duckdb") as connection:
        found = rows(connection, "FROM flips")
        of_first = {row["problem_id"] for row in found if row["wrong_run_id"] == names["first"]}
        assert of_first == FLIPPED
        assert {row["right_run_id"] for row in found} == {names["whole"]}
        assert not any({row["right_run_id"], row["wrong_run_id"]} == {names["first"], names["last"]} for row in found)
        samples = rows(connection, "FROM flip_sample WHERE other_run_id = $run_id", {"run_id": names["first"]})
        assert {row["problem_id"] for row in samples} == FLIPPED
        assert len(samples) == 4 * len(FLIPPED)
        pair: dict[str, object] = {"right": names["whole"], "wrong": names["first"]}
        traces = rows(connection, "FROM flip_traces($right, $wrong)", pair)
        assert {row["problem_id"] for row in traces} == FLIPPED


def test_a_speed_up_is_over_the_problems_that_both_runs_have(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, names = warehouse
    with reader(where / "w.duckdb") as connection:
        pairs = {row["run_id"]: row for row in rows(connection, "FROM comparable_baseline")}
        shared = {name: pairs[names[name]]["num_shared_problems"] for name in ("first", "last")}
        assert shared == {"first": 5, "last": 7}
        [of_view] = rows(connection, "FROM speed_up WHERE run_id = $run_id", {"run_id": names["first"]})
        assert (of_view["n"], of_view["baseline_run_id"]) == (5, names["whole"])
        measured = measure(connection, "speed_up", names["first"], names["whole"])
        at_night = {name: value for name, _, value in read_values(connection)[names["first"]]}
    [found] = summary(where / "w.duckdb", [names["first"]])
    [(_, of_summary)] = found.against_with("speed_up")
    _, row = records(compare(where, names["whole"], names["first"], "--format", "json"))
    assert measured is not None
    assert (of_summary.n, row["num_timed_problems"]) == (5, 5)
    assert row["speed_up"] == pytest.approx(2.0)
    found_everywhere = (of_view["speed_up"], of_summary.value, measured.estimate, math.exp(at_night["speed_up"]))
    assert found_everywhere == pytest.approx([row["speed_up"]] * 4)


def test_a_problem_of_other_content_under_the_same_id_is_another_problem(tmp_path: Path) -> None:
    """The first of three problems was changed between the runs: times, flips and speed-ups are over the others."""
    problems = [replace(runs.PROBLEMS[0], text="What is 1 + 1?"), *runs.PROBLEMS[1:]]
    own = runs.create(tmp_path, replace(runs.SPEC, dataset_hash=dataset_hash(problems)), problems=problems)
    base = runs.create(tmp_path, runs.VANILLA)
    runs.write_part(own, [runs.speculative(unit) for unit in runs.planned(own)])
    runs.write_part(base, [runs.vanilla(unit) for unit in runs.planned(base)])
    for folder, verdict in ((own, "wrong"), (base, "correct")):
        runs.write_grades(folder, {unit.sample_id: verdict for unit in runs.planned(folder)})
    load(tmp_path, own, base)
    with reader(tmp_path / "w.duckdb") as connection:
        assert {row["problem_id"] for row in rows(connection, "FROM flips")} == {"toy/1", "toy/2"}
        [ratio] = rows(connection, "FROM speed_up")
        assert ratio["n"] == 2
        assert measure(connection, "speed_up", own.path.name, base.path.name) is not None
    [found] = summary(tmp_path / "w.duckdb", [own.path.name])
    assert [ratio.n for _, ratio in found.against_with("speed_up")] == [2]
