"""What is paired and what repeats what: problems that both runs have, families, repeated runs, greedy samples."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.problems.problem import dataset_hash
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.shared import known, with_settings
from tests.warehouse import cells, runs
from tests.warehouse.cells import GOOD, Warehouse, compared, load, select
from tests.warehouse.report.test_summary import rendered
from tests.warehouse.test_night_runs import made, nights_of
from warehouse.comparison.pairs import Times, repeats_of, timed_pair
from warehouse.database import reader
from warehouse.nightly.history import read_values
from warehouse.report.summary import summary
from warehouse.statistics.intervals import mean
from warehouse.statistics.paired import paired
from warehouse.suites.measured import measure

BAD = (3, 1, 4, 1, 3, 2, 0, 3, 1, 2, 0, 1)
LIMIT = 5
FLIPPED = {"sums/1", "sums/3"}
"""The problems among the first five that most samples solve under GOOD and most do not under BAD."""


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """The target alone over all problems, and another method over the first five, and over the last seven."""
    where = tmp_path_factory.mktemp("limited runs")
    last = cells.finished(where, replace(cells.SPEC, seed=1), BAD[LIMIT:], skipped=LIMIT)
    whole = cells.finished(where, cells.VANILLA, GOOD, latency=20.0)
    return Warehouse.of(where, {"whole": whole, "first": cells.finished(where, cells.SPEC, BAD[:LIMIT]), "last": last})


def test_flips_are_those_of_the_problems_that_both_runs_have(limited: Warehouse) -> None:
    whole, first, last = limited.ids.values()
    found = limited.select("FROM flips")
    assert {row["problem_id"] for row in found if row["wrong_run_id"] == first} == FLIPPED
    assert {row["right_run_id"] for row in found} == {whole}
    assert not any({row["right_run_id"], row["wrong_run_id"]} == {first, last} for row in found)
    samples = limited.select("FROM flip_sample WHERE other_run_id = $run", run=first)
    assert ({row["problem_id"] for row in samples}, len(samples)) == (FLIPPED, 4 * len(FLIPPED))
    traces = limited.select("FROM flip_traces($right, $wrong)", right=whole, wrong=first)
    assert {row["problem_id"] for row in traces} == FLIPPED


def test_a_speed_up_is_over_the_problems_that_both_runs_have(limited: Warehouse) -> None:
    whole, first, last = limited.ids.values()
    shared = {row["run_id"]: row["num_shared_problems"] for row in limited.select("FROM comparable_baseline")}
    assert (shared[first], shared[last]) == (5, 7)
    [of_view] = limited.select("FROM speed_up WHERE run_id = $run", run=first)
    with reader(limited.where / "w.duckdb") as connection:
        measured = known(measure(connection, "speed_up", first, whole))
        at_night = {name: value for name, _, value in read_values(connection)[first]}
    [found] = summary(limited.where / "w.duckdb", [first])
    [(_, of_summary)] = found.against_with("speed_up")
    _, row = limited.compared("whole", "first")
    assert (of_view["n"], of_summary.n, row["num_timed_problems"], of_view["baseline_run_id"]) == (5, 5, 5, whole)
    everywhere = (of_view["speed_up"], of_summary.value, measured.estimate, math.exp(at_night["speed_up"]))
    assert (*everywhere, row["speed_up"]) == pytest.approx([2.0] * 5)


def test_a_problem_of_other_content_under_the_same_id_is_another_problem(tmp_path: Path) -> None:
    """The first of three problems was changed between the runs: times, flips and speed-ups are over the others."""
    problems = [replace(runs.PROBLEMS[0], text="What is 1 + 1?"), *runs.PROBLEMS[1:]]
    changed = replace(runs.SPEC, dataset_hash=dataset_hash(problems))
    own = runs.finished(tmp_path, changed, runs.speculative, "wrong", problems=problems)
    base = runs.finished(tmp_path, runs.VANILLA, runs.vanilla, "correct")
    load(tmp_path, own, base)
    assert {row["problem_id"] for row in select(tmp_path, "FROM flips")} == {"toy/1", "toy/2"}
    [found] = summary(tmp_path / "w.duckdb", [own.path.name])
    numbers = [row["n"] for row in select(tmp_path, "FROM speed_up")]
    assert numbers == [ratio.n for _, ratio in found.against_with("speed_up")] == [2]
    with reader(tmp_path / "w.duckdb") as connection:
        assert measure(connection, "speed_up", own.path.name, base.path.name) is not None


RIGHT = (4, 3, 4, 1, 2, 4, 0, 2, 1, 4, 2, 3)
OTHER = (4, 4, 3, 0, 4, 4, 0, 3, 4, 0, 1, 3)


def of_families(where: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """Load the target alone and a method on 12 problems of so many families; returns runs and families."""
    family = [f"template {i % number}" for i in range(12)]
    problems = [replace(problem, family=name) for problem, name in zip(cells.PROBLEMS, family, strict=True)]
    monkeypatch.setattr(cells, "PROBLEMS", problems)
    folders = [cells.finished(where, spec, c) for spec, c in ((cells.VANILLA, RIGHT), (cells.SPEC, OTHER))]
    return load(where, *folders), family


def test_families_are_the_observations_of_what_is_compared_and_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, family = of_families(tmp_path, 10, monkeypatch)
    _, row = compared(tmp_path, *names)
    result, difference = mean(np.array(OTHER) / 4, family), paired(np.array(OTHER) / 4, np.array(RIGHT) / 4, family)
    assert (row["num_families"], row["difference_interval"]) == (10, "t, clustered")
    assert (row["result_low_95"], row["result_high_95"]) == pytest.approx((result.low, result.high))
    assert (row["difference_low_95"], row["p"]) == pytest.approx((difference.low, difference.p))
    sql = "SELECT metric, families, low_95 FROM counted_estimate WHERE run_id = $run AND group_kind IS NULL"
    found = {one["metric"]: one for one in select(tmp_path, sql, run=names[1])}
    assert found["pass_at_1"]["low_95"] == pytest.approx(result.low)
    assert {found[name]["families"] for name in ("pass_at_1", "maj_at_k", "truncated", "emitted_tokens")} == {10}


def test_few_families_have_no_interval_but_the_worst_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names, _ = of_families(tmp_path, 4, monkeypatch)
    _, row = compared(tmp_path, *names)
    assert (row["result_low_95"], row["difference_low_95"], row["p"], row["p_holm"]) == (None,) * 4
    assert row["difference"] == pytest.approx(np.mean(np.array(OTHER) - np.array(RIGHT)) / 4)
    assert row["worst_case_low_95"] < -0.3


FACTORS = (1.0, 1.1, 0.95)


def repeated(where: Path, spec: RunSpec, factors: Sequence[float]) -> list[RunFolder]:
    return [
        cells.finished(where, replace(spec, seed=seed), GOOD, latency=10 * factor)
        for seed, factor in enumerate(factors)
    ]


def of_setting(where: Path, run: str) -> list[str]:
    with reader(where / "w.duckdb") as connection:
        return repeats_of(connection, [run])[run]


def test_a_speed_up_is_over_all_repeats_of_both_settings_and_covers_the_run_factor(tmp_path: Path) -> None:
    """Each run alone would be 2, 2.2 or 1.9 times as slow as the run."""
    faster = cells.finished(tmp_path, cells.SPEC, GOOD, latency=5.0, slower=lambda p, s: 1 + p / 20)
    run, vanilla, *_ = load(tmp_path, faster, *repeated(tmp_path, cells.VANILLA, FACTORS))
    _, row = compared(tmp_path, vanilla, run)
    logs = [math.log(factor) for factor in FACTORS]
    expected = math.sqrt(sum((log - sum(logs) / 3) ** 2 for log in logs) / 2)
    assert row["run_factor_standard_deviation"] == pytest.approx(expected)
    assert (row["run_factor_degrees"], row["num_timed_runs"], row["num_timed_runs_of_baseline"]) == (2, 1, 3)
    problems = [math.log((1.375 + problem / 10) / (1 + problem / 20)) for problem in range(12)]
    assert row["speed_up"] == pytest.approx(2 * math.exp(sum(logs) / 3 + sum(problems) / 12))
    assert row["speed_up_interval"] == "bootstrap-t, run factor"
    assert row["speed_up_low_95"] < row["speed_up"] * math.exp(-4.3 * math.sqrt(4 / 3) * expected)
    assert "1 run : 3" in rendered(tmp_path / "w.duckdb", run)


def test_a_speed_up_of_runs_with_different_numbers_of_samples_is_over_those_that_both_have() -> None:
    """The logarithm of a mean of 16 is larger than that of one: the same times would give 1.2."""
    times = np.exp(np.random.default_rng(5).normal(2.0, 0.6, (300, 17)))
    names, families = [str(number) for number in range(300)], [None] * 300
    one, many = (
        Times(names, families, part, part, np.zeros(part.shape, dtype=bool)) for part in (times[:, :1], times[:, 1:])
    )
    found = known(timed_pair([one], [many])).ratio.geometric_mean
    assert known(found.low) < 1 < known(found.high)
    assert found.estimate == pytest.approx(float(np.exp(np.log(times[:, 1] / times[:, 0]).mean())))


def test_repeats_have_the_same_settings_machine_and_night(tmp_path: Path) -> None:
    others = (
        cells.finished(tmp_path, replace(cells.VANILLA, temperature=0.1), GOOD),
        cells.finished(tmp_path, replace(cells.VANILLA, tag="2026-01-02"), GOOD),
        cells.finished(tmp_path, replace(cells.VANILLA, tag="elsewhere"), GOOD, device="NVIDIA A100"),
    )
    same = cells.finished(tmp_path, replace(cells.VANILLA, tag="again"), GOOD)
    asked, again, tagged, *_ = load(tmp_path, *repeated(tmp_path, cells.VANILLA, FACTORS[:2]), same, *others)
    assert of_setting(tmp_path, asked) == sorted([asked, again, tagged])


def test_a_repeat_counts_when_it_is_finished_and_stored_rows_are_made_again(tmp_path: Path) -> None:
    """What is left of a run that has begun is compared alone."""

    def stored(run: str) -> list[tuple[object, ...]]:
        columns = "num_runs, num_runs_of_baseline, round(speed_up, 4) AS speed_up"
        sql = f"SELECT {columns} FROM speed_up WHERE run_id = $run ORDER BY ALL"
        return [tuple(row.values()) for row in select(tmp_path, sql, run=run)]

    first = repeated(tmp_path, cells.VANILLA, FACTORS[:1])
    base, run = load(tmp_path, *first, cells.finished(tmp_path, cells.SPEC, GOOD, latency=5.0))
    assert stored(run) == [(1, 1, 2.0)]
    begun = replace(cells.VANILLA, seed=9)
    folder = cells.finished(tmp_path, begun, GOOD, latency=11.0, missing=12)
    [name] = load(tmp_path, folder)
    assert [of_setting(tmp_path, one) for one in (name, base)] == [[name], [base]]
    assert stored(run) == [(1, 1, 2.0), (1, 1, 2.2)]
    shutil.rmtree(folder.path)
    load(tmp_path, cells.finished(tmp_path, begun, GOOD, latency=11.0))
    assert of_setting(tmp_path, base) == sorted([base, name])
    assert stored(run) == [(1, 2, round(2 * math.sqrt(1.1), 4))] * 2


GREEDY = replace(cells.SPEC, temperature=0.0)
SIX_RIGHT = (4, 4, 4, 0, 0, 1)
"""Right samples of 4; engines wrote the last problem's repeats differently by chance."""


