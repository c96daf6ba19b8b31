"""Every published value has a measure that can be computed, and every ratio the baseline that its paper has."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from harness.methods import defaults
from harness.trace import Candidate, Trace, Verdict
from jobs.run import derived
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, RunSpec, Unit
from tests.warehouse import runs
from warehouse.database import Connection, reader
from warehouse.loading.runs import load_runs
from warehouse.suites import published as papers
from warehouse.suites.measured import measure

SAMPLES = 10
VLLM = EngineSpec("vllm")
SHEPHERD = "math-shepherd-mistral-7b-prm@r1/1"


def planned_spec(method: str, **changes: Any) -> RunSpec:
    """The same problems, models and engine for every method."""
    params = {**defaults(method), **({"model": "target"} if method == "vanilla" else {})}
    return replace(runs.SPEC, method=method, params=params, samples=SAMPLES, engine=VLLM, **changes)


def scored(unit: Unit, score: int, latency: float) -> Trace:
    """SpecReason: a drafted step with a score, which is the number of its reward in tenths, and an answer."""
    trace = runs.speculative(unit, latency=latency)
    trace.steps[1].candidates = trace.steps[1].candidates[:1]
    digits = tuple(map(str, range(10)))
    logprobs = tuple(math.log(0.91 if digit == score else 0.01) for digit in range(10))
    trace.steps[1].verdicts = [Verdict("score", "How good?", digits, logprobs, score, float(score), True)]
    return trace


def chosen(unit: Unit, latency: float) -> Trace:
    """SCoT: two whole chains, the first is chosen, and an answer."""
    trace = runs.speculative(unit, latency=latency)
    del trace.steps[0], trace.calls[0]
    trace.steps[0].candidates = [
        Candidate("It is 2.", 6, "eos", -0.5, 0, accepted=True),
        Candidate("3", 5, "eos", -1.5, 1),
    ]
    for call in trace.calls:
        call.step -= 1
    return trace


def traces(run: RunFolder, method: str) -> list[Trace]:
    units = runs.planned(run)
    if method in ("vanilla", "specdecode"):
        alone = [runs.vanilla(unit, 40 + i, 20.0 + i) for i, unit in enumerate(units)]
        for trace in alone:
            trace.steps[0].text = "Long.</think>It is 2."
        return alone
    if method == "specreason":
        return [scored(unit, i % 10, 9.0 + i) for i, unit in enumerate(units)]
    if method == "scot":
        return [chosen(unit, 7.0 + i) for i, unit in enumerate(units)]
    return [runs.speculative(unit, refused=i % 5 == 0, latency=10.0 + i) for i, unit in enumerate(units)]


def write_rewards(run: RunFolder, written: list[Trace]) -> None:
    """A reward in tenths for every candidate: the score of its verdict, and for a second candidate 0.1."""
    rows = [
        {
            "sample_id": trace.sample_id,
            "step_index": index,
            "candidate_index": place,
            "scorer": SHEPHERD,
            "score": 0.1 if place else (step.verdict.decision if step.verdict else 0) / 10,
        }
        for trace in written
        for index, step in enumerate(trace.steps)
        for place, _ in enumerate(step.candidates)
    ]
    derived.write(run, "scores", "shepherd", rows)


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("cells")
    specs = {method: planned_spec(method) for method in ("specdecode", "speccot", "specreason", "scot")}
    specs |= {"vanilla": planned_spec("vanilla", draft=None)}
    specs |= {"greedy": planned_spec("vanilla", draft=None, temperature=0.0)}
    specs |= {"elsewhere": planned_spec("vanilla", draft=None, seed=9)}
    folders = []
    for name, spec in specs.items():
        run = runs.create(where, spec, name)
        written = traces(run, spec.method)
        runs.write_part(run, written, device="NVIDIA H100" if name == "elsewhere" else "NVIDIA A100")
        runs.write_grades(run, {trace.sample_id: "correct" for trace in written})
        if spec.method in ("speccot", "specreason"):
            write_rewards(run, written)
        folders.append(run)
    list(load_runs(folders, where / "w.duckdb"))
    return where / "w.duckdb"


@pytest.fixture(scope="module")
def connection(database: Path) -> Iterator[Connection]:
    with reader(database) as opened:
        yield opened


measured_once = cache(measure)
"""Cells of many suites are of the same runs."""


def recorded(plan: papers.Planned) -> str:
    """The run of the synthetic warehouse that stands for a suite's."""
    is_greedy = plan.flags["method"] == "vanilla" and plan.flags["temperature"] == 0
    return "greedy" if is_greedy else str(plan.flags["method"])


@pytest.mark.parametrize("name", papers.names())
def test_every_published_value_has_a_measure_that_can_be_computed(name: str, connection: Connection) -> None:
    table = papers.load(name)
    plans = {(plan.row.label, plan.column): plan for plan in papers.planned(table)}
    for plan in plans.values():
        for key in plan.row.values.get(plan.column, {}):
            metric = table.metrics[key]
            assert metric.measure is not None, (plan.row.label, key)
            baseline = plans.get((table.baseline(plan.row, key) or "", plan.column))
            assert (baseline is not None) == metric.registered.is_of_pair, (plan.row.label, key)
            base = None if baseline is None else recorded(baseline)
            measured = measured_once(connection, metric.measure, recorded(plan), base, metric.stopwatch, k=metric.k)
            assert measured is not None, (plan.row.label, key)
            if baseline is plan:
                assert measured.estimate == pytest.approx(1)


def test_the_ratio_of_means_and_what_is_saved_are_the_same_number(connection: Connection) -> None:
    """Samples in planned order: latencies 20 to 49 of the target, 10 to 39 of speccot."""
    ratio = measure(connection, "ratio_of_means", "speccot", "vanilla")
    saved = measure(connection, "latency_saved", "speccot", "vanilla")
    seconds = measure(connection, "latency_saved_seconds", "speccot", "vanilla")
    assert ratio is not None
    assert saved is not None
    assert seconds is not None
    assert ratio.estimate == pytest.approx(34.5 / 24.5)
    assert saved.estimate == pytest.approx(10 / 34.5)
    assert seconds.estimate == pytest.approx(10)
    assert saved.low == pytest.approx(1 - 1 / (ratio.low or 0))


def test_rewards_agree_with_the_view_and_correlate_with_the_scores_that_they_are(connection: Connection) -> None:
    quality = measure(connection, "draft_quality", "speccot")
    selected = measure(connection, "selected_quality", "speccot")
    [view] = connection.execute(
        "SELECT draft_quality, selected_quality FROM step_quality WHERE run_id = 'speccot'"
    ).fetchall()
    assert quality is not None
    assert selected is not None
    assert (quality.estimate, selected.estimate) == pytest.approx(view)
    correlation = measure(connection, "score_reward_correlation", "specreason")
    assert correlation is not None
    assert correlation.estimate == pytest.approx(1)
    assert correlation.low == pytest.approx(1)
    assert measure(connection, "score_reward_correlation", "vanilla") is None
