"""Plans: their variance components and power, what the command plans from which runs, and where it cannot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from jobs.run.folder import RunFolder
from tests.shared import known
from tests.warehouse import cells
from tools.simulate import plans as simulation
from tools.simulate.populations import POPULATIONS
from warehouse.loading.runs import load_runs
from warehouse.plan import main
from warehouse.statistics import bounded, planning
from warehouse.statistics.planning import CannotPlan, Components, Moments, Pilot

RIGHT = (4, 3, 4, 1, 2, 4, 0, 2, 1, 4, 2, 3)
OTHER = (4, 4, 3, 0, 4, 4, 0, 3, 4, 0, 1, 3)
FOURS = np.full(12, 4)
EMPTY = replace(cells.SPEC, seed=7)


def plan(where: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--database", str(where / "warehouse.duckdb")])


def plans(where: Path, *words: str) -> list[dict[str, Any]]:
    found = plan(where, *words, "--json")
    assert found.exit_code == 0, found.output
    read: list[dict[str, Any]] = json.loads(found.stdout, parse_constant=pytest.fail)["plans"]
    return read


def load(where: Path, *folders: RunFolder) -> list[str]:
    list(load_runs(folders, where / "warehouse.duckdb"))
    return [folder.path.name for folder in folders]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A folder with a database, the target alone and a method in it; and a run without a sample."""
    where = tmp_path_factory.mktemp("history")
    base, run, _ = load(
        where,
        cells.finished(where, cells.VANILLA, RIGHT),
        cells.finished(where, cells.SPEC, OTHER, latency=5.0),
        cells.finished(where, EMPTY, RIGHT, missing=48),
    )
    return where, base, run


def test_a_pair_is_planned_from_its_variances(history: tuple[Path, str, str]) -> None:
    where, base, run = history
    [found] = plans(where, run, base, "--margin", "5", "--power", "0.9", "--samples", "1,4")
    pilot = Pilot(np.array(OTHER), FOURS, np.array(RIGHT), FOURS)
    assert (found["run"], found["baseline"], found["pilot_problems"]) == (run, base, 12)
    assert found["variance_between"] == pilot.components.between
    assert found["variance_within"] == pilot.components.within
    assert [size["samples_per_problem"] for size in found["sizes"]] == [1, 4]
    for size in found["sizes"]:
        k = size["samples_per_problem"]
        needed = planning.plan(pilot, 0.05, k, 0.9)
        assert size["problems"] == needed
        assert size["samples"] == 2 * k * (needed or 0)
        there = planning.detectable_margin(pilot.careful(k), found["problems_there"], 0.9)
        assert size["detectable_margin_there"] == there


def test_hours_are_those_of_both_methods_samples_on_their_devices(history: tuple[Path, str, str]) -> None:
    where, base, run = history
    [found] = plans(where, run, "--baseline", base, "--problems", "100")
    assert found["hours_are"] == "GPU-hours"
    first, second = found["sizes"][:2]
    assert second["hours_there"] == pytest.approx(2 * first["hours_there"])
    assert first["hours"] == pytest.approx(first["problems"] * first["hours_there"] / 100)
    assert first["hours_there"] > 0


def test_one_run_alone_is_planned_from_with_an_assumption_that_is_printed(history: tuple[Path, str, str]) -> None:
    where, base, _ = history
    [found] = plans(where, base, "--correlation", "0.5")
    expected = planning.components_of_one(np.array(RIGHT), FOURS, 0.5)
    assert found["run"] is None
    assert (found["variance_between"], found["variance_within"]) == (expected.between, expected.within)
    assert "0.75" in plan(where, base).stdout, "the correlation that is assumed"


def test_without_names_one_of_repeated_runs_is_planned_from(tmp_path: Path) -> None:
    again = replace(cells.SPEC, seed=1)
    pair = [cells.finished(tmp_path, cells.VANILLA, RIGHT), cells.finished(tmp_path, cells.SPEC, OTHER)]
    base, first, second = load(tmp_path, *pair, cells.finished(tmp_path, again, RIGHT))
    assert [(one["run"] in (first, second), one["baseline"]) for one in plans(tmp_path)] == [(True, base)]


