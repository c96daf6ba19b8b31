"""What a probe finds: its rates by hand and by simulation, once in the database, and as they are printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.__main__ import main as jobs
from jobs.continuations.probe import draw
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tools.simulate.probes import decisions, drawn, sure, truth
from warehouse import estimates
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.probed import main, oracle
from warehouse.statistics import probes
from warehouse.statistics.probes import Points


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    run = plan(folder, method="specreason", samples=4)
    run_shard(str(run.path), 0)
    load_run(run, folder / "warehouse.duckdb")
    words = ["probe", str(run.path), "--cluster", "debug", "--points", "24", "--rollouts", "2"]
    assert CliRunner().invoke(jobs, words).exit_code == 0
    return folder / "warehouse.duckdb"


def printed(database: Path, *words: str) -> str:
    found = CliRunner().invoke(main, [*words, "--database", str(database)], env={"COLUMNS": "80"})
    assert found.exit_code == 0, found.output
    return found.output


def test_the_command_prints_the_rates_of_the_table_estimate(database: Path) -> None:
    [probe] = database.parent.glob("probe-*")
    found = json.loads(printed(database, probe.name, "--json"), parse_constant=pytest.fail)  # NaN is not JSON
    with reader(database) as connection:
        sql = "SELECT count(*) FROM estimate WHERE run_id = ? AND measure LIKE 'probe_%'"
        [(number,)] = connection.execute(sql, [probe.name]).fetchall()
    assert found["num_points"] == found["num_known"] == 24
    assert len(found["estimates"]) == number > 4
    assert max(map(len, printed(database, probe.name).splitlines())) <= 80


def test_the_oracle_stands_beside_the_judge_and_either_model(snapshot: SnapshotAssertion) -> None:
    worths = {"worth": 0.7, "worth_of_drafts": 0.5, "worth_of_judge": 0.6, "worth_of_target": 0.65}
    rows = [
        {"metric": f"probe_oracle_{name}", "estimate": value, "low_95": value - 0.1, "high_95": value + 0.1}
        for name, value in {**worths, "escalated": 0.3, "over_judge": 0.1}.items()
    ]
    assert list(oracle({"estimates": rows})) == snapshot
    assert list(oracle({"estimates": [{**row, "estimate": None} for row in rows]})) == ["Oracle: –."]


def test_decisions_that_end_the_reply_are_stored_with_the_probe(database: Path) -> None:
    [folder] = database.parent.glob("probe-*")
    [source] = database.parent.glob("demo-specreason-*")
    number = draw(RunFolder(source), 24, 0)[1].num_ending
    assert number > 0
    assert json.loads(printed(database, folder.name, "--json"))["num_ending"] == number
    assert f"{number} decisions" in " ".join(printed(database, folder.name).split())
    with reader(database) as connection:
        stored = connection.execute("SELECT DISTINCT num_ending FROM probe").fetchall()
    assert stored == [(number,)]


def test_thresholds_near_each_other_have_names_of_their_own_that_say_all_of_them() -> None:
    ratings = np.array([0.9491, 0.99954, 0.999961, 0.9999991, 0.99999997])
    found = estimates.of_numbers(ratings)
    assert len({f"{threshold:g}" for threshold in found}) == len(found) > 3
    assert [float(f"{threshold:g}") for threshold in found] == found
    named = [f"{threshold:g}" for threshold in estimates.of_numbers(np.linspace(-1, 1, 5))]
    assert named == ["-0.8", "-0.5", "0", "0.5", "0.8"]


def points(
    draft: list[int], own: list[int], accepted: list[bool], weight: list[float], rating: list[float], times: int = 12
) -> Points:
    """Return points of one problem each, with four continuations each way, so many times over."""
    n = times * len(draft)
    return Points(
        problem=np.arange(n),
        family=np.arange(n),
        weight=np.array(weight * times),
        accepted=np.array(accepted * times),
        third=np.ones(n, dtype=np.int64),
        rating=np.array(rating * times),
        draft_right=np.array(draft * times),
        draft_total=np.full(n, 4),
        own_right=np.array(own * times),
        own_total=np.full(n, 4),
        draft_even=np.array(draft * times) / 4,
        draft_odd=np.array(draft * times) / 4,
        own_even=np.array(own * times) / 4,
        own_odd=np.array(own * times) / 4,
    )


def test_rates_are_weighted_ratios_of_losses() -> None:
    found = probes.rates(points([4, 0, 0, 4], [4, 4, 4, 4], [True, True, False, False], [6, 2, 1, 1], [9, 8, 2, 1]))
    # Losses are 0, 1, 1 and 0: wrong are 2 accepted and 1 refused decision, right are 6 accepted and 1 refused.
    errors = found.false_acceptance.estimate, found.false_rejection.estimate
    losses = found.loss_of_accepted.estimate, found.loss_of_refused.estimate
    assert (*errors, *losses) == pytest.approx((2 / 3, 1 / 7, 2 / 8, 1 / 2))


def test_the_area_is_the_share_of_pairs_in_order() -> None:
    found = probes.area(points([4, 0, 0, 4], [4, 4, 4, 4], [True] * 4, [1, 1, 1, 1], [9, 8, 2, 1]))
    assert found.estimate == pytest.approx((2 * 144 - 12 + 6) / (4 * 144 - 24), abs=0.03)


def test_too_few_points_or_problems_say_nothing() -> None:
    few = points([4, 0, 0, 4], [4, 4, 4, 4], [True, True, False, False], [6, 2, 1, 1], [9, 8, 2, 1], times=7)
    enough = points([4, 0, 0, 4], [4, 4, 4, 4], [True, True, False, False], [6, 2, 1, 1], [9, 8, 2, 1])
    for given in (few, replace(enough, problem=enough.problem % 9, family=enough.problem % 9)):
        found = probes.rates(given)
        for name in ("false_acceptance", "false_rejection", "loss_of_accepted", "loss_of_refused"):
            assert np.isnan(getattr(found, name).estimate)
            assert "30 points" in getattr(found, name).kind
        assert np.isnan(probes.area(given).estimate)
    found = probes.rates(replace(enough, family=enough.problem % 9))
    assert (found.false_acceptance.low, found.false_acceptance.families) == (None, 9)
    found = probes.rates(replace(enough, family=enough.problem % 11))
    alone = probes.rates(replace(enough, problem=enough.problem % 11, family=enough.problem % 11))
    assert found.loss_of_refused == replace(alone.loss_of_refused, families=11)


def test_proposals_that_cost_nothing_or_perhaps_nothing_leave_no_share_to_accept() -> None:
    nothing = points([4, 4], [4, 4], [True, False], [1, 1], [9, 0], times=20)
    little = points([4, 4, 4, 3], [4, 4, 4, 4], [True, True, False, False], [1, 1, 1, 1], [9, 9, 9, 9])
    little = replace(little, own_right=np.where(np.arange(48) > 40, 4, little.draft_right))
    for given in (nothing, little):
        found = probes.rates(given)
        assert np.isnan(found.false_acceptance.estimate)
        assert found.false_rejection.estimate == pytest.approx(1 / 2, abs=0.03)


def test_rates_are_right_on_average_with_four_continuations() -> None:
    rng = np.random.default_rng(7)
    found = [probes.rates(drawn(rng, decisions(rng, sure, 100, 10), 200, 4)) for _ in range(60)]
    true = truth(decisions(rng, sure, 20_000, 10))
    for name in ("false_acceptance", "false_rejection", "loss_of_accepted", "loss_of_refused"):
        error = 0.04 if name == "false_acceptance" else 0.02
        assert np.mean([getattr(one, name).estimate for one in found]) == pytest.approx(true[name], abs=error)


def test_an_area_that_is_no_share_is_none() -> None:
    found = probes.area(points([3, 2, 2, 1], [3, 1, 1, 4], [True] * 4, [2, 2, 5, 4], [9, 8, 2, 1]))
    assert np.isnan(found.estimate)
    assert found.kind.startswith("none")


def test_an_oracle_takes_the_better_step_and_of_equal_ones_the_drafts() -> None:
    found = probes.oracle(points([4, 0, 2, 4], [2, 4, 2, 4], [True, True, False, False], [1, 2, 1, 4], [9, 8, 2, 1]))
    # Only the second step of 2 decisions is better by the target, and was accepted.
    assert found.escalated.estimate == pytest.approx(2 / 8)
    assert found.worth.estimate == pytest.approx((1 + 2 + 0.5 + 4) / 8)
    assert found.worth_of_drafts.estimate == pytest.approx((1 + 0 + 0.5 + 4) / 8)
    assert found.worth_of_target.estimate == pytest.approx((0.5 + 2 + 0.5 + 4) / 8)
    assert found.worth_of_judge == found.worth_of_drafts
    assert found.over_judge.estimate == pytest.approx(2 / 8)


def test_one_half_of_the_continuations_chooses_and_the_other_values() -> None:
    given = points([2, 2], [2, 2], [True, False], [1, 1], [9, 1], times=20)
    ones, zeros = np.ones(len(given)), np.zeros(len(given))
    found = probes.oracle(replace(given, draft_even=ones, draft_odd=zeros, own_even=zeros, own_odd=ones))
    assert (found.escalated.estimate, found.worth.estimate) == (0.5, 0.0)  # each half is wrong about the other
    assert found.worth_of_judge.estimate == found.worth_of_drafts.estimate == found.worth_of_target.estimate == 0.5


@pytest.mark.parametrize("rollouts", [2, 4, 8])
def test_an_oracle_is_worth_what_its_rule_is_and_no_more_than_one_that_knows_the_chances(rollouts: int) -> None:
    rng = np.random.default_rng(rollouts)
    n, size, knowing = 40_000, rollouts // 2, 0.7
    given = points([0, 0], [0, 0], [True, False], [1, 1], [9, 1], times=n // 2)
    draft, own = np.where(given.accepted, knowing, 0.4), np.where(given.accepted, 0.4, knowing)
    drafts, owns = (rng.binomial(size, chance, (2, n)) / size for chance in (draft, own))
    found = probes.oracle(replace(given, draft_even=drafts[0], draft_odd=drafts[1], own_even=owns[0], own_odd=owns[1]))
    escalated = np.mean(rng.binomial(size, own, (50, n)) > rng.binomial(size, draft, (50, n)), axis=0)
    assert found.escalated.estimate == pytest.approx(escalated.mean(), abs=0.006)
    assert found.worth.estimate == pytest.approx(np.mean(draft + escalated * (own - draft)), abs=0.006)
    assert found.worth_of_judge.estimate == pytest.approx(knowing, abs=0.006)
    by_the_same = np.maximum(drafts.mean(axis=0), owns.mean(axis=0)).mean()
    assert found.worth.estimate < knowing - 0.01 < knowing + 0.005 < by_the_same
    assert found.over_judge.estimate == pytest.approx(found.worth.estimate - found.worth_of_judge.estimate)
