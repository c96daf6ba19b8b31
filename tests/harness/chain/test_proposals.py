"""Proposals behind proposals: what a chain would send if it held them, and what is recorded of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from harness.chain import Chain, Limits, as_candidates
from harness.engine import Completion
from harness.engines.scripted import ScriptedEngine
from harness.methods.method import Method
from harness.recording import Model
from harness.sample import run_sample
from harness.trace import Decision, StepRole, Trace
from tests.harness.scripts import PROBLEM, OtherTokenizer, Script, new_trace

Loop = Callable[[Chain, Model, Model], Awaitable[None]]


@dataclass(frozen=True)
class Looped(Method):
    """A method whose loop is a function."""

    loop: Loop

    async def __call__(self, chain: Chain, draft: Model, target: Model) -> None:
        await self.loop(chain, draft, target)


async def run(loop: Loop, draft: ScriptedEngine, target: ScriptedEngine, budget: int = 1000) -> Trace:
    return await run_sample(
        PROBLEM, Looped(loop), {"draft": draft, "target": target}, new_trace(), Limits(0.6, 1.0, budget)
    )


@pytest.mark.parametrize("tokenizer", [None, OtherTokenizer()])
@pytest.mark.parametrize("thinks", [False, True])
async def test_behind_proposals_is_asked_what_would_be_asked_if_the_chain_held_them(
    tokenizer: OtherTokenizer | None, thinks: bool
) -> None:
    """A thought that falls silent is closed, whether the chain holds it or not."""
    asked: list[list[Any]] = []
    for ahead in (False, True):
        draft = Script(["one\n\n", "two", "\\boxed{5}"])
        target = Script(["x\n\n", "y\n\n"])

        async def loop(chain: Chain, first: Model, second: Model, ahead: bool = ahead) -> None:
            behind: list[tuple[Model, Completion]] = []
            for _ in range(2):
                [step] = await chain.propose(first, 1, max_tokens=50, behind=behind)
                if ahead:
                    behind.append((first, step))
                else:
                    chain.accept(first, "draft", step)
            await chain.propose(second, 1, max_tokens=50, purpose="fallback", behind=behind)

        options: dict[str, Any] = {"thinks": thinks} | ({"tokenizer": tokenizer} if tokenizer else {})
        trace = await run(loop, draft.engine(**options), target.engine(thinks=thinks))
        asked.append([draft.prompts, draft.samplings, target.prompts, target.samplings])
        assert [call.step for call in trace.calls] == [0, 1, 2]
        assert trace.emitted_tokens == (0 if ahead else 5 + 4)
    assert asked[0] == asked[1]


@pytest.mark.parametrize(
    ("texts", "thinks", "may"),
    [
        (["one\n\n", "two\n\n"], False, True),
        (["one\n\n", "one\n\n"], False, False),
        (["one\n\n", "\\boxed{5}\n\n"], False, False),
        (["\\boxed{5}\n\n", "two\n\n"], True, True),
        (["one</think>\n\n", "\\boxed{5}\n\n"], True, False),
        (["one</think>\n\n", "one\n\n"], True, True),
        (["one", "five"], True, False),
    ],
)
async def test_nothing_follows_an_answer_or_a_repeated_step(texts: list[str], thinks: bool, may: bool) -> None:
    draft = Script(texts)

    async def loop(chain: Chain, first: Model, second: Model) -> None:
        behind: list[tuple[Model, Completion]] = []
        for _ in texts:
            behind += [(first, (await chain.propose(first, 1, max_tokens=50, behind=behind))[0])]
        assert chain.may_continue(behind) is may

    assert (await run(loop, draft.engine(thinks=thinks), Script().engine(thinks=thinks))).stop_reason == "answered"


async def test_a_proposal_that_its_limit_cut_is_continued_as_one_step() -> None:
    draft = Script(["1+1 and", " two\n\n", "x"])

    async def loop(chain: Chain, first: Model, second: Model) -> None:
        [begun] = await chain.propose(first, 1, max_tokens=3)
        whole = await chain.continued(first, begun, max_tokens=20, purpose="draft")
        assert (whole.text, whole.num_tokens, whole.finish) == ("1+1 two\n\n", 9, "stop")
        assert whole.token_ids == tuple(b"1+1 two\n\n")
        assert await chain.continued(first, whole, max_tokens=20, purpose="draft") is whole

    trace = await run(loop, draft.engine(), Script().engine())
    assert [(c.step, c.output_tokens) for c in trace.calls] == [(0, 3), (0, 6)]


@pytest.mark.parametrize(("role", "stops"), [("fallback", True), ("own", True), ("rethink", False), ("chain", False)])
async def test_what_ends_the_chain_is_written_to_its_end(role: StepRole, stops: bool) -> None:
    target = Script(["\\boxed{5}"])

    async def loop(chain: Chain, first: Model, second: Model) -> None:
        await chain.write(second, role, max_tokens=50)

    await run(loop, Script().engine(), target.engine())
    assert bool(target.samplings[0].stop) is stops


async def test_a_completion_is_no_record_of_a_candidate() -> None:
    async def loop(chain: Chain, first: Model, second: Model) -> None:
        [step] = await chain.propose(first, 1, max_tokens=50)
        with pytest.raises(TypeError, match="as_candidates"):
            chain.accept(first, "draft", step, [step])  # type: ignore[list-item]
        assert not chain.steps

    await run(loop, Script(["one\n\n"]).engine(), Script().engine())


async def test_a_decision_by_a_verdict_needs_a_verdict_of_its_kind() -> None:
    async def loop(chain: Chain, first: Model, second: Model) -> None:
        [step] = await chain.propose(first, 1, max_tokens=50)
        candidates, decision = as_candidates([step]), Decision("score", 7.0, 5.0, accepted=True)
        with pytest.raises(ValueError, match="needs a verdict"):
            chain.accept(first, "draft", step, candidates, decision=decision)
        chain.accept(first, "draft", step, candidates, await chain.score(second, step, first), decision=decision)

    trace = await run(loop, Script(["one\n\n"]).engine(), Script(decides=["7"]).engine())
    assert trace.steps[0].decision == Decision("score", 7.0, 5.0, accepted=True)
