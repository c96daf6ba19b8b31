"""The scripted engine follows the Engine protocol, and simulated models answer under every method."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness.chain import Limits
from harness.engine import Role, Sampling
from harness.engines.scripted import ByteTokenizer, ScriptedEngine, SimulatedModel
from harness.methods import METHODS, build
from harness.problems.problem import Problem
from harness.prompts import reward_question
from harness.sample import run_sample
from harness.trace import Trace


def _engine(reply: str = "One.\n\nTwo.", **options: Any) -> ScriptedEngine:
    return ScriptedEngine(
        lambda prompt, sampling: [reply] * sampling.n,
        lambda prompt, labels: [0.5] + [0.25] * (len(labels) - 1),
        **options,
    )


@pytest.mark.parametrize(
    ("stop", "max_tokens", "text", "finish", "num_tokens"),
    [
        ((), 100, "One.\n\nTwo.", "eos", 11),
        (("\n\n",), 100, "One.\n\n", "stop", 6),
        (("Two", "ne"), 100, "One", "stop", 3),
        (("\n\n",), 4, "One.", "length", 4),
    ],
)
async def test_a_completion_ends_at_stop_string_limit_or_end(
    stop: tuple[str, ...], max_tokens: int, text: str, finish: str, num_tokens: int
) -> None:
    reply = await _engine().generate([1, 2], Sampling(max_tokens, stop=stop))
    [completion] = reply.completions
    assert (completion.text, completion.finish, completion.num_tokens) == (text, finish, num_tokens)
    assert ByteTokenizer().decode(completion.token_ids) == text


async def test_what_was_asked_about_the_tokens_is_given_for_each_one_the_last_included() -> None:
    engine = _engine("ab", weigh=lambda before, token: (-float(len(before)), float(token == "b")))
    [plain] = (await engine.generate(list(b"xyz"), Sampling(9))).completions
    assert (plain.token_logprobs, plain.entropies) == (None, None)
    [told] = (await engine.generate(list(b"xyz"), Sampling(9, token_logprobs=True, entropies=True))).completions
    assert (told.token_logprobs, told.entropies) == ((-3.0, -4.0, -5.0), (0.0, 1.0, 0.0))
    assert told.num_tokens == 3


async def test_a_growing_prefix_is_cached() -> None:
    engine, prompt = _engine(), list(range(100))
    assert (await engine.generate(prompt, Sampling(4))).cached_tokens == 0
    assert (await engine.generate([*prompt, *range(60)], Sampling(4))).cached_tokens == 96
    assert (await engine.generate([9, *prompt], Sampling(4))).cached_tokens == 0


def _engines(thinks: bool) -> dict[Role, ScriptedEngine]:
    skills: dict[Role, float] = {"draft": 0.6, "target": 0.95, "reward": 0.95}
    models = {role: SimulatedModel(skill, thinks) for role, skill in skills.items()}
    return {r: ScriptedEngine(m.write, m.judge, ByteTokenizer(thinks=thinks)) for r, m in models.items()}


async def _sample(method: str, index: int, thinks: bool) -> Trace:
    problem = Problem(id=f"p{index}", dataset="d", text=f"What is {index} + 8?", answer=str(index + 8))
    trace = Trace(f"s{index}", problem.id, 0, seed=index)
    return await run_sample(problem, build(method, {}), _engines(thinks), trace, Limits(0.6, 1.0, 4000))


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("method", sorted(METHODS))
async def test_simulated_samples_end_with_an_answer(method: str, thinks: bool) -> None:
    traces = await asyncio.gather(*(_sample(method, i, thinks) for i in range(12)))
    assert {trace.stop_reason for trace in traces} == {"answered"}
    assert all("\\boxed{" in trace.output_text for trace in traces)
    right = sum(f"\\boxed{{{i + 8}}}" in trace.output_text for i, trace in enumerate(traces))
    assert right >= 4


def test_the_simulated_reward_model_tells_a_wrong_last_step_from_a_right_one() -> None:
    tokenizer, model = ByteTokenizer(), SimulatedModel(skill=1.0)
    question = tokenizer.decode(reward_question(tokenizer).ids)
    chain = tokenizer.open_reply("1 + 1?") + "Roughly nothing.\n\nThis, roughly added, gives 3.\n\n"
    wrong, right = model.judge(chain + question, ("+", "-")), model.judge(chain + "So 2.\n\n" + question, ("+", "-"))
    assert wrong[0] < 0.5 < right[0]
