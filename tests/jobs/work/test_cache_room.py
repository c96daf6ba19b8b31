"""What a worker reports to admission: each engine's cache as its method uses it, and what a step held in it."""

from __future__ import annotations

from typing import Any

import pytest

from harness.engine import Role
from harness.engines.admission import Cache
from harness.engines.scripted import ScriptedEngine
from harness.methods import build
from harness.methods.method import Method
from harness.trace import Call, Purpose, Step, Trace
from jobs.work.shard_run import caches, step_tokens

BUDGET = 8192
PROMPTS = {"draft": 100, "target": 120}


def call(purpose: Purpose, model: Role, step: int, n: int, prompt: int, output: int) -> Call:
    return Call(purpose, model, step, n, prompt, 0, output, output // n, 0.0, 0.0, 0.0, 0.0, 1)


def trace_of(*calls: Call, steps: int) -> Trace:
    trace = Trace("sample", "problem", 0, 0, calls=list(calls))
    trace.steps = [Step("draft", "draft", "x", 40, (), "stop") for _ in range(steps)]
    return trace


def cached(method: Method, **tokens: int | None) -> dict[str, Cache]:
    """The caches of engines with room for so many tokens."""
    made: dict[Role, ScriptedEngine] = {
        role: ScriptedEngine(lambda _, sampling: [""] * sampling.n, lambda _, o: [1.0] * len(o), kv_tokens=tokens[role])
        for role in ("draft", "target")
        if role in tokens
    }
    return caches(method, made, BUDGET)


def test_every_engine_has_a_cache_with_the_room_that_its_part_of_the_method_needs() -> None:
    five, one = (cached(build("speccot", {"drafts": n}), draft=165_000, target=None) for n in (5, 1))
    assert (five["draft"].capacity_tokens, five["target"].capacity_tokens) == (165_000, None)
    assert five["draft"].step_tokens == 5 * one["draft"].step_tokens > 0
    assert cached(build("vanilla", {}), target=1000)["target"].step_tokens == 0
    together = cached(build("scot", {"drafts": 4}), draft=1000, target=1000)
    assert (together["draft"].width, together["target"].width) == (4, 1)


@pytest.mark.parametrize(
    ("method", "params", "calls", "held"),
    [
        (
            "speccot",
            {},
            [
                call("draft", "draft", 0, 5, 100, 999),  # an earlier step's
                call("draft", "draft", 1, 5, 140, 200),
                call("verdict", "target", 1, 1, 120 + 40 + 260, 1),
                call("fallback", "target", 1, 1, 160, 50),
            ],
            {"draft": 200, "target": 50 + 260},
        ),
        (
            "speccot",
            {"verdict": "separate"},
            [call("draft", "draft", 1, 5, 140, 200), call("verdict", "target", 1, 5, 5 * (120 + 40 + 60), 5)],
            {"draft": 200, "target": 5 * 60},
        ),
    ],
)
def test_a_step_holds_its_candidates_and_the_question_behind_the_chain(
    method: str, params: dict[str, Any], calls: list[Call], held: dict[Role, int]
) -> None:
    assert step_tokens(build(method, params), trace_of(*calls, steps=2), PROMPTS) == held
    calls = [call("draft", "draft", 0, 5, 100, 15_000), call("verdict", "target", 0, 1, 16_120, 1)]
    assert step_tokens(build("scot", {}), trace_of(*calls, steps=1), PROMPTS) == {"target": 1600}, "for a short time"
