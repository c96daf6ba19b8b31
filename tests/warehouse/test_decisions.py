"""Decisions of every kind count everywhere: their quality and other thresholds, against numbers by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.problems.problem import Problem
from harness.trace import Candidate, Decision, Step, Verdict
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.warehouse import runs
from tests.warehouse.conftest import Ask, views
from warehouse.database import Connection, reader, rows
from warehouse.loading.runs import load_run, load_runs
from warehouse.nightly.history import read_values

THRESHOLD = 0.35
ENTROPIES = [[0.1, 0.5], [0.3, 0.2], [0.6, 0.35], [0.9, 0.7], [0.2], [0.0]]
"""Of three problems twice: four of ten are above the threshold, two of them first steps."""
MANY_PROBLEMS = [Problem(f"toy/{i}", "toy", f"{i} + 1?", str(i + 1)) for i in range(8)]
OWN = replace(runs.SPEC, method="own", params={})


def decided(decision: Decision, *, is_stated: bool = True) -> Step:
    """A step as a method with a decision of its own records it."""
    accepted = decision.accepted
    step = runs.step("draft" if accepted else "target", "draft" if accepted else "fallback", "A step.\n\n", 5)
    step.candidates = [Candidate("A draft.\n\n", 5, "stop", None, 0, accepted)]
    step.decision = decision if is_stated else None
    return step


def doubted(values: Sequence[float]) -> list[Step]:
    """Steps that are accepted where the negative of a number is at most -0.5."""
    return [decided(Decision.at_most("doubt", -value, -0.5)) for value in values]


def of_chains(
    where: Path,
    chains: Sequence[list[Step]],
    verdicts: str | Sequence[str],
    spec: RunSpec = OWN,
    problems: Sequence[Problem] = runs.PROBLEMS,
) -> RunFolder:
    """A run with these steps, by sample in the order of problem and sample index."""
    run = runs.create(where, spec, problems=problems)
    units = sorted(runs.planned(run), key=lambda unit: (unit.problem_id, unit.sample_index))
    traces = [runs.vanilla(unit) for unit in units[: len(chains)]]
    for trace, chain in zip(traces, chains, strict=True):
        trace.steps = chain
    return runs.write(run, traces, verdicts)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """Runs of two chains a problem, by tag: `stated` decisions, and `silent` ones, of which the outcome is recorded."""
    where, folders = tmp_path_factory.mktemp("own"), []
    for tag in ("stated", "silent"):
        chains = [
            [decided(Decision.at_most("entropy", value, THRESHOLD), is_stated=tag == "stated") for value in chain]
            for chain in ENTROPIES
        ]
        folders.append(of_chains(where, chains, "correct", replace(OWN, tag=tag)))
    list(load_runs(folders, where / "w.duckdb"))
    with reader(where / "w.duckdb") as connection:
        yield connection


def test_a_decision_by_other_means_is_a_row_of_decision(connection: Connection) -> None:
    sql = "SELECT decision.* FROM decision JOIN run USING (run_id) WHERE tag = 'stated' ORDER BY sample_id, step_index"
    found: list[dict[str, Any]] = rows(connection, sql)
    assert {(row["kind"], row["threshold"], row["accepts_below"]) for row in found} == {("entropy", THRESHOLD, True)}
    assert [row["accepted"] for row in found] == [row["value"] <= THRESHOLD for row in found]
    assert sorted(row["value"] for row in found) == sorted(value for chain in ENTROPIES for value in chain)


@pytest.mark.parametrize("tag", ["stated", "silent"])
def test_rates_and_positions_count_every_kind_of_decision(connection: Connection, tag: str) -> None:
    [[run_id]] = connection.execute("SELECT run_id FROM run WHERE tag = ?", [tag]).fetchall()
    ask = Ask(connection, RunFolder(Path(run_id)))
    [[rate], [kind]] = [ask(view) for view in ("fallback_rate", "decision_kinds")]
    assert (rate["num_decisions"], rate["num_refused"], rate["num_verdicts"]) == (10, 4, 0)
    assert rate["fallback_rate"] == pytest.approx(0.4)
    positions = ask("acceptance_by_position", order="step_index")
    assert [(row["num_decisions"], row["num_accepted"]) for row in positions] == [(6, 4), (4, 2)]
    places = ask("refusals")
    assert [sum(row[name] for row in places) for name in ("num_decisions", "num_refused")] == [10, 4]
    judged = {name: value for name, _, value in read_values(connection)[run_id]}
    assert judged["fallback_rate"] == pytest.approx(0.4)
    assert kind["num_refused"] == 4
    if tag == "silent":
        assert (kind["kind"], kind["num_values"], kind["lowest_threshold"]) == ("unstated", 0, None)


def test_the_replay_of_another_threshold_is_exact_up_to_the_first_changed_decision(tmp_path: Path) -> None:
    chains = [[0.9, 0.8], [0.9, 0.3], [0.6, 0.6], [0.4, 0.9], [0.9], [0.9]]
    verdicts = ["correct", "wrong", "correct", "correct", "wrong", "no_answer"]
    with views(of_chains(tmp_path, [doubted(values) for values in chains], verdicts)) as ask:
        replayed = {-row["threshold"]: row for row in ask("threshold_replay")}
    [own] = [row for row in replayed.values() if row["is_own"]]
    assert (own["threshold"], own["score"], own["num_changed_samples"]) == (-0.5, "doubt", 0)
    assert set(replayed) == {0.3, 0.4, 0.5, 0.6, 0.8, 0.9}
    # At 0.8 only (0.6, 0.6) changes, at its first step: 8 of 10 steps are known. At 0.4 that of (0.4, 0.9) does.
    assert (replayed[0.8]["num_changed_samples"], replayed[0.8]["share_of_steps_exact"]) == (1, pytest.approx(0.8))
    assert replayed[0.8]["accuracy_at_least"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert replayed[0.8]["accuracy_at_most"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert [replayed[place]["num_changed_samples"] for place in (0.4, 0.3)] == [1, 2]


def test_what_was_refused_without_a_number_is_counted_and_leaves_the_threshold_of_the_others(tmp_path: Path) -> None:
    uncompared = Decision("agreement", None, None, accepted=False)
    made = [(Decision.at_least("agreement", value, 0.5), uncompared) for value in (0.9, 0.2)] * 3
    with views(
        of_chains(tmp_path, [[decided(one) for one in chain] for chain in made], ["correct", "wrong"] * 3)
    ) as ask:
        [kind] = ask("decision_kinds")
        replay = {row["threshold"]: row for row in ask("threshold_replay")}
    assert (kind["num_decisions"], kind["num_refused"], kind["num_values"]) == (12, 9, 6)
    assert {threshold for threshold, row in replay.items() if row["is_own"]} == {0.5}
    assert [replay[threshold]["num_changed_samples"] for threshold in (0.2, 0.5, 0.9)] == [3, 0, 0]


def test_a_decision_beside_a_verdict_decides(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    traces = [runs.speculative(unit) for unit in runs.planned(folder)]
    for trace in traces:  # the verdict chose a draft, and the reward model vetoed it
        trace.steps[1].decision = Decision.at_least("reward", 0.2, 0.5)
    with views(folder, traces) as ask:
        [[rate], [kind], [place]] = [ask(view) for view in ("fallback_rate", "decision_kinds", "refusals")]
        options = ask("draft_selection")
    assert (rate["num_decisions"], rate["num_verdicts"], rate["num_refused"]) == (6, 6, 6)
    assert (kind["kind"], place["kind"]) == ("reward", "reward")
    assert sum(row["num_chosen"] for row in options) == 6, "verdicts are kept"


DIGITS = tuple(str(i) for i in range(10))
SPEC = replace(
    runs.SPEC, method="specreason", params={"threshold": 7.0, "score": "greedy", "first_steps": 0, "step_tokens": 512}
)


def scored(digit: int, spread: dict[int, float] | None = None) -> Step:
    """A step judged with `digit`, accepted from 7 up; the probabilities are those of `spread`."""
    shares = spread or {digit: 1.0}
    logprobs = tuple(math.log(shares[i]) if i in shares else -math.inf for i in range(10))
    step = decided(Decision.at_least("score", digit, 7.0), is_stated=False)
    step.verdicts = [Verdict("score", "Score?", DIGITS, logprobs, digit, float(digit), digit >= 7)]
    return step


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Problem 0: (9, 8) right, (9, 3) wrong. Problem 1: (7, 7) right, (5, 9) right. Problem 2: (9,) wrong, twice."""
    where = tmp_path_factory.mktemp("judged")
    chains = [[scored(digit) for digit in digits] for digits in ((9, 8), (9, 3), (7, 7), (5, 9), (9,), (9,))]
    folder = of_chains(where, chains, ["correct", "wrong", "correct", "correct", "wrong", "no_answer"], SPEC)
    load_run(folder, where / "w.duckdb")
    return folder


