"""What a worker reports to admission: each engine's cache as its method uses it, and what a step held in it."""

from __future__ import annotations

from harness.engine import Role
from harness.engines.scripted import ScriptedEngine
from harness.methods import build
from harness.trace import Call, Purpose, Step, Trace
from jobs.work.shard_run import caches, step_tokens

BUDGET = 8192
PROMPTS = {"draft": 100, "target": 120}


def engines(**tokens: int | None) -> dict[Role, ScriptedEngine]:
    return {role: _engine(tokens[role]) for role in ("draft", "target") if role in tokens}


def _engine(kv_tokens: int | None) -> ScriptedEngine:
    return ScriptedEngine(
        lambda _, sampling: [""] * sampling.n, lambda _, options: [1.0] * len(options), kv_tokens=kv_tokens
    )


def call(purpose: Purpose, model: Role, step: int, n: int, prompt: int, output: int) -> Call:
    return Call(purpose, model, step, n, prompt, 0, output, output // n, 0.0, 0.0, 0.0, 0.0, 1)


def trace_of(*calls: Call, steps: int) -> Trace:
    trace = Trace("sample", "problem", 0, 0, calls=list(calls))
    trace.steps = [Step("draft", "draft", "x", 40, (), "stop") for _ in range(steps)]
    return trace


def test_every_engine_has_its_own_cache_and_one_without_a_limit_has_none() -> None:
    method = build("speccot", {})
    found = caches(method, engines(draft=165_000, target=None), BUDGET)
    assert (found["draft"].capacity_tokens, found["target"].capacity_tokens) == (165_000, None)


def test_five_candidates_need_five_times_the_room_of_one_step_and_a_model_alone_needs_none() -> None:
    both = engines(draft=1000, target=1000)
    five, one = (caches(build("speccot", {"drafts": n}), both, BUDGET) for n in (5, 1))
    assert five["draft"].step_tokens == 5 * one["draft"].step_tokens > 0
    assert caches(build("vanilla", {}), engines(target=1000), BUDGET)["target"].step_tokens == 0


def test_scot_drafts_grow_together_in_the_drafts_cache_only() -> None:
    found = caches(build("scot", {"drafts": 4}), engines(draft=1000, target=1000), BUDGET)
    assert (found["draft"].width, found["target"].width) == (4, 1)


def test_a_reward_models_question_is_held_in_its_own_cache() -> None:
    calls = [call("draft", "draft", 0, 1, 100, 40), call("verdict", "reward", 0, 1, 110 + 40 + 30, 1)]
    held = step_tokens(build("specreason", {}), trace_of(*calls, steps=1), {**PROMPTS, "reward": 110})
    assert held == {"draft": 40, "target": 0, "reward": 70}


def test_a_step_holds_its_candidates_and_the_question_behind_the_chain() -> None:
    calls = [
        call("draft", "draft", 0, 5, 100, 999),  # an earlier step's
        call("draft", "draft", 1, 5, 140, 200),
        call("verdict", "target", 1, 1, 120 + 40 + 260, 1),
        call("fallback", "target", 1, 1, 160, 50),
    ]
    held = step_tokens(build("speccot", {}), trace_of(*calls, steps=2), PROMPTS)
    assert held == {"draft": 200, "target": 50 + 260}


def test_separate_verdicts_share_the_chain() -> None:
    calls = [call("draft", "draft", 1, 5, 140, 200), call("verdict", "target", 1, 5, 5 * (120 + 40 + 60), 5)]
    method = build("speccot", {"verdict": "separate"})
    assert step_tokens(method, trace_of(*calls, steps=2), PROMPTS) == {"draft": 200, "target": 5 * 60}


def test_the_question_about_whole_chains_counts_for_the_short_time_that_it_takes() -> None:
    calls = [call("draft", "draft", 0, 5, 100, 15_000), call("verdict", "target", 0, 1, 16_120, 1)]
    held = step_tokens(build("scot", {}), trace_of(*calls, steps=1), PROMPTS)
    assert held == {"target": 1600}
