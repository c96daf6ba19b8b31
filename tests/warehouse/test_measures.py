"""Measures of the papers' tables: by hand, in every cell that is published, and of a latency sample."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from harness.methods import defaults
from harness.trace import Candidate, Trace, Verdict
from jobs.run import derived
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, Unit
from tests.shared import known
from tests.warehouse import runs
from warehouse.database import Connection, reader
from warehouse.loading.runs import load_runs
from warehouse.statistics.intervals import Interval
from warehouse.suites import published as papers
from warehouse.suites.measured import measure, runs_like

SPEC = replace(runs.SPEC, engine=EngineSpec("vllm"))
VANILLA = replace(runs.VANILLA, engine=EngineSpec("vllm"))
VERDICTS = ["correct" if i % 3 else "wrong" for i in range(6)]
"""Problem 0 has both samples wrong, the others both right."""


def thinker(run: RunFolder) -> list[Trace]:
    """Chains of 40 tokens of which the thought, by characters, is one half: 8 + 8 of 32."""
    traces = [runs.vanilla(unit, 40, 20.0 + i) for i, unit in enumerate(runs.planned(run))]
    for trace in traces:
        trace.steps[0].text = "thought." + "</think>" + "The answer is 2."
    return traces


def opened(where: Path, folders: list[RunFolder]) -> Iterator[Connection]:
    list(load_runs(folders, where / "w.duckdb"))
    with reader(where / "w.duckdb") as connection:
        yield connection


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    where = tmp_path_factory.mktemp("measures")
    run, base = runs.create(where, SPEC, "own"), runs.create(where, VANILLA, "base")
    texts = ("Wait, so 2.\n", "So 2.\n")
    units = enumerate(runs.planned(run))
    runs.write(run, [runs.speculative(unit, refused=i < 2, text=texts[i >= 2]) for i, unit in units], VERDICTS)
    runs.write(base, thinker(base))
    yield from opened(where, [run, base, runs.create(where, runs.SPEC, "scripted")])


def taken(connection: Connection, name: str, run: str, baseline: str | None = None, k: int | None = None) -> Interval:
    return known(measure(connection, name, run, baseline, k=k))


@pytest.mark.parametrize(
    ("name", "run", "value"),
    [
        ("emitted_tokens", "own", 18),  # guidance 8, step 6, answer 4
        ("longest_draft_tokens", "own", 6),
        ("latency_seconds", "own", 10),
        ("tokens_per_second", "own", 1.8),
        ("fallback_rate", "own", 2 / 6),
        ("draft_steps", "own", 4 / 18),
        ("answer_tokens", "own", 4),
        ("thinking_tokens", "own", 14),
        ("thought_tokens_per_second", "own", 14 / 8.5),  # 1.5 of 10 s are the answer
        ("target_thinking_tokens", "own", 8 + 6 * 2 / 6),
        ("thinking_tokens", "base", 20),
        ("answer_tokens", "base", 20),
        ("graded_pass_at_1", "own", 4 / 6),
        # Of every thought 1 s guidance, 2 s drafting, 1 s verdict, and 3 s of fallback in two of six.
        ("drafting_share", "own", 12 / 30),
        ("selection_share", "own", 6 / 30),
        ("target_share", "own", 12 / 30),
        ("reflection_in_drafts", "own", 0),
        ("reflection_in_fallbacks", "own", 1000 / 6),
    ],
)
def test_a_measure_agrees_with_the_traces(connection: Connection, name: str, run: str, value: float) -> None:
    assert taken(connection, name, run).estimate == pytest.approx(value)


def test_best_of_k_is_the_unbiased_estimate_and_a_ratio_needs_its_baseline(connection: Connection) -> None:
    assert taken(connection, "pass_at_k", "own", k=2).estimate == pytest.approx(2 / 3)
    assert taken(connection, "speed_up", "own", "base").estimate == pytest.approx((21.5 * 22.5 * 23.5) ** (1 / 3) / 10)
    assert measure(connection, "pass_at_k", "own", k=5) is None
    assert measure(connection, "speed_up", "own", None) is None
    assert measure(connection, "wall_speed_up", "own", "nothing") is None


def test_runs_are_selected_by_column_values(connection: Connection) -> None:
    columns: dict[str, object] = {"method": "speccot", "dataset": "toy", "params": {"guidance_tokens": 8, "drafts": 2}}
    assert [run["run_id"] for run in runs_like(connection, columns)] == ["own"]
    assert runs_like(connection, {**columns, "params": {"drafts": 3, "guidance_tokens": 8}}) == []
    assert runs_like(connection, {**columns, "draft_name": "other"}) == []


SHEPHERD = "math-shepherd-mistral-7b-prm@r1/1"


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
    first = Candidate("It is 2.", 6, "eos", -0.5, 0, accepted=True)
    trace.steps[0].candidates = [first, Candidate("3", 5, "eos", -1.5, 1)]
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
def suite_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """The same problems, models and engine for every method."""
    where, folders = tmp_path_factory.mktemp("cells"), []
    many = replace(SPEC, samples=10)
    specs = {
        method: replace(many, method=method, params=defaults(method))
        for method in ("specdecode", "speccot", "specreason", "scot")
    }
    specs["vanilla"] = replace(VANILLA, samples=10, params={**defaults("vanilla"), "model": "target"})
    specs["greedy"] = replace(specs["vanilla"], temperature=0.0)
    for name, spec in specs.items():
        run = runs.create(where, spec, name)
        written = traces(run, spec.method)
        runs.write_part(run, written, device="NVIDIA A100")
        runs.write_grades(run, {trace.sample_id: "correct" for trace in written})
        if spec.method in ("speccot", "specreason"):
            write_rewards(run, written)
        folders.append(run)
    yield from opened(where, folders)


measured_once = cache(measure)
"""Cells of many suites are of the same runs."""


def recorded(plan: papers.Planned) -> str:
    """The run of the synthetic warehouse that stands for a suite's."""
    is_greedy = plan.flags["method"] == "vanilla" and plan.flags["temperature"] == 0
    return "greedy" if is_greedy else str(plan.flags["method"])