@pytest.fixture
def ask(run: RunFolder) -> Iterator[Ask]:
    with reader(run.path.parent / "w.duckdb") as connection:
        yield Ask(connection, run)


def test_calibration_is_the_share_of_right_answers_by_score(ask: Ask) -> None:
    names = ("num_decisions", "num_correct", "share_accepted")
    calibration = {row["rating_from"]: tuple(row[name] for name in names) for row in ask("judge_calibration")}
    assert calibration == {3: (1, 0, 0), 5: (1, 1, 0), 7: (2, 2, 1), 8: (1, 1, 1), 9: (5, 2, 1)}


def test_the_reliability_curve_reads_the_expected_score_as_a_probability(ask: Ask) -> None:
    curve = {round(row["probability_from"], 1): row for row in ask("judge_reliability")}
    assert sorted(curve) == [0.3, 0.5, 0.7, 0.8, 0.9]
    found = [curve[0.9][name] for name in ("mean_probability", "share_correct", "share_of_verdicts")]
    assert found == pytest.approx([1, 0.4, 0.5])
    assert curve[0.3]["mean_probability"] == pytest.approx(3 / 9, abs=1e-3)
    [auroc] = ask("judge_auroc")
    assert (auroc["num_correct"], auroc["num_incorrect"], auroc["auroc"]) == (6, 4, None), "few samples have none"