def test_from_runs_that_agree_on_every_problem_nothing_is_planned(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    all_right = [cells.finished(tmp_path, spec, (4,) * 12) for spec in (cells.VANILLA, cells.SPEC)]
    base, run = load(tmp_path, *all_right)
    shown = plan(tmp_path, base, run).stdout
    assert shown.replace(base, "BASE").replace(run, "RUN") == snapshot


def test_an_unfinished_run_is_planned_from_with_a_warning(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    base, run = load(
        tmp_path,
        cells.finished(tmp_path, cells.VANILLA, RIGHT),
        cells.finished(tmp_path, cells.SPEC, OTHER, missing=30),
    )
    [found] = plans(tmp_path, base, run)
    assert found["pilot_problems"] == 6
    names = {str(tmp_path): "RUNS", run: "RUN", base: "BASE"}
    told = "\n".join(found["warnings"])
    for name, short in names.items():
        told = told.replace(name, short)
    assert told.splitlines() == snapshot


def test_one_sample_of_each_problem_is_enough_of_runs_whose_samples_repeat_each_other(tmp_path: Path) -> None:
    greedy = [replace(spec, temperature=0.0, samples=1) for spec in (cells.VANILLA, cells.SPEC)]
    rights = [min(1, right) for right in RIGHT], [min(1, right) for right in OTHER]
    alike = [cells.finished(tmp_path, *one) for one in zip(greedy, rights, strict=True)]
    *names, sampled = load(tmp_path, *alike, cells.finished(tmp_path, cells.SPEC, OTHER))
    [found] = plans(tmp_path, *names)
    assert (found["pilot_problems"], found["variance_within"]) == (12, 0)
    assert found["variance_between"] == pytest.approx(np.var(np.subtract(*rights), ddof=1))
    [mixed] = plans(tmp_path, names[0], sampled, "--baseline", names[0])
    assert (mixed["run"], mixed["pilot_problems"]) == (sampled, 12)
    assert mixed["variance_within"] == pytest.approx(np.mean([p * (4 - p) / 12 for p in OTHER]))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--margin", "0"], "--margin"),
        (["--power", "nan"], "--power"),
        (["--samples", "4,x"], "--samples"),
        (["--difference", "-2"], "--difference"),
        (["no-such-run"], "no-such-run"),
        ([EMPTY.run_id], "jobs resume"),
        (["-o", "plan.csv"], "plan.csv"),
    ],
)
def test_wrong_input_is_one_line(history: tuple[Path, str, str], words: list[str], reason: str) -> None:
    found = plan(history[0], *words)
    assert (found.exit_code, found.stdout) == (2, "")
    [line] = [line for line in found.stderr.splitlines() if line.startswith("error: ")]
    assert reason in line


SKEWED = "3 % lost"
SIX_FOURS = np.full(6, 4)
MIXED = Pilot(np.array([4, 3, 0, 1, 4, 2]), SIX_FOURS, np.array([4, 4, 1, 1, 2, 2]), SIX_FOURS)


@pytest.mark.parametrize("margin", [0.01, 0.02, 0.05, 0.2])
def test_without_any_variance_the_least_number_of_problems_is_needed(margin: float) -> None:
    needed = known(planning.problems_needed(Moments(0.0), margin, 0.8))
    worst = [bounded.worst_case(np.zeros(n), np.zeros(n), margin).p or 0 for n in (needed - 2, needed + 1)]
    assert worst[0] > 0.025 > worst[1]


@pytest.mark.parametrize("moments", [Moments(0.03), Moments(0.03, -0.02), Moments(0.2, -0.05)])
def test_the_margin_that_a_planned_number_of_problems_detects_is_the_margin_it_was_planned_for(
    moments: Moments,
) -> None:
    n = known(planning.problems_needed(moments, 0.03, 0.8))
    assert planning.power(moments, n, 0.03) >= 0.8 > planning.power(moments, n - 1, 0.03)
    assert planning.detectable_margin(moments, n, 0.8) == pytest.approx(0.03, rel=0.01)


