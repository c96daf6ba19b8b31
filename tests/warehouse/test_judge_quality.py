"""The quality of verdicts and the replay of other thresholds, against numbers computed by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.trace import Candidate, Step, Trace, Verdict
from jobs.run.folder import RunFolder
from jobs.run.spec import Unit
from tests.warehouse import runs
from tests.warehouse.conftest import Ask
from tests.warehouse.test_decisions import MANY_PROBLEMS
from warehouse.database import reader
from warehouse.loading.runs import load_run

DIGITS = tuple(str(i) for i in range(10))
SPEC = replace(
    runs.SPEC, method="specreason", params={"threshold": 7.0, "score": "greedy", "first_steps": 0, "step_tokens": 512}
)


def scored(digit: int, spread: dict[int, float] | None = None) -> Step:
    """A step judged with `digit`, accepted from 7 up; the probabilities are those of `spread`."""
    shares = spread or {digit: 1.0}
    logprobs = tuple(math.log(shares[i]) if i in shares else -math.inf for i in range(10))
    accepted = digit >= 7
    step = runs.step("draft" if accepted else "target", "draft" if accepted else "fallback", f"Step {digit}.\n", 10)
    step.candidates = [Candidate("A draft.\n", 9, "stop", -0.1, 0, accepted)]
    step.verdicts = [Verdict("score", "Score?", DIGITS, logprobs, digit, float(digit), accepted)]
    return step


def trace(unit: Unit, *digits: int) -> Trace:
    judged_trace = runs.vanilla(unit)
    judged_trace.steps = [scored(digit) for digit in digits]
    return judged_trace


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Problem 0: (9, 8) right, (9, 3) wrong. Problem 1: (7, 7) right, (5, 9) right. Problem 2: (9,) wrong, twice."""
    where = tmp_path_factory.mktemp("judged")
    folder = runs.create(where, SPEC)
    by_problem = sorted(runs.planned(folder), key=lambda unit: (unit.problem_id, unit.sample_index))
    chains = [(9, 8), (9, 3), (7, 7), (5, 9), (9,), (9,)]
    traces = [trace(unit, *digits) for unit, digits in zip(by_problem, chains, strict=True)]
    runs.write_part(folder, traces)
    verdicts = ["correct", "wrong", "correct", "correct", "wrong", "no_answer"]
    runs.write_grades(folder, dict(zip((t.sample_id for t in traces), verdicts, strict=True)))
    load_run(folder, where / "w.duckdb")
    return folder


@pytest.fixture
def ask(run: RunFolder) -> Iterator[Ask]:
    with reader(run.path.parent / "w.duckdb") as connection:
        yield Ask(connection)


def test_calibration_is_the_share_of_right_answers_by_score(run: RunFolder, ask: Ask) -> None:
    calibration = {
        row["rating_from"]: (row["num_decisions"], row["num_correct"], row["share_accepted"])
        for row in ask("judge_calibration", run)
    }
    assert calibration == {3: (1, 0, 0), 5: (1, 1, 0), 7: (2, 2, 1), 8: (1, 1, 1), 9: (5, 2, 1)}


def test_the_reliability_curve_reads_the_expected_score_as_a_probability(run: RunFolder, ask: Ask) -> None:
    curve = {round(row["probability_from"], 1): row for row in ask("judge_reliability", run)}
    assert sorted(curve) == [0.3, 0.5, 0.7, 0.8, 0.9]
    assert (curve[0.9]["mean_probability"], curve[0.9]["share_correct"]) == (pytest.approx(1), pytest.approx(0.4))
    assert curve[0.9]["share_of_verdicts"] == pytest.approx(0.5)
    assert curve[0.3]["mean_probability"] == pytest.approx(3 / 9, abs=1e-3)
    [auroc] = ask("judge_auroc", run)
    assert (auroc["num_correct"], auroc["num_incorrect"], auroc["auroc"]) == (6, 4, None), "few samples have none"


