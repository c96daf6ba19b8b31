"""How many tokens a sample of each problem is likely to spend: what shards are balanced by, before anything has run.

Only ratios matter. A wrong guess costs time and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.problem import Problem

_LEVEL_STEP = 0.6
"""Per level above the first: the written solutions of MATH's 5,000 test problems have 226, 325, 440, 535 and 804
characters on average at levels 1 to 5, that is 1, 1.4, 1.9, 2.4 and 3.6 times as many as at level 1."""
_LENGTH_EXPONENT = 0.4
"""Of the problem's length in characters: 0.4 for the written solutions of MATH and for the samples recorded of two
models on GSM8K, 0.65 for the written solutions of GSM8K, 0.36 for those of OlympiadBench."""
_PRIOR_SAMPLES = 1.0
"""Recorded samples that the guess counts as much as: one recorded sample is still half noise (two samples of one
problem correlate with 0.5 to 0.6)."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What earlier runs spent on one problem."""

    spent_tokens: float
    """Mean per sample, over both models."""
    num_samples: int


def expected_tokens(problems: Sequence[Problem], history: Mapping[str, Recorded] | None = None) -> dict[str, float]:
    """Spent tokens of a sample by problem id, from `history` (by the problem's text) and a guess.

    The guess is made from the level where every problem has one, else from the problem's length. Where there is
    history, the guess is scaled to it, stands in for problems that it lacks, and steadies few samples.
    """
    guess = _guesses(problems)
    known = {p.id: history[p.text] for p in problems if history and p.text in history}
    if not known:
        return guess
    guessed = sum(guess[problem] for problem in known)
    scale = sum(recorded.spent_tokens for recorded in known.values()) / guessed
    return {problem: _blended(scale * tokens, known.get(problem)) for problem, tokens in guess.items()}


def _blended(guess: float, recorded: Recorded | None) -> float:
    if recorded is None:
        return guess
    total = recorded.spent_tokens * recorded.num_samples + guess * _PRIOR_SAMPLES
    return total / (recorded.num_samples + _PRIOR_SAMPLES)


def _guesses(problems: Sequence[Problem]) -> dict[str, float]:
    levels = [_level(problem.level) for problem in problems]
    if None not in levels:
        return {p.id: 1 + _LEVEL_STEP * (level - 1) for p, level in zip(problems, levels, strict=True) if level}
    return {p.id: float(len(p.text) ** _LENGTH_EXPONENT) for p in problems}


def _level(text: str | None) -> int | None:
    """The number in a level such as `3` or `Level 3`; None where there is none from 1 to 20."""
    found = re.search(r"\d+", text or "")
    level = int(found[0]) if found and len(found[0]) < 3 else 0
    return level if 1 <= level <= 20 else None
