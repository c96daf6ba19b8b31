"""Methods that accept by other means than a verdict: their decisions count everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.problems.problem import Problem
from harness.trace import Candidate, Decision, Step, Trace
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec, Unit
from tests.warehouse import runs
from tests.warehouse.conftest import Ask
from warehouse.database import Connection, reader
from warehouse.database import rows as rows_of
from warehouse.loading.runs import load_run
from warehouse.nightly.history import read_values

THRESHOLD = 0.35
ENTROPIES = [[0.1, 0.5], [0.3, 0.2], [0.6, 0.35], [0.9, 0.7], [0.2], [0.0]]
"""Of three problems twice: four of ten are above the threshold, two of them first steps."""
MANY_PROBLEMS = [Problem(f"toy/{i}", "toy", f"{i} + 1?", str(i + 1)) for i in range(8)]
OWN = replace(runs.SPEC, method="own", params={})


def rows(connection: Connection, sql: str, parameters: dict[str, object]) -> list[dict[str, Any]]:
    """The rows of a query, of which each test knows the types."""
    return rows_of(connection, sql, parameters)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two chains a problem, by tag: `stated` decisions, and `silent` ones, of which the outcome is recorded."""
    where = tmp_path_factory.mktemp("own")
    for tag in ("stated", "silent"):
        chains = [[Decision.at_most("entropy", value, THRESHOLD) for value in chain] for chain in ENTROPIES]
        loaded_run(where, chains, ["correct"] * 6, replace(OWN, tag=tag), is_stated=tag == "stated")
    return where / "w.duckdb"


@pytest.fixture
def connection(database: Path) -> Iterator[Connection]:
    with reader(database) as connection:
        yield connection


def test_a_decision_by_other_means_is_a_row_of_decision(connection: Connection) -> None:
    sql = "SELECT decision.* FROM decision JOIN run USING (run_id) WHERE tag = 'stated' ORDER BY sample_id, step_index"
    found = rows(connection, sql, {})
    assert {(row["kind"], row["threshold"], row["accepts_below"]) for row in found} == {("entropy", THRESHOLD, True)}
    assert [row["accepted"] for row in found] == [row["value"] <= THRESHOLD for row in found]
    assert sorted(row["value"] for row in found) == sorted(value for chain in ENTROPIES for value in chain)


@pytest.mark.parametrize("tag", ["stated", "silent"])
def test_rates_and_positions_count_every_kind_of_decision(connection: Connection, tag: str) -> None:
    [run] = rows(connection, "SELECT run_id FROM run WHERE tag = $tag", {"tag": tag})
    run_id, parameters = run["run_id"], {"run_id": run["run_id"]}
    [rate] = rows(connection, "FROM fallback_rate WHERE run_id = $run_id", parameters)
    assert (rate["num_decisions"], rate["num_refused"], rate["num_verdicts"]) == (10, 4, 0)
    assert rate["fallback_rate"] == pytest.approx(0.4)
    positions = rows(connection, "FROM acceptance_by_position WHERE run_id = $run_id ORDER BY step_index", parameters)
    assert [(row["num_decisions"], row["num_accepted"]) for row in positions] == [(6, 4), (4, 2)]
    places = rows(connection, "FROM refusals WHERE run_id = $run_id", parameters)
    assert [sum(row[name] for row in places) for name in ("num_decisions", "num_refused")] == [10, 4]
    judged = {name: value for name, _, value in read_values(connection)[run_id]}
    assert judged["fallback_rate"] == pytest.approx(0.4)
    [kind] = rows(connection, "FROM decision_kinds WHERE run_id = $run_id", parameters)
    assert kind["num_refused"] == 4
    if tag == "silent":
        assert (kind["kind"], kind["num_values"], kind["lowest_threshold"]) == ("unstated", 0, None)


def decided(decision: Decision, *, is_stated: bool) -> Step:
    """A step as a method with a decision of its own records it."""
    accepted = decision.accepted
    step = runs.step("draft" if accepted else "target", "draft" if accepted else "fallback", "A step.\n\n", 5)
    step.candidates = [Candidate("A draft.\n\n", 5, "stop", None, 0, accepted)]
    step.decision = decision if is_stated else None
    return step


def loaded_run(
    folder: Path,
    chains: list[list[Decision]],
    verdicts: list[str],
    spec: RunSpec = OWN,
    problems: Sequence[Problem] = runs.PROBLEMS,
    *,
    is_stated: bool = True,
) -> RunFolder:
    """A run of an own method with these decisions, by sample in the order of problem and sample index."""
    run = runs.create(folder, spec, problems=problems)
    units: list[Unit] = sorted(runs.planned(run), key=lambda unit: (unit.problem_id, unit.sample_index))
    traces: list[Trace] = []
    for unit, chain in zip(units, chains, strict=True):
        trace = runs.vanilla(unit)
        trace.steps = [decided(decision, is_stated=is_stated) for decision in chain]
        traces.append(trace)
    runs.write_part(run, traces)
    runs.write_grades(run, {t.sample_id: verdict for t, verdict in zip(traces, verdicts, strict=True)})
    load_run(run, folder / "w.duckdb")
    return run