def test_auroc_is_that_of_an_independent_count(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, replace(SPEC, num_problems=8, dataset_size=8, samples=6), problems=MANY_PROBLEMS)
    chains = [[(i * 7 + j * j) % 10 for j in range(1 + i % 5)] for i in range(48)]
    traces = [trace(unit, *digits) for unit, digits in zip(runs.planned(folder), chains, strict=True)]
    right = [i % 3 > 0 for i in range(48)]
    runs.write_part(folder, traces)
    runs.write_grades(
        folder, {t.sample_id: "correct" if good else "wrong" for t, good in zip(traces, right, strict=True)}
    )
    load_run(folder, tmp_path / "w.duckdb")
    good = [d for digits, is_right in zip(chains, right, strict=True) for d in digits if is_right]
    bad = [d for digits, is_right in zip(chains, right, strict=True) for d in digits if not is_right]
    wins = sum((g > b) + (g == b) / 2 for g in good for b in bad)
    with reader(tmp_path / "w.duckdb") as connection:
        [auroc] = Ask(connection)("judge_auroc", folder)
    assert auroc["auroc"] == pytest.approx(wins / len(good) / len(bad))


def test_a_replay_is_exact_up_to_the_first_changed_decision(run: RunFolder, ask: Ask) -> None:
    replayed = {row["threshold"]: row for row in ask("threshold_replay", run) if row["score"] == "greedy"}
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
    folder = runs.create(tmp_path, SPEC)
    unit = runs.planned(folder)[0]
    judged_trace = trace(unit, 9)
    judged_trace.steps = [scored(9, {9: 0.6, 1: 0.4})]  # mean 5.8: refused at 6, accepted at 5
    runs.write_part(folder, [judged_trace])
    runs.write_grades(folder, {unit.sample_id: "correct"})
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        ask = Ask(connection)
        [step] = ask("step", folder)
        assert step["verdict_expected_score"] == pytest.approx(5.8)
        changed = {(r["score"], r["threshold"]): r["num_changed_samples"] for r in ask("threshold_replay", folder)}
    assert [changed[("average", t / 2)] for t in range(19)] == [0] * 12 + [1] * 7  # from 6 up it is refused
    assert [changed[("greedy", t)] for t in range(10)] == [0] * 10


@pytest.mark.parametrize(("score", "threshold"), [("average", 6.7), ("greedy", 6.7)])
def test_the_runs_own_threshold_is_replayed_wherever_it_lies(tmp_path: Path, score: str, threshold: float) -> None:
    folder = runs.create(tmp_path, replace(SPEC, params={"threshold": threshold, "score": score}))
    unit = runs.planned(folder)[0]
    judged_trace = trace(unit, 9, 9)
    for step, low in zip(judged_trace.steps, (0.2, 0.3), strict=True):  # means 7.4 and 6.6
        [verdict] = scored(9, {1: low, 9: 1 - low}).verdicts
        verdict.score = 9.0 if score == "greedy" else 9 - 8 * low
        verdict.accepted = verdict.score >= threshold
        step.verdicts = [verdict]
    runs.write_part(folder, [judged_trace])
    runs.write_grades(folder, {unit.sample_id: "correct"})
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        rows = Ask(connection)("threshold_replay", folder)
    [own] = [row for row in rows if row["is_own"]]
    assert (own["score"], own["threshold"], own["num_changed_samples"]) == (score, threshold, 0)
    assert len(rows) == len({(row["score"], row["threshold"]) for row in rows}) == 31


def test_a_choice_without_any_probability_is_loaded_and_rates_nothing(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    sure, lost = (runs.speculative(unit) for unit in runs.planned(folder)[:2])
    lost.steps[1].verdicts = [runs.choice(0, True, (0.0, 0.0, 0.0))]
    runs.write_part(folder, [sure, lost])
    runs.write_grades(folder, {sure.sample_id: "correct", lost.sample_id: "wrong"})
    assert load_run(folder, tmp_path / "w.duckdb").num_finished == 2
    with reader(tmp_path / "w.duckdb") as connection:
        ask = Ask(connection)
        assert [row["num_decisions"] for row in ask("judge_calibration", folder)] == [1]
        options = {row["option_index"]: row for row in ask("draft_selection", folder)}
        [rate] = ask("fallback_rate", folder)
    assert (options[0]["num_verdicts"], options[0]["num_chosen"]) == (2, 2)
    assert options[0]["mean_probability"] == pytest.approx(0.5 / 0.8 / 2)
    assert (rate["num_verdicts"], rate["mean_option_mass"]) == (2, pytest.approx(0.4))
