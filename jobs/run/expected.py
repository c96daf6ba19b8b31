"""How many tokens a sample of each problem is likely to spend, which is what shards are balanced by.

Only ratios matter, and a wrong estimate costs nothing but time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.problems.problem import Problem

_LEVEL_STEP = 0.6
"""Cost of each level above the first: the written solutions of MATH's 5,000 test problems have 226, 325, 440, 535 and
804 characters on average at levels 1 to 5, that is 1, 1.4, 1.9, 2.4 and 3.6 times as many as at level 1."""
_LENGTH_EXPONENT = 0.4
"""Exponent of the problem's length in characters: 0.4 for the written solutions of MATH and for the recorded samples of
two models on GSM8K, 0.65 for the written solutions of GSM8K, 0.36 for those of OlympiadBench."""
_PRIOR_SAMPLES = 1.0
"""Weight of the estimate, in recorded samples: one recorded sample is still half noise (two samples of one problem
correlate with 0.5 to 0.6)."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What earlier runs spent on one problem."""

    spent_tokens: float
    """Mean tokens per sample, of both models together."""
    num_samples: int


def expected_tokens(problems: Sequence[Problem], history: Mapping[str, Recorded] | None = None) -> dict[str, float]:
    """Estimate the tokens that a sample of each problem spends, by problem id.

    `history` has what earlier runs spent, by the problem's text. Where it is silent, the estimate follows from the
    problem's level if every problem has one, otherwise from the problem's length. Where there is history, the estimate
    is scaled to it, stands in for problems that it lacks, and counts as one more sample of those that it has.
    """
    estimates = _estimates(problems)
    recorded = {p.id: history[p.text] for p in problems if history and p.text in history}
    if not recorded:
        return estimates
    total_recorded = sum(earlier.spent_tokens for earlier in recorded.values())
    scale = total_recorded / sum(estimates[problem_id] for problem_id in recorded)
    return {problem_id: _blended(scale * tokens, recorded.get(problem_id)) for problem_id, tokens in estimates.items()}


def _blended(estimate: float, recorded: Recorded | None) -> float:
    if recorded is None:
        return estimate
    total = recorded.spent_tokens * recorded.num_samples + estimate * _PRIOR_SAMPLES
    return total / (recorded.num_samples + _PRIOR_SAMPLES)


def _estimates(problems: Sequence[Problem]) -> dict[str, float]:
    levels = [_level(problem.level) for problem in problems]
    if None not in levels:
        return {p.id: 1 + _LEVEL_STEP * (level - 1) for p, level in zip(problems, levels, strict=True) if level}
    return {p.id: float(len(p.text) ** _LENGTH_EXPONENT) for p in problems}


def _level(text: str | None) -> int | None:
    """Return the number in a level such as `3` or `Level 3`; None where there is none from 1 to 20."""
    digits = re.search(r"\d+", text or "")
    level = int(digits[0]) if digits and len(digits[0]) < 3 else 0
    return level if 1 <= level <= 20 else None
