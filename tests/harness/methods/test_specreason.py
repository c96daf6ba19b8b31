"""SpecReason against its paper, and its lookahead: the same chain, written earlier; what it discarded is counted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from harness.engine import EngineDied, RequestRefused
from harness.engines.scripted import ByteTokenizer, ScriptedEngine, SimulatedModel
from harness.methods.specreason import SpecReason
from harness.trace import Call, Step, Trace
from tests.harness.scripts import OtherTokenizer, Script, new_trace, solve, solve_pair


async def simulated(
    seed: int,
    steps: list[Step] | None = None,
    *,
    thinks: bool = False,
    context_tokens: int = 1 << 16,
    tokenizer: ByteTokenizer | None = None,
    **params: Any,
) -> Trace:
    """A sample of two simulated models, one of which errs often; the faster one answers first, as in life."""
    model = SimulatedModel(skill=0.6, thinks=thinks)
    own = ByteTokenizer(thinks=thinks)
    draft = ScriptedEngine(model.write, model.judge, tokenizer or own, context_tokens)
    target = ScriptedEngine(model.write, model.judge, own, context_tokens, seconds_per_call=0.001)
    trace = new_trace()
    trace.seed, trace.steps = seed, list(steps or ())
    return await solve("specreason", {"draft": draft, "target": target}, trace=trace, **params)


def text_and_decisions(trace: Trace) -> tuple[list[Step], str | None]:
    """Return the text of a chain and its decisions, without times."""
    return [replace(step, elapsed_seconds=0.0) for step in trace.steps], trace.stop_reason


def begun_ahead(trace: Trace) -> list[Call]:
    """Drafts that became candidates and were submitted before the verdict on the candidate before them had ended."""
    return [
        call
        for verdict, call in pairwise(c for c in trace.calls if c.purpose != "lookahead")
        if (verdict.purpose, call.purpose) == ("verdict", "draft")
        and call.submitted_at < verdict.submitted_at + verdict.end_seconds
    ]


@pytest.mark.parametrize(
    ("setting", "ends"),
    [
        ({}, "answered"),
        ({"thinks": True}, "answered"),
        ({"budget": 150}, "budget"),
        ({"context_tokens": 600}, "context"),
        ({"tokenizer": OtherTokenizer()}, "answered"),
    ],
)
async def test_the_chain_is_the_same_with_and_without(setting: dict[str, Any], ends: str) -> None:
    seen: set[str | None] = set()
    for seed in range(8):
        without = await simulated(seed, **setting)
        ahead = await simulated(seed, **setting, lookahead=True)
        assert text_and_decisions(ahead) == text_and_decisions(without)
        seen |= {step.role for step in ahead.steps} | {ahead.stop_reason}
        seen |= {call.purpose for call in ahead.calls}
        seen |= {"used" for _ in begun_ahead(ahead)}
    assert {"draft", "fallback", "lookahead", "used", ends} <= seen


async def test_a_sample_resumed_after_any_step_ends_as_one_that_never_looked_ahead() -> None:
    for seed in range(4):
        without = await simulated(seed)
        for kept in range(1, len(without.steps)):
            assert text_and_decisions(
                await simulated(seed, without.steps[:kept], lookahead=True)
            ) == text_and_decisions(without)


async def test_the_draft_writes_on_while_the_target_scores() -> None:
    draft, target = Script(["one\n\n", "\\boxed{5}"]), Script(decides=["9", "9"])
    engines = {"draft": draft.engine(seconds_per_call=0.1), "target": target.engine(seconds_per_call=0.02)}
    trace = await solve("specreason", engines, lookahead=True)
    assert target.prompts[0].startswith(trace.target_prompt + "one\n\n")
    assert target.prompts[1].startswith(trace.target_prompt + "one\n\n\\boxed{5}")
    assert [call.purpose for call in trace.calls] == ["draft", "verdict", "draft", "verdict"]
    first, verdict, used, _ = trace.calls
    assert begun_ahead(trace) == [used]
    assert (first.overlapped_seconds, verdict.overlapped_seconds) == (0, 0)
    assert 0 < used.overlapped_seconds < used.end_seconds
    assert used.step == 1
    assert sum(call.end_seconds - call.overlapped_seconds for call in trace.calls) <= trace.latency_seconds
    assert trace.spent_tokens() == trace.critical_path_tokens == 5 + 10 + 2


@pytest.mark.parametrize("failure", [EngineDied("gone"), RequestRefused("no")])
async def test_a_failure_of_what_is_discarded_is_nobodys(failure: EngineDied | RequestRefused) -> None:
    engines = {
        "draft": Script(["wrong\n\n"]).engine(failures={1: failure}),
        "target": Script(["\\boxed{5}"], decides=["0"]).engine(),
    }
    trace = await solve("specreason", engines, lookahead=True)
    assert (trace.stop_reason, trace.output_text) == ("answered", "\\boxed{5}")


async def test_what_stood_behind_a_refused_candidate_is_spent_but_nobody_waited_for_it() -> None:
    draft = Script(["wrong\n\n", "and so\n\n", "\\boxed{5}"])
    target = Script(["right\n\n"], decides=["0", "9"])
    trace = await solve_pair("specreason", draft, target, lookahead=True)
    assert trace.output_text == "right\n\n\\boxed{5}"
    [discarded] = [call for call in trace.calls if call.purpose == "lookahead"]
    assert (discarded.model, discarded.step, discarded.output_tokens) == ("draft", 1, 8)
    assert discarded.overlapped_seconds == discarded.end_seconds
    assert draft.prompts[1].endswith("wrong\n\n")
    assert draft.prompts[2].endswith("right\n\n")
    assert trace.spent_tokens("draft") == 7 + 8 + 10
    assert trace.critical_path_tokens == 7 + 1 + 7 + 10 + 1


@pytest.mark.parametrize(
    ("writes", "budget", "thinks", "stop_reason"),
    [
        (["one\n\n", "\\boxed{5}"], 1000, False, "answered"),
        (["one\n\n", "x</think> \\boxed{5}"], 1000, True, "answered"),
        (["it is 5", "\\boxed{5}"], 1000, True, "answered"),
        (["one\n\n", "two\n\n"], 10, False, "budget"),
        (["same\n\n", "same\n\n"], 1000, False, "repeated"),
    ],
)
async def test_nothing_is_begun_behind_what_ends_the_chain(
    writes: list[str], budget: int, thinks: bool, stop_reason: str
) -> None:
    """Every candidate is taken, so each draft that was begun was used: the script has no further one."""
    draft, target = Script(writes), Script(decides=["9"] * len(writes))
    engines = {"draft": draft.engine(thinks=thinks), "target": target.engine(thinks=thinks, seconds_per_call=0.01)}
    trace = await solve("specreason", engines, budget=budget, lookahead=True)
    assert trace.stop_reason == stop_reason
    assert engines["draft"].requests.count("generate") == len(trace.steps) == len(writes)
    assert len(begun_ahead(trace)) == len(writes) - 1, "each but the first was begun ahead"


@pytest.mark.parametrize("dies", [True, False], ids=["the target dies", "cancelled"])
async def test_a_sample_that_fails_leaves_no_task_behind(dies: bool) -> None:
    draft = Script(["wrong\n\n", "late\n\n"]).engine(seconds_per_call=0.05)
    options: dict[str, Any] = {"failures": {0: EngineDied("gone")}} if dies else {"seconds_per_call": 60}
    target = Script(["\\boxed{5}"], decides=["0"]).engine(**options)
    sample = asyncio.create_task(solve("specreason", {"draft": draft, "target": target}, lookahead=True))
    async with asyncio.timeout(30):
        while not dies and draft.requests.count("generate") < 2:
            await asyncio.sleep(0)
    if not dies:
        sample.cancel()
    with pytest.raises(EngineDied if dies else asyncio.CancelledError):
        await sample
    assert draft.calls.in_flight == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(("score", "threshold", "accepted"), [("7", 7, True), ("6", 7, False), ("9", 3, True)])
async def test_specreason_accepts_at_or_above_the_threshold(score: str, threshold: float, accepted: bool) -> None:
    draft = Script(["\\boxed{5}"])
    target = Script(["\\boxed{6}"], decides=[score])
    trace = await solve_pair("specreason", draft, target, threshold=threshold)
    assert (trace.steps[0].author, trace.steps[0].role) == (("draft", "draft") if accepted else ("target", "fallback"))
    verdict = trace.steps[0].verdict
    assert verdict is not None
    assert (verdict.score, len(verdict.options)) == (float(score), 10)


async def test_specreason_threshold_may_move_with_the_chain() -> None:
    draft = Script(["one\n\n", "two\n\n", "so \\boxed{5}"])
    target = Script(["TWO\n\n"], decides=["5", "5", "9"])
    trace = await solve_pair("specreason", draft, target, threshold=5.0, threshold_slope=2.0)
    assert [step.role for step in trace.steps] == ["draft", "fallback", "draft"]
    assert SpecReason(threshold=5.0, threshold_slope=2.0).threshold_at(9) == 9.0
