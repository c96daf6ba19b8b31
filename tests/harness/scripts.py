"""Scripts for scripted engines: replies in turn, verdicts in turn, and what was asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.chain import Limits
from harness.engine import Sampling
from harness.engines.scripted import ByteTokenizer, ScriptedEngine
from harness.methods import METHODS
from harness.problems.problem import Problem
from harness.sample import run_sample
from harness.trace import Trace

PROBLEM = Problem("demo/0", "demo", "What is 2 + 3?", "5")


class OtherTokenizer(ByteTokenizer):
    """A vocabulary in which every byte has another id."""

    @property
    def fingerprint(self) -> str:
        return "other"

    def encode(self, text: str) -> list[int]:
        return [i ^ 1 if i < 256 else i for i in super().encode(text)]

    def encode_template(self, text: str) -> list[int]:
        return [i ^ 1 if i < 256 else i for i in super().encode_template(text)]

    def decode(self, ids: Sequence[int]) -> str:
        return super().decode([i ^ 1 if i < 256 else i for i in ids])


@dataclass
class Script:
    """Writes the given texts in turn (a list for parallel drafts) and decides for the given labels in turn."""

    writes: Sequence[str | list[str]] = ()
    decides: Sequence[str] = ()
    prompts: list[str] = field(default_factory=list)
    """Every prompt seen, as text."""
    samplings: list[Sampling] = field(default_factory=list)
    _written: int = 0
    _decided: int = 0

    def write(self, prompt: str, sampling: Sampling) -> list[str]:
        """The next reply, repeated where one text stands for all of n."""
        self.prompts.append(prompt)
        self.samplings.append(sampling)
        texts = self.writes[self._written]
        self._written += 1
        return texts if isinstance(texts, list) else [texts] * sampling.n

    def judge(self, prompt: str, labels: tuple[str, ...]) -> list[float]:
        """Nearly all probability on the next decided label."""
        self.prompts.append(prompt)
        decision = self.decides[self._decided]
        self._decided += 1
        assert decision in labels, f"{decision} is not among {labels}"
        rest = 0.1 / max(1, len(labels) - 1)
        return [0.9 if label == decision else rest for label in labels]

    def engine(self, *, thinks: bool = False, **options: Any) -> ScriptedEngine:
        options.setdefault("tokenizer", ByteTokenizer(thinks=thinks))
        return ScriptedEngine(self.write, self.judge, **options)


def new_trace() -> Trace:
    return Trace("s0", PROBLEM.id, 0, seed=7)


async def solve(
    method: str,
    engines: Mapping[Any, ScriptedEngine],
    *,
    budget: int = 10_000,
    trace: Trace | None = None,
    on_step: Any = lambda step: None,
    **params: Any,
) -> Trace:
    return await run_sample(
        PROBLEM, METHODS[method](**params), engines, trace or new_trace(), Limits(0.6, 0.95, budget), on_step
    )


async def solve_pair(method: str, draft: Script, target: Script, *, thinks: bool = False, **params: Any) -> Trace:
    """Run one sample of PROBLEM with a draft and a target that follow these scripts."""
    engines = {"draft": draft.engine(thinks=thinks), "target": target.engine(thinks=thinks)}
    return await solve(method, engines, **params)