@pytest.mark.parametrize("kind", ["scores", "low numbers are accepted"])
def test_auroc_is_that_of_an_independent_count(tmp_path: Path, kind: str) -> None:
    if kind == "scores":
        values: list[list[float]] = [[(i * 7 + j * j) % 10 for j in range(1 + i % 5)] for i in range(48)]
        chains = [[scored(int(digit)) for digit in digits] for digits in values]
    else:
        values = [[(i * 7) % 10 / 10] for i in range(48)]
        chains = [doubted(chain) for chain in values]
    spec = replace(SPEC if kind == "scores" else OWN, num_problems=8, dataset_size=8, samples=6)
    right = [i % 3 > 0 for i in range(48)]
    verdicts = ["correct" if is_right else "wrong" for is_right in right]
    with views(of_chains(tmp_path, chains, verdicts, spec, MANY_PROBLEMS)) as ask:
        [auroc] = ask("judge_auroc")
    good, bad = (
        [value for chain, is_right in zip(values, right, strict=True) for value in chain if is_right is side]
        for side in (True, False)
    )
    wins = sum((g > b) + (g == b) / 2 for g in good for b in bad)
    assert auroc["auroc"] == pytest.approx(wins / len(good) / len(bad))


def test_a_replay_is_exact_up_to_the_first_changed_decision(ask: Ask) -> None:
    replayed = {row["threshold"]: row for row in ask("threshold_replay") if row["score"] == "greedy"}
    exact = ("share_of_problems_exact", "share_of_samples_exact", "share_of_steps_exact")
    accuracies = ("accuracy_at_least", "accuracy_at_most")
    # At 8 only (7, 7) changes, at its first step: 8 of 10 steps are known, problems 0 and 2 wholly.
    assert [replayed[8][name] for name in exact] == pytest.approx([2 / 3, 5 / 6, 8 / 10])
    assert [replayed[8][name] for name in accuracies] == pytest.approx([(1 / 2 + 1 / 2) / 3, (1 / 2 + 1) / 3])
    # At 5 the fallback of (5, 9) would have been accepted; at 3 that of (9, 3), too, at its second step.
    assert [replayed[threshold]["num_changed_samples"] for threshold in (8, 7, 6, 5, 3)] == [1, 0, 0, 1, 2]
    assert replayed[3]["share_of_steps_exact"] == pytest.approx(7 / 10)
    own = replayed[7]
    assert (own["is_own"], own["accuracy_of_run"], [own[name] for name in exact]) == (True, 0.5, [1, 1, 1])
    assert [own[name] for name in accuracies] == pytest.approx([0.5, 0.5])