def test_the_replay_of_another_threshold_is_exact_up_to_the_first_changed_decision(tmp_path: Path) -> None:
    """The negatives of the numbers of six samples against -0.5, of which low ones are accepted."""
    chains = [[0.9, 0.8], [0.9, 0.3], [0.6, 0.6], [0.4, 0.9], [0.9], [0.9]]
    made = [[Decision.at_most("doubt", -value, -0.5) for value in chain] for chain in chains]
    folder = loaded_run(tmp_path, made, ["correct", "wrong", "correct", "correct", "wrong", "no_answer"])
    with reader(tmp_path / "w.duckdb") as connection:
        replayed = {-row["threshold"]: row for row in Ask(connection)("threshold_replay", folder)}
    [own] = [row for row in replayed.values() if row["is_own"]]
    assert (own["threshold"], own["score"], own["num_changed_samples"]) == (-0.5, "doubt", 0)
    assert set(replayed) == {0.3, 0.4, 0.5, 0.6, 0.8, 0.9}
    # At 0.8 only (0.6, 0.6) changes, at its first step: 8 of 10 steps are known. At 0.4 that of (0.4, 0.9) does.
    assert (replayed[0.8]["num_changed_samples"], replayed[0.8]["share_of_steps_exact"]) == (1, pytest.approx(0.8))
    assert replayed[0.8]["accuracy_at_least"] == pytest.approx((1 / 2 + 1 / 2 + 0) / 3)
    assert replayed[0.8]["accuracy_at_most"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert [replayed[place]["num_changed_samples"] for place in (0.4, 0.3)] == [1, 2]


def test_the_auroc_of_a_decision_that_accepts_low_numbers_is_that_of_the_negatives(tmp_path: Path) -> None:
    values = [(i * 7) % 10 / 10 for i in range(48)]
    right = [i % 3 > 0 for i in range(48)]
    made = [[Decision.at_most("doubt", -value, -0.5)] for value in values]
    spec = replace(OWN, num_problems=8, dataset_size=8, samples=6)
    folder = loaded_run(tmp_path, made, ["correct" if good else "wrong" for good in right], spec, MANY_PROBLEMS)
    with reader(tmp_path / "w.duckdb") as connection:
        [auroc] = Ask(connection)("judge_auroc", folder)
    good, bad = ([v for v, is_right in zip(values, right, strict=True) if is_right is side] for side in (True, False))
    wins = sum((g > b) + (g == b) / 2 for g in good for b in bad)
    assert auroc["auroc"] == pytest.approx(wins / len(good) / len(bad))


def test_what_was_refused_without_a_number_is_counted_and_leaves_the_threshold_of_the_others(tmp_path: Path) -> None:
    uncompared = Decision("agreement", None, None, accepted=False)
    chains = [[Decision.at_least("agreement", value, 0.5), uncompared] for value in (0.9, 0.2)] * 3
    folder = loaded_run(tmp_path, chains, ["correct", "wrong"] * 3)
    with reader(tmp_path / "w.duckdb") as connection:
        ask = Ask(connection)
        [kind] = ask("decision_kinds", folder)
        replay = {row["threshold"]: row for row in ask("threshold_replay", folder)}
    assert (kind["num_decisions"], kind["num_refused"], kind["num_values"]) == (12, 9, 6)
    assert {threshold for threshold, row in replay.items() if row["is_own"]} == {0.5}
    assert [replay[threshold]["num_changed_samples"] for threshold in (0.2, 0.5, 0.9)] == [3, 0, 0]


def test_a_decision_beside_a_verdict_decides(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    traces = [runs.speculative(unit) for unit in runs.planned(folder)]
    for trace in traces:  # the verdict chose a draft, and the reward model vetoed it
        trace.steps[1].decision = Decision.at_least("reward", 0.2, 0.5)
    runs.write_part(folder, traces)
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        ask = Ask(connection)
        [[rate], [kind], [place]] = [ask(view, folder) for view in ("fallback_rate", "decision_kinds", "refusals")]
        options = ask("draft_selection", folder)
    assert (rate["num_decisions"], rate["num_verdicts"], rate["num_refused"]) == (6, 6, 6)
    assert (kind["kind"], place["kind"]) == ("reward", "reward")
    assert sum(row["num_chosen"] for row in options) == 6, "verdicts are kept"
