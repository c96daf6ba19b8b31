"""The section verdict: the cost of a verdict in decode steps of the target under the same load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from statistics import median

from harness import prompts
from harness.engine import Sampling
from tools.bench.drive import BareEngine
from tools.bench.setting import Bench, say
from tools.bench.table import Table

GOAL = 2.0
_CHAIN_TOKENS = 64
_CANDIDATE_TOKENS = 40
_CANDIDATES = 5
_DECODED = 12
"""Tokens over which a decode step is averaged."""
_REPEATS = 3


@dataclass
class _Target:
    """The target with chains whose prefixes it has cached."""

    engine: BareEngine
    chains: list[list[int]]
    texts: list[list[int]]
    """Tokens of the problems; candidates are cut from them."""
    drawn: int = 0

    def candidate(self, chain: int) -> list[int]:
        """Return 40 tokens with a unique prefix, so none of them is cached."""
        self.drawn += 1
        text = self.engine.tokenizer.encode(f"{self.drawn}. ") + self.texts[chain]
        return (text * (_CANDIDATE_TOKENS // len(text) + 1))[:_CANDIDATE_TOKENS]

    async def score(self, chain: int) -> float:
        """Time SpecReason's verdict, in seconds."""
        question = prompts.score_question(self.engine.tokenizer)
        prompt = [*self.chains[chain], *self.candidate(chain), *question.ids]
        return await _seconds(self.engine.choose(prompt, question.option_ids))

    async def choice(self, chain: int) -> float:
        """Time SpecCoT's verdict among five candidates, in seconds."""
        tokenizer = self.engine.tokenizer
        texts = [tokenizer.decode(self.candidate(chain)) for _ in range(_CANDIDATES)]
        question = prompts.step_choice_question(tokenizer, texts)
        return await _seconds(self.engine.choose([*self.chains[chain], *question.ids], question.option_ids))

    async def decode(self, width: int, tokens: int) -> float:
        """Time `width` parallel continuations of exactly `tokens` tokens, in seconds."""
        sampling = Sampling(max_tokens=tokens)
        return await _seconds(asyncio.gather(*(self.engine.generate_bare(c, sampling) for c in self.chains[:width])))

    async def step(self, width: int) -> float:
        """Return the seconds of one decode step with `width` sequences."""
        steps = [
            (await self.decode(width, 1 + _DECODED) - await self.decode(width, 1)) / _DECODED for _ in range(_REPEATS)
        ]
        return max(median(steps), 1e-6)


async def measure(bench: Bench, width: int = 16) -> list[Table]:
    """Return a table of the median seconds of a single verdict, of a full batch of verdicts, and of one verdict among
    decoding sequences.
    """
    if bench.late("verdict"):
        return []
    target = await _prepared(bench, width)
    table = Table(
        f"Verdict call on the target (chain cached, candidates of {_CANDIDATE_TOKENS} tokens)",
        ["verdict", "load", "median s", "decode step s", "decode steps", "decode steps per verdict of the batch"],
        notes=[
            f"Goal: at most {GOAL:.0f} decode steps. A decode step generates one token of each sequence at the same "
            "load. Last column: the batch's wall time divided by its number of verdicts, which is the cost of a "
            "verdict on a full engine."
        ],
    )
    steps = {1: await target.step(1), width: await target.step(width)}
    for name, ask in (("score", target.score), (f"choice of {_CANDIDATES}", target.choice)):
        await ask(0)
        alone = [await ask(0) for _ in range(_REPEATS + 2)]
        table.rows.append([name, "1", median(alone), steps[1], median(alone) / steps[1], median(alone) / steps[1]])
        calls: list[float] = []
        walls: list[float] = []
        for _ in range(_REPEATS - 1):
            begun = time.monotonic()
            calls += await asyncio.gather(*(ask(i) for i in range(width)))
            walls.append((time.monotonic() - begun) / width)
        at_once = median(calls)
        each = median(walls) / steps[width]
        table.rows.append([name, f"{width} verdicts at once", at_once, steps[width], at_once / steps[width], each])
        if name == "score":
            among = await _among_decoding(target, width, steps[width])
            load = f"1 among {width - 1} decoding"
            table.rows.append([name, load, among, steps[width], among / steps[width], among / steps[width]])
        say(f"verdict, {name}: {median(alone) / steps[1]:.2f} steps alone, {at_once / steps[width]:.2f} at {width}")
    return [table]


async def _among_decoding(target: _Target, width: int, step: float) -> float:
    decoding = asyncio.gather(
        *(target.engine.generate_bare(c, Sampling(max_tokens=4 * _DECODED)) for c in target.chains[1:width])
    )
    try:
        await asyncio.sleep(3 * step)
        times = [await target.score(0)]
        while len(times) < _REPEATS + 2 and not decoding.done():
            times.append(await target.score(0))
        return median(times)
    finally:
        await decoding


async def _prepared(bench: Bench, width: int) -> _Target:
    engine = bench.engines["target"]
    problems = bench.wave(width)
    openings = [prompts.opening(engine.tokenizer, problem)[0] for problem in problems]
    texts = [engine.tokenizer.encode(prompts.problem_text(problem)) for problem in problems]
    chains = []
    for i, (opening, text) in enumerate(zip(openings, texts, strict=True)):
        start = i % len(text)  # samples of one problem differ
        chains.append(opening + (text[start:] + text * (_CHAIN_TOKENS // len(text) + 1))[:_CHAIN_TOKENS])
    target = _Target(engine, chains, texts)
    await target.decode(width, 1)
    return target


async def _seconds(work: Awaitable[object]) -> float:
    begun = time.monotonic()
    await work
    return time.monotonic() - begun
