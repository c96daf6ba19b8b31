"""Runs ranked by every paper's definition of latency: `python -m warehouse.compare … --stopwatches`."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from tests.warehouse import cells
from warehouse.compare import main
from warehouse.comparison.stopwatches import Definition, Times, rankings
from warehouse.database import reader
from warehouse.load import load_run
from warehouse.statistics.ratios import mean_of, ratio_of_means

SECONDS = Definition("measured", "measured", "s/sample", False, "", "", "")
TOKENS = Definition("rate", "Rate", "tokens/s", True, "", "", "")
CLOCK = Definition("clock", "Clock", "s/run", False, "", "", "")
PROBLEMS = [f"p{i}" for i in range(12)]
BASE = np.array([10.0, 12.0, 14.0, 9.0, 11.0, 30.0, 8.0, 10.0, 13.0, 12.0, 11.0, 10.0])


def times(seconds: np.ndarray, rate: np.ndarray, clock: float | None = None) -> Times:
    by_name = {"measured": seconds, "rate": rate}
    problems = {name: {p: (float(v), 1.0) for p, v in zip(PROBLEMS, x, strict=False)} for name, x in by_name.items()}
    return Times(problems, {} if clock is None else {"clock": clock})


def test_a_longer_chain_at_a_higher_rate_flips_the_ranking_and_both_intervals_exclude_1() -> None:
    """The method takes 1.5 times the time at twice the tokens per second."""
    runs = {"target": times(BASE, 200 / BASE, 50.0), "method": times(1.5 * BASE, 400 / BASE, 40.0)}
    measured, rate, clock = rankings("sums", "target", runs, [SECONDS, TOKENS, CLOCK])
    assert [run.run_id for run in measured.ranked] == ["target", "method"]
    assert measured.flips == []
    assert [run.run_id for run in rate.ranked] == ["method", "target"]
    [flip] = rate.flips
    assert (flip.faster, flip.slower, flip.is_significant) == ("method", "target", True)
    assert flip.speed_up.estimate == pytest.approx(2)
    assert flip.measured.estimate == pytest.approx(1 / 1.5)
    assert rate.ranked[0].speed_up == ratio_of_means(mean_of(400 / BASE), mean_of(200 / BASE))
    [flip] = clock.flips  # a single clock has no interval, so no flip by it is significant
    assert (flip.speed_up.estimate, flip.speed_up.low, flip.is_significant) == (1.25, None, False)
    assert (clock.n, rate.n) == (None, 12)


def test_a_flip_within_the_noise_is_not_significant() -> None:
    noise = np.array([1.3, 0.8] * 6)
    runs = {"target": times(BASE, 200 / BASE), "method": times(BASE * noise, 400 / BASE)}
    _, rate = rankings("sums", "target", runs, [SECONDS, TOKENS])
    [flip] = rate.flips
    assert flip.measured.high is not None
    assert flip.measured.high > 1
    assert not flip.is_significant


def test_runs_are_ranked_on_the_problems_that_all_of_them_have() -> None:
    runs = {"target": times(BASE, BASE), "method": times(BASE[:5] / 2, BASE[:5]), "third": Times({}, {})}
    [ranking] = rankings("sums", "target", runs, [SECONDS])
    assert ranking.n == 5
    assert [run.run_id for run in ranking.ranked] == ["method", "target"]
    assert [run.value for run in ranking.ranked] == pytest.approx([BASE[:5].mean() / 2, BASE[:5].mean()])
    assert ranking.without_value == ["third"]


def test_single_clocks_are_compared_over_the_same_samples_only() -> None:
    like, unlike = times(BASE, BASE, 40.0), replace(times(BASE, BASE, 10.0), sample_set="other problems")
    [ranking] = rankings("sums", "target", {"target": times(BASE, BASE, 50.0), "a": like, "b": unlike}, [CLOCK])
    assert [run.run_id for run in ranking.ranked] == ["a", "target"]
    assert ranking.without_value == ["b"]


def test_without_the_baselines_value_there_is_no_speed_up() -> None:
    runs = {"target": Times({}, {}), "method": times(BASE, BASE), "other": times(2 * BASE, BASE)}
    [ranking] = rankings("sums", "target", runs, [SECONDS])
    assert [(run.run_id, run.speed_up) for run in ranking.ranked] == [("method", None), ("other", None)]


@pytest.fixture(scope="module")
def loaded_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    where = tmp_path_factory.mktemp("pair")
    target = cells.finished(where, cells.VANILLA, [4] * 12, latency=20.0)
    method = cells.finished(where, cells.SPEC, [4] * 12, latency=10.0)
    for folder in (target, method):
        load_run(folder, where / "w.duckdb")
    return where, [target.path.name, method.path.name]


@pytest.fixture
def pair(tmp_path: Path, loaded_pair: tuple[Path, list[str]]) -> list[str]:
    where, names = loaded_pair
    shutil.copy(where / "w.duckdb", tmp_path)
    return names


def compare(where: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--database", str(where / "w.duckdb")])


def by_name(result: Result) -> dict[str, dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return {row["stopwatch"]: row for row in json.loads(result.stdout)["stopwatches"]}


def test_json_has_every_definition_with_its_source(tmp_path: Path, pair: list[str]) -> None:
    rankings = by_name(compare(tmp_path, *pair, "--stopwatches", "--format", "json"))
    with reader(tmp_path / "w.duckdb") as connection:
        names = [name for (name,) in connection.execute("SELECT stopwatch FROM stopwatch ORDER BY place").fetchall()]
        values = connection.execute("SELECT stopwatch, run_id, value FROM run_stopwatch").fetchall()
    assert list(rankings) == names
    assert all(row["source"] and row["definition"] and row["leaves_out"] for row in rankings.values())
    printed = {(name, run["run_id"]): run["value"] for name, row in rankings.items() for run in row["ranking"]}
    assert printed == {(name, run_id): pytest.approx(value) for name, run_id, value in values}
    target, method = pair
    assert [run["run_id"] for run in rankings["measured"]["ranking"]] == [method, target]
    assert rankings["measured"]["ranking"][0]["speed_up"] == pytest.approx(2)
    assert rankings["rsd"]["num_problems"] is None


def test_without_the_option_nothing_is_added(tmp_path: Path, pair: list[str]) -> None:
    keys = {"warnings", "baselines", "differences", "rows"}
    assert set(json.loads(compare(tmp_path, *pair, "--format", "json").stdout)) == keys
    assert "SplitReason" not in compare(tmp_path, *pair).stdout


@pytest.mark.parametrize("shape", ["table", "markdown", "latex"])
def test_every_shape_for_people_has_the_rankings_and_their_legend(tmp_path: Path, pair: list[str], shape: str) -> None:
    output = compare(tmp_path, *pair, "--stopwatches", "--format", shape).stdout
    for words in ("SplitReason", "LookaheadReasoning", "RSD's single clock has no interval", "No flip: "):
        assert words in output


def test_every_row_names_its_definition(tmp_path: Path, pair: list[str]) -> None:
    """On a narrow terminal each row is a block of its own, apart from the rows above it."""
    output = compare(tmp_path, *pair, "--stopwatches", "--format", "markdown").stdout
    assert len([line for line in output.splitlines() if line.startswith("| SplitReason")]) == len(pair)


def test_csv_is_refused_in_one_line(tmp_path: Path, pair: list[str]) -> None:
    result = compare(tmp_path, *pair, "--stopwatches", "--format", "csv")
    assert result.exit_code == 2
    assert "--stopwatches has no CSV form" in result.output


def test_runs_whose_times_are_refused_are_not_ranked_unless_forced(tmp_path: Path) -> None:
    target = cells.finished(tmp_path, cells.VANILLA, [4] * 12)
    like = cells.finished(tmp_path, cells.SPEC, [4] * 12)
    unlike = cells.finished(tmp_path, replace(cells.SPEC, concurrency=8), [4] * 12)
    for folder in (target, like, unlike):
        load_run(folder, tmp_path / "w.duckdb")
    names = [folder.path.name for folder in (target, like, unlike)]
    ranked = by_name(compare(tmp_path, *names, "--stopwatches", "--format", "json"))["measured"]["ranking"]
    assert {run["run_id"] for run in ranked} == set(names[:2])
    forced = by_name(compare(tmp_path, *names, "--stopwatches", "--force", "--format", "json"))["measured"]["ranking"]
    assert {run["run_id"] for run in forced} == set(names)


SUM = Definition("measured", "Sum", "s/problem", False, "", "", "")


def test_a_definition_that_adds_up_samples_has_no_value_for_a_run_with_fewer_of_them() -> None:
    """Twice as many samples of a problem take twice as long."""
    target, method = replace(times(BASE, BASE), samples=4), replace(times(BASE / 2, BASE), samples=2)
    runs = {"target": target, "method": method, "third": replace(times(BASE / 3, BASE), samples=4)}
    [ranking] = rankings("sums", "target", runs, [SUM])
    assert ([run.run_id for run in ranking.ranked], ranking.without_value) == (["third", "target"], ["method"])


def test_a_run_that_shares_no_timed_problem_takes_no_value_from_the_others() -> None:
    elsewhere = Times({"measured": {"q0": (5.0, 1.0)}}, {})
    idle = Times({"measured": dict.fromkeys(PROBLEMS, (0.0, 1.0)) | {"q0": (5.0, 1.0)}}, {})
    runs = {"elsewhere": elsewhere, "idle": idle, "target": times(BASE, BASE), "method": times(BASE / 2, BASE)}
    [ranking] = rankings("sums", "target", runs, [SECONDS])
    assert [run.run_id for run in ranking.ranked] == ["method", "target"]
    assert (ranking.n, ranking.without_value) == (12, ["elsewhere", "idle"])


def test_rates_that_are_equal_up_to_rounding_are_no_flip() -> None:
    """1.5 times the time for 1.5 times the tokens."""
    runs = {"target": times(BASE, 200 / BASE), "method": times(1.5 * BASE, (200 / BASE) * (1 + 1e-13))}
    [_, rate] = rankings("sums", "target", runs, [SECONDS, TOKENS])
    assert ([run.run_id for run in rate.ranked], rate.flips) == (["method", "target"], [])


def test_only_the_baseline_is_called_the_baseline_and_other_samples_are_named(tmp_path: Path) -> None:
    """The baseline lacks samples, so it has no serial time; a run that lacks samples differs even from its own copy."""
    target = cells.finished(tmp_path, cells.VANILLA, [4] * 12, has_run=lambda problem, sample: sample < 2)
    method = cells.finished(tmp_path, cells.SPEC, [4] * 12)
    for folder in (target, method):
        load_run(folder, tmp_path / "w.duckdb")
    output = compare(tmp_path, target.path.name, method.path.name, "--stopwatches").stdout
    [serial] = [line for line in output.splitlines() if line.startswith("GlimpRouter ")]
    assert "baseline" not in serial
    assert "the runs timed different samples of these problems" in output
    rankings = by_name(compare(tmp_path, target.path.name, method.path.name, "--stopwatches", "--format", "json"))
    assert {name for name, row in rankings.items() if not row["has_other_samples"]} == {"glimprouter", "rsd"}
