"""Every method that was killed after any of its steps goes on to the same trace, and its calls add up."""

from __future__ import annotations

import hashlib
import random
from dataclasses import asdict
from typing import Any

import pytest

from harness.chain import Limits
from harness.engine import Sampling
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.methods import build
from harness.sample import run_sample
from harness.trace import Step, Trace
from tests.harness.scripts import PROBLEM, OtherTokenizer, new_trace

_WORDS = ("wait ", "check ", "yes ", "so ", "add 2 ", "ñé ", "another ", "the final answer ", "\n", "x = 3, ")


class _Killed(BaseException):
    """What ends a worker at once."""


def _uniform(*parts: object) -> float:
    text = "\0".join(map(str, parts)).encode("utf-8", "replace")
    return int(hashlib.sha256(text).hexdigest()[:8], 16) / 2**32


class Babbler:
    """A model that writes words of all methods' keywords; it often writes the same as the other models."""

    def __init__(self, name: str, *, thinks: bool) -> None:
        self._name, self._thinks = name, thinks

    def write(self, prompt: str, sampling: Sampling) -> list[str]:
        """Texts that depend on prompt and seed only."""
        return [self._text(prompt, sampling.seed + i) for i in range(sampling.n)]

    def _text(self, prompt: str, seed: int) -> str:
        if prompt.endswith("\\boxed{"):
            return "5}" if _uniform(prompt, seed, "trial") < 0.6 else "wait"
        key = (self._name if _uniform(prompt, "own") < 0.4 else "", prompt, seed)
        reply = prompt.partition("\nAssistant: ")[2]
        if "</think>" in reply or (not self._thinks and _uniform(*key, "answers") < 0.1):
            return "It is \\boxed{5}." if _uniform(*key, "boxed") < 0.7 else "So it is five.\n\nYes"
        if self._thinks and _uniform(*key, "closes") < 0.1:
            return "done</think>\n\n" if _uniform(*key, "at once") < 0.7 else "ok </think> It is \\boxed{4}.\n\nmore"
        paragraphs = []
        for i in range(1 + int(_uniform(*key, "paragraphs") * 4)):
            num_words = 1 + int(_uniform(*key, i) * 10)
            words = (_WORDS[int(_uniform(*key, i, j) * len(_WORDS))] for j in range(num_words))
            paragraphs.append("".join(words).strip(" "))
        return "\n\n".join(paragraphs) + "\n\n"


def _engines(roles: tuple[str, ...], *, thinks: bool, others: tuple[str, ...]) -> dict[Any, ScriptedEngine]:
    return {
        role: ScriptedEngine(
            Babbler(role, thinks=thinks).write,
            lambda prompt, labels: [_uniform(prompt, label) for label in labels],
            tokenizer=(OtherTokenizer if role in others else ByteTokenizer)(thinks=thinks),
            weigh=lambda before, token: (-4 * _uniform(before, token) ** 3, 2 * _uniform(before)),
        )
        for role in roles
    }


def _content(step: Step) -> dict[str, Any]:
    return {name: value for name, value in asdict(step).items() if name != "elapsed_seconds"}


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("speccot", {"drafts": 2, "guidance_tokens": 4, "step_tokens": 40}),
        ("speccot", {"drafts": 3, "verdict": "separate"}),
        ("specreason", {"first_steps": 1, "step_tokens": 40}),
        ("scot", {"drafts": 2, "error_correction": False}),
        ("rsd", {"step_tokens": 40}),
        ("rsd", {"weighting": "clipping"}),
        ("lookahead", {"gamma": 3}),
        ("lookahead", {"gamma": 2, "step_tokens": 20, "judge": "reward"}),
        ("lookahead", {"verifier": "similarity", "threshold": 0.9}),
        ("spec_thinking", {"c": 1, "n1": 9, "n2": 11, "n3": 13, "step_tokens": 40, "begin_tokens": 7}),
        ("spec_thinking", {"takeover": "always", "n1": 6}),
        ("glimprouter", {"tau": 0.9, "first_steps": 2, "step_tokens": 25}),
        ("specguard", {"k": 3, "tau": 0.2, "step_tokens": 40}),
        ("confspec", {"confidence": 0.5, "threshold": 5.0, "step_tokens": 40}),
        ("early_exit", {"window": 2, "interval": 20}),
        ("early_exit", {"criterion": "confidence", "transition": "wait", "certainty": 0.5, "writer": "draft"}),
    ],
)
async def test_a_killed_sample_goes_on_as_if_undisturbed(method: str, params: dict[str, Any]) -> None:
    instance, dice, num_kills = build(method, params), random.Random(22), 0

    async def run(trace: Trace, setting: dict[str, Any], budget: int, survives: int) -> dict[Any, ScriptedEngine]:
        engines, num_before = _engines(instance.roles, **setting), len(trace.steps)

        def on_step(step: Step) -> None:
            if len(trace.steps) - num_before >= survives:
                raise _Killed

        await run_sample(PROBLEM, instance, engines, trace, Limits(0.6, 0.95, budget), on_step)
        return engines

    for seed in range(8):
        setting = {"thinks": dice.random() < 0.5, "others": dice.choice([(), ("target",), ("draft",)])}
        budget = dice.choice([80, 300, 1500])
        whole, parts = new_trace(), new_trace()
        whole.seed = parts.seed = seed
        engines = await run(whole, setting, budget, 10**6)
        assert whole.emitted_tokens <= budget
        for role, engine in engines.items():
            assert whole.spent_tokens(role) == engine.output_tokens
        while parts.stop_reason is None:
            try:
                await run(parts, setting, budget, dice.randint(1, 3))
            except _Killed:
                num_kills += 1
        assert [_content(step) for step in parts.steps] == [_content(step) for step in whole.steps]
        assert parts.stop_reason == whole.stop_reason
    assert num_kills > 3
