"""Checks that token-level speculation changes no text: equal at temperature 0, equally distributed at 0.6."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from random import Random
from statistics import fmean, stdev

from harness import prompts
from harness.acceptance.outcome import CheckFailed, Goal, Measurement
from harness.acceptance.session import Session
from harness.engine import Engine, Sampling

_TEMPERATURE = 0.6
_DRAWS = (1_000, 500_000)
"""First seeds of two independent draws: one in 20 draws of a sound engine is beyond two standard errors, and then the
second one decides."""
_GOAL_ERRORS = Goal("<=", 2.0)


@dataclass(frozen=True)
class Plain:
    """What the target writes without speculation."""

    greedy: list[tuple[int, ...]]
    """Token ids at temperature 0, by prompt."""
    logprobs: list[list[float]]
    """Mean log-probability (nats) at temperature 0.6, by draw and prompt; empty on a CPU."""


async def check_lossless(session: Session, proposer: str) -> list[Measurement]:
    """Write greedily with and without speculation."""
    before = await _plain(session)
    engine = (await session.engines(proposer))["target"]
    sizes = session.plan.sizes
    return await lossless(engine, _openings(session, engine), before.greedy, sizes.lossless_tokens)


async def lossless(
    engine: Engine, openings: Sequence[Sequence[int]], before: Sequence[tuple[int, ...]], tokens: int
) -> list[Measurement]:
    """Return how many greedy completions differ from those before.

    Where vLLM counts proposed tokens, some must have been confirmed and some rejected, or nothing was tested.
    """
    replies = await asyncio.gather(*(engine.generate(opening, Sampling(tokens)) for opening in openings))
    completions = [reply.completions[0] for reply in replies]
    changed = sum(c.token_ids != ids for c, ids in zip(completions, before, strict=True))
    proposed = [c.proposed_tokens for c in completions if c.proposed_tokens is not None]
    confirmed = [c.confirmed_tokens for c in completions if c.confirmed_tokens is not None]
    rejected = sum(proposed) - sum(confirmed)
    return [
        Measurement("changed", changed, f"of {len(completions)}", Goal("=", 0)),
        Measurement("tokens", sum(c.num_tokens for c in completions)),
        Measurement("confirmed", sum(confirmed) if proposed else None, goal=Goal(">=", 1) if proposed else None),
        Measurement("rejected", rejected if proposed else None, goal=Goal(">=", 1) if proposed else None),
    ]


async def check_unbiased(session: Session) -> list[Measurement]:
    """Compare the mean log-probability of sampled completions with and without speculation."""
    before = await _plain(session)
    engine = (await session.engines("draft"))["target"]
    openings, sizes = _openings(session, engine), session.plan.sizes
    for number, seed in enumerate(_DRAWS):
        now = await _mean_logprobs(engine, openings, sizes.lossless_tokens, sizes.unbiased_samples, seed)
        measurements = difference(now, before.logprobs[number])
        if all(measurement.is_met is not False for measurement in measurements):
            break
    return [*measurements, Measurement("draws", number + 1)]


def difference(now: Sequence[float], before: Sequence[float]) -> list[Measurement]:
    """Return the mean difference (nats per token), paired by prompt, and how many standard errors that is."""
    differences = [a - b for a, b in zip(now, before, strict=True)]
    error = stdev(differences) / sqrt(len(differences))
    mean = fmean(differences)
    return [
        Measurement("difference", mean, "nats per token"),
        Measurement("standard errors", abs(mean) / error if error else None, goal=_GOAL_ERRORS),
    ]


async def _plain(session: Session) -> Plain:
    """Return what the target writes without speculation; written once."""
    if "plain" not in session.found:
        engine = (await session.engines(session.plain))["target"]
        openings, sizes = _openings(session, engine), session.plan.sizes
        replies = await asyncio.gather(
            *(engine.generate(opening, Sampling(sizes.lossless_tokens)) for opening in openings)
        )
        draws = _DRAWS if session.plan.device == "gpu" else ()
        logprobs = [
            await _mean_logprobs(engine, openings, sizes.lossless_tokens, sizes.unbiased_samples, seed)
            for seed in draws
        ]
        session.found["plain"] = Plain([reply.completions[0].token_ids for reply in replies], logprobs)
    plain: Plain = session.found["plain"]
    return plain


async def _mean_logprobs(
    engine: Engine, openings: Sequence[Sequence[int]], tokens: int, samples: int, seed: int
) -> list[float]:
    samplings = [
        Sampling(tokens, temperature=_TEMPERATURE, seed=seed + samples * number, n=samples)
        for number in range(len(openings))
    ]
    replies = await asyncio.gather(*(engine.generate(o, s) for o, s in zip(openings, samplings, strict=True)))
    means = [[c.mean_logprob for c in reply.completions if c.mean_logprob is not None] for reply in replies]
    if not all(means):
        raise CheckFailed("the engine gives no log-probabilities for completions")
    return [fmean(of_prompt) for of_prompt in means]


def _openings(session: Session, engine: Engine) -> list[list[int]]:
    """Return prompts, of which every other one has its words in disorder.

    On the bundled problems the bundled draft writes at first what the target would, so that nothing would be rejected.
    """
    openings, random = [], Random(0)
    for number, problem in enumerate(session.problems[: session.plan.sizes.lossless_prompts]):
        words = problem.text.split()
        random.shuffle(words)
        ids, _ = prompts.opening(engine.tokenizer, problem)
        openings.append(engine.tokenizer.encode(" ".join(words)) if number % 2 else ids)
    return openings