def test_the_replay_with_the_average_uses_the_stored_distribution(tmp_path: Path) -> None:
    """The mean of the score is 5.8: refused at 6, accepted at 5."""
    with views(of_chains(tmp_path, [[scored(9, {9: 0.6, 1: 0.4})]], "correct", SPEC)) as ask:
        [step] = ask("step")
        changed = {(row["score"], row["threshold"]): row["num_changed_samples"] for row in ask("threshold_replay")}
    assert step["verdict_expected_score"] == pytest.approx(5.8)
    assert [changed[("average", t / 2)] for t in range(19)] == [0] * 12 + [1] * 7  # from 6 up it is refused
    assert [changed[("greedy", t)] for t in range(10)] == [0] * 10


@pytest.mark.parametrize("score", ["average", "greedy"])
def test_the_runs_own_threshold_is_replayed_wherever_it_lies(tmp_path: Path, score: str) -> None:
    chain = [scored(9, {1: low, 9: 1 - low}) for low in (0.2, 0.3)]
    for step, average in zip(chain, (7.4, 6.6), strict=True):
        value = 9.0 if score == "greedy" else average
        step.verdicts = [replace(step.verdicts[0], score=value, accepted=value >= 6.7)]
    spec = replace(SPEC, params={"threshold": 6.7, "score": score})
    with views(of_chains(tmp_path / "constant", [chain], "correct", spec)) as ask:
        rows = ask("threshold_replay")
    sloped = replace(SPEC, params={**spec.params, "threshold_slope": 0.1})
    with views(of_chains(tmp_path / "sloped", [chain], "correct", sloped)) as ask:
        assert not any(row["is_own"] for row in ask("threshold_replay")), "no constant threshold is this run's rule"
    [own] = [row for row in rows if row["is_own"]]
    assert (own["score"], own["threshold"], own["num_changed_samples"]) == (score, 6.7, 0)
    assert len(rows) == len({(row["score"], row["threshold"]) for row in rows}) == 31


def test_a_choice_without_any_probability_is_loaded_and_rates_nothing(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    sure, lost = (runs.speculative(unit) for unit in runs.planned(folder)[:2])
    lost.steps[1].verdicts = [runs.choice(0, True, (0.0, 0.0, 0.0))]
    with views(folder, [sure, lost], ["correct", "wrong"]) as ask:
        assert [row["num_decisions"] for row in ask("judge_calibration")] == [1]
        [option] = [row for row in ask("draft_selection") if row["option_index"] == 0]
        [rate] = ask("fallback_rate")
    assert (option["num_verdicts"], option["num_chosen"]) == (2, 2)
    assert option["mean_probability"] == pytest.approx(0.5 / 0.8 / 2)
    assert (rate["num_verdicts"], rate["mean_option_mass"]) == (2, pytest.approx(0.4))
