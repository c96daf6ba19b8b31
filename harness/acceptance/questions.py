"""Verdicts to ask for: the four kinds of question, behind chains that a model wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from harness import prompts
from harness.acceptance.session import CANDIDATES
from harness.engine import Engine, Sampling
from harness.problems.problem import Problem

_STEP_TOKENS = 48


@dataclass(frozen=True)
class Asked:
    """One verdict in token ids."""

    kind: str
    prompt: tuple[int, ...]
    options: tuple[int, ...]


async def questions(writer: Engine, problems: Sequence[Problem]) -> list[Asked]:
    """Return four verdicts for each problem on steps by `writer`: score, separate score, choice of steps, of chains."""
    sampling = Sampling(_STEP_TOKENS, temperature=0.6, stop=(prompts.STEP_END,), seed=1, n=CANDIDATES)
    openings = [prompts.opening(writer.tokenizer, problem)[0] for problem in problems]
    replies = await asyncio.gather(*(writer.generate(opening, sampling) for opening in openings))
    asked = []
    for problem, opening, reply in zip(problems, openings, replies, strict=True):
        tokenizer, texts = writer.tokenizer, [completion.text for completion in reply.completions]
        chain = [*opening, *reply.completions[0].token_ids]
        for kind, context, question in (
            ("score", chain, prompts.score_question(tokenizer)),
            ("separate score", chain, prompts.short_score_question(tokenizer)),
            ("choice", opening, prompts.step_choice_question(tokenizer, texts)),
            ("choice of chains", [], prompts.chain_choice_question(tokenizer, problem, texts, may_reject=True)),
        ):
            asked.append(Asked(kind, (*context, *question.ids), question.option_ids))
    return asked