def test_a_greedy_run_has_no_pass_at_k_and_no_spread_within_problems(tmp_path: Path) -> None:
    """It draws one sample of each problem again and again: nothing takes the repeats for independent samples."""
    greedy, sampled = load(tmp_path, *(cells.finished(tmp_path, spec, SIX_RIGHT) for spec in (GREEDY, cells.SPEC)))

    def ks(view: str, run: str) -> list[object]:
        return [row["k"] for row in select(tmp_path, f"FROM {view} WHERE run_id = $run ORDER BY k", run=run)]

    assert [ks("pass_at_k", run) for run in (greedy, sampled)] == [[1], [1, 2, 3, 4]]
    assert [ks("maj_at_k", run) for run in (greedy, sampled)] == [[1], [4]]
    found = {row["run_id"]: row["rerun_standard_error"] for row in select(tmp_path, "FROM pass_at_1")}
    assert [found[run] is None for run in (greedy, sampled)] == [True, False]
    with reader(tmp_path / "w.duckdb") as connection:
        assert measure(connection, "pass_at_k", greedy, k=2) is None
    [told, silent] = summary(tmp_path / "w.duckdb", [greedy, sampled])
    assert told.pass_at_1 == pytest.approx(silent.pass_at_1)
    assert [any(line.startswith("GREEDY") for line in one.warnings) for one in (told, silent)] == [True, False]