@pytest.mark.parametrize("name", papers.names())
def test_every_published_value_has_a_measure_that_can_be_computed(name: str, suite_runs: Connection) -> None:
    table = papers.load(name)
    plans = {(plan.row.label, plan.column): plan for plan in papers.planned(table)}
    for plan in plans.values():
        for key in plan.row.values.get(plan.column, {}):
            metric = table.metrics[key]
            assert metric.measure is not None, (plan.row.label, key)
            baseline = plans.get((table.baseline(plan.row, key) or "", plan.column))
            assert (baseline is not None) == metric.registered.is_of_pair, (plan.row.label, key)
            base = None if baseline is None else recorded(baseline)
            measured = measured_once(suite_runs, metric.measure, recorded(plan), base, metric.stopwatch, k=metric.k)
            assert measured is not None, (plan.row.label, key)
            if baseline is plan:
                assert measured.estimate == pytest.approx(1)


def test_the_ratio_of_means_and_what_is_saved_are_the_same_number(suite_runs: Connection) -> None:
    """Samples in planned order: latencies 20 to 49 of the target, 10 to 39 of speccot."""
    names = ("ratio_of_means", "latency_saved", "latency_saved_seconds")
    ratio, saved, seconds = (taken(suite_runs, name, "speccot", "vanilla") for name in names)
    assert [one.estimate for one in (ratio, saved, seconds)] == pytest.approx([34.5 / 24.5, 10 / 34.5, 10])
    assert saved.low == pytest.approx(1 - 1 / (ratio.low or 0))


def test_rewards_agree_with_the_view_and_correlate_with_the_scores_that_they_are(suite_runs: Connection) -> None:
    names = ("draft_quality", "selected_quality")
    [of_view] = suite_runs.execute(f"SELECT {', '.join(names)} FROM step_quality WHERE run_id = 'speccot'").fetchall()
    assert tuple(taken(suite_runs, name, "speccot").estimate for name in names) == pytest.approx(of_view)
    correlation = taken(suite_runs, "score_reward_correlation", "specreason")
    assert (correlation.estimate, correlation.low) == pytest.approx((1, 1))
    assert measure(suite_runs, "score_reward_correlation", "vanilla") is None