def test_what_no_number_of_problems_can_show_has_none() -> None:
    assert planning.problems_needed(Moments(0.5), 0.001, 0.99) is None
    assert planning.samples_needed(Components(0.1, 0.1).moments, 20, 0.02, 0.8) is None
    assert planning.detectable_margin(Moments(0.5), 2, 0.9) is None


def test_a_fixed_set_of_problems_needs_the_samples_with_which_its_power_is_enough() -> None:
    components = Components(0.01, 0.2)
    k = known(planning.samples_needed(components.moments, 400, 0.02, 0.8))
    powers = [planning.power(components.moments(samples), 400, 0.02) for samples in (k - 1, k)]
    assert powers[0] < 0.8 <= powers[1]


def test_components_of_pilots_are_right_on_average() -> None:
    rng = np.random.default_rng(1)
    found = [simulation.pilot(POPULATIONS[SKEWED], 400, 3, rng).components for _ in range(200)]
    truth = simulation.truth(SKEWED)
    for name in ("between", "within", "third", "third_within"):
        values = np.array([getattr(one, name) for one in found])
        error = float(values.std() / np.sqrt(len(values)))
        assert float(values.mean()) == pytest.approx(getattr(truth, name), abs=4 * error), name


def test_a_careful_plan_takes_more_variance_than_the_pilot_shows() -> None:
    for k in (1, 4, 16):
        assert MIXED.careful(k).variance > MIXED.components.variance(k) > 0
    agreed = Pilot(SIX_FOURS, SIX_FOURS, SIX_FOURS, SIX_FOURS)
    assert agreed.careful(4) == agreed.components.moments(4) == Moments(0.0, 0.0)


def test_one_method_alone_is_planned_from_with_a_correlation() -> None:
    assert planning.components_of_one(MIXED.first_correct, SIX_FOURS, 1.0).between == 0
    loose, close = (planning.components_of_one(MIXED.first_correct, SIX_FOURS, r) for r in (0.0, 0.9))
    assert loose.between == pytest.approx(10 * close.between)
    assert loose.within == close.within


@pytest.mark.parametrize(
    ("problems", "samples", "reason"), [(1, 4, "at least 2 problems"), (5, 1, "at least 2 samples per problem")]
)
def test_what_shows_no_variance_is_no_pilot(problems: int, samples: int, reason: str) -> None:
    counts = np.full(problems, samples)
    with pytest.raises(CannotPlan, match=reason):
        Pilot(counts, counts, counts, counts)


def test_a_planned_comparison_is_decided_as_often_as_asked() -> None:
    """Within three points of 80 %, and four standard errors of so few repetitions."""
    n = known(planning.problems_needed(simulation.truth(SKEWED).moments(16), 0.05, 0.8))
    rate = simulation.decided(POPULATIONS[SKEWED], n, 16, 0.05, 400)
    assert rate == pytest.approx(0.8, abs=0.03 + 4 * (0.8 * 0.2 / 400) ** 0.5)


def test_the_planners_number_is_that_of_the_upper_limit_for_a_noisy_pilot_and_of_families_where_they_are_named() -> (
    None
):
    rng = np.random.default_rng(11)
    noisy, large = (simulation.pilot(POPULATIONS["symmetric, easy"], n, 4, rng) for n in (60, 240))
    assert planning.plan(noisy, 0.02, 4) == planning.problems_needed(noisy.careful(4), 0.02, 0.8)
    assert planning.plan(large, 0.02, 4) == planning.problems_needed(large.components.moments(4), 0.02, 0.8)
    family = [str(place // 4) for place in range(240)]
    assert known(planning.plan(large, 0.02, 4, family=family)) > known(planning.plan(large, 0.02, 4))