def test_a_comparison_has_pass_at_k_of_sampled_runs_alone(tmp_path: Path) -> None:
    specs = (replace(cells.VANILLA, temperature=0.0), cells.SPEC)
    greedy, sampled = load(tmp_path, *(cells.finished(tmp_path, spec, SIX_RIGHT) for spec in specs))
    found = compared(tmp_path, greedy, sampled, "--k", "2", "--maj", "--baseline", greedy)
    assert {row["metric"].partition("[")[0] for row in found} == {"pass@1"}


def test_a_change_of_a_greedy_run_counts_once(tmp_path: Path) -> None:
    """Three problems of twelve are lost: many of 48 repeats, but no more than 3 of 12 samples."""
    names = load(
        tmp_path,
        *(
            cells.finished(tmp_path, replace(spec, seed=seed), [spec.samples * right for right in rights])
            for spec in (GREEDY, replace(cells.SPEC, samples=1))
            for seed, rights in enumerate(([1] * 12, [0] * 3 + [1] * 9))
        ),
    )
    of_greedy, of_single = (compared(tmp_path, *pair)[1]["p"] for pair in (names[:2], names[2:]))
    assert of_greedy == pytest.approx(of_single)


def test_a_night_of_a_greedy_run_is_one_sample_of_each_problem(tmp_path: Path) -> None:
    other = with_settings(GREEDY, "draft", temperature=0.6)
    load(tmp_path, *(made(tmp_path, 1, SIX_RIGHT, spec=spec) for spec in (GREEDY, other)))
    [night] = nights_of(tmp_path)
    greedy, sampled = sorted((cell.first for cell in night), key=lambda run: run.num_samples)
    assert (greedy.num_problems, greedy.num_samples, greedy.verdicts) == (6, 6, {"correct": 4, "wrong": 2})
    assert greedy.values["pass_at_1"] == pytest.approx(4 / 6)
    assert not greedy.variances
    assert (sampled.num_samples, list(sampled.variances)) == (24, ["pass_at_1"])
