"""One rule for contexts: what an engine is opened with, what has to fit, and how a sample ends that is left no room."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine import Role, Sampling
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.methods import METHODS, build
from harness.methods.method import needs, required_context_tokens
from harness.prompts import opening
from harness.trace import StopReason
from tests.harness.scripts import PROBLEM, OtherTokenizer, solve

PROMPT = len(opening(ByteTokenizer(), PROBLEM)[0])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_reserves_what_its_verdicts_hold(name: str) -> None:
    method = build(name, {})
    most = {"speccot": 5 * 512, "specreason": 512, "scot": 5 * 5000, "lookahead": 2 * 100, "rsd": 512}
    most |= {"confspec": 512, "early_exit": 20}
    assert method.verdict_tokens(8192) == most.get(name, 0)
    assert method.verdict_tokens(100) <= 5 * 100, "no candidate is longer than the sample's budget"
    assert required_context_tokens([PROBLEM], 8192, method.verdict_tokens(8192)) > 8192 + most.get(name, 0)


READ = build("scot", {"drafts": 3, "draft_tokens": 250}).texts("target", 500)
LEAST = max(needs(texts, ByteTokenizer(), [PROBLEM])[0] for texts in READ)
"""The least context of a target that reads three drafts of 250 tokens."""


@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), OtherTokenizer()], ids=["shared", "another"])
@pytest.mark.parametrize(
    ("lengths", "draft", "target", "ends"),
    [
        ((249, 248, 247), 2000, LEAST, "answered"),
        ((249, 248, 247), 2000, LEAST - 7, "context"),  # 750 - 744 tokens are free at the least context
        ((9, 8, 7), 2000, PROMPT + 400, "answered"),
        ((249, 248, 247), PROMPT + 250, LEAST, "answered"),
        ((249, 248, 247), PROMPT + 248, LEAST, "context"),  # the first draft is cut before its 250 tokens
        ((90, 80, 70), PROMPT + 248, LEAST, "answered"),  # none was cut
        ((90, 80, 70), PROMPT, LEAST, "context"),
    ],
)
async def test_a_draft_is_as_long_as_asked_or_the_sample_ends_at_the_context(
    lengths: tuple[int, ...], draft: int, target: int, ends: StopReason, tokenizer: ByteTokenizer
) -> None:
    """The draft's chains have these lengths; the target takes the first of them and answers."""

    def write(prompt: str, sampling: Sampling) -> list[str]:
        return ["y" * length for length in lengths][: sampling.n] if sampling.n > 1 else ["x" * 40]

    def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
        return [0.9, *[0.1] * (len(labels) - 1)]

    engines = {
        "draft": ScriptedEngine(write, judge, context_tokens=draft),
        "target": ScriptedEngine(write, judge, tokenizer=tokenizer, context_tokens=target),
    }
    trace = await solve("scot", engines, budget=500, drafts=3, draft_tokens=250)
    assert trace.stop_reason == ends
    assert bool(trace.steps) == (ends == "answered")
    assert bool(trace.calls) == (draft > PROMPT)
    if ends == "answered":
        assert [candidate.num_tokens for candidate in trace.steps[0].candidates] == [n + 1 for n in lengths]


@pytest.mark.parametrize("method", ["vanilla", "specreason", "speccot", "spec_thinking"])
@pytest.mark.parametrize(
    ("room", "budget", "ends", "emitted"), [(0, 100, "context", 0), (30, 100, "context", 30), (100, 30, "budget", 30)]
)
async def test_text_is_as_long_as_budget_and_context_allow(
    method: str, room: int, budget: int, ends: StopReason, emitted: int
) -> None:
    """Every model writes on for ever; the target judges in a context of its own that is long enough."""

    def write(prompt: str, sampling: Sampling) -> list[str]:
        return [f"{len(prompt)} is next, " * 20] * sampling.n

    def judge(prompt: str, labels: tuple[str, ...]) -> list[float]:
        accepted = "9" if "0" in labels else "1"
        return [0.9 if label == accepted else 0.01 for label in labels]

    engines: dict[Role, ScriptedEngine] = {
        "draft": ScriptedEngine(write, judge, context_tokens=PROMPT + room),
        "target": ScriptedEngine(write, judge, context_tokens=PROMPT + room if method == "vanilla" else 9000),
    }
    params: dict[str, Any] = {"guidance_tokens": 0} if method == "speccot" else {}
    trace = await solve(method, engines, budget=budget, **params)
    assert (trace.stop_reason, trace.emitted_tokens) == (ends, emitted)
    assert bool(trace.calls) == bool(room)
