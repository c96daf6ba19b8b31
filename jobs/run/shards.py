"""The plan: which units each worker is assigned, so that all workers are likely to finish at the same time.

Shards are balanced by how many tokens a sample of each problem is likely to spend. Only ratios matter, and a wrong
estimate costs nothing but time.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.problems.problem import Problem
from jobs.run.spec import Unit


def assign_to_shards(
    units: Sequence[Unit], shards: int, expected: Mapping[str, float] | None = None
) -> list[list[Unit]]:
    """Assign units to shards by longest processing time first; empty shards are left out.

    `expected` has the tokens that one sample of a problem is likely to spend, by problem id; a problem that it lacks
    counts as much as the average one. Without it all units count the same: shards of equal size. Equal arguments give
    equal shards. Raises ValueError where `shards` is below 1, or an expectation is negative or not a finite number.
    """
    if shards < 1:
        raise ValueError(f"at least 1 shard is needed, not {shards}")
    cost = _costs(units, expected or {})
    assigned: list[list[Unit]] = [[] for _ in range(shards)]
    lightest = [(0.0, 0, shard) for shard in range(shards)]
    for unit in _longest_first(units, cost):
        load, num_units, shard = lightest[0]
        assigned[shard].append(unit)
        heapq.heapreplace(lightest, (load + cost[unit.problem_id], num_units + 1, shard))
    # Round by round, and longest first only within a round: then a run that is cut short has run every problem about
    # equally often, which its results depend on. Longest first over the whole shard would leave out the easy problems
    # and gain little, because a shard ends with the shortest problems of its last round either way.
    for shard_units in assigned:
        shard_units.sort(key=lambda unit: (unit.sample_index, -cost[unit.problem_id]))
    return [shard_units for shard_units in assigned if shard_units]


def _costs(units: Sequence[Unit], expected: Mapping[str, float]) -> dict[str, float]:
    problems = dict.fromkeys(unit.problem_id for unit in units)
    expectations = {problem: float(expected[problem]) for problem in problems if problem in expected}
    for problem, tokens in expectations.items():
        if not 0 <= tokens < float("inf"):
            raise ValueError(f"{problem}: {tokens} expected tokens")
    average = sum(expectations.values()) / len(expectations) if expectations else 1.0
    return {problem: expectations.get(problem, average) for problem in problems}


def _longest_first(units: Sequence[Unit], cost: Mapping[str, float]) -> list[Unit]:
    """Sort units by falling cost, those of equal cost round by round and within a round in the order of their hashes.

    In the order of the dataset, one shard would be assigned all samples of the same problems wherever the number of
    problems is a multiple of the number of shards. Each cost begins with another round: otherwise one shard would be
    assigned sample 0 of every problem and another one sample 1, so that its first round would be its only one.
    """
    rank = {tokens: place for place, tokens in enumerate(sorted(set(cost.values()), reverse=True))}
    rounds = 1 + max((unit.sample_index for unit in units), default=0)

    def place(unit: Unit) -> tuple[int, int, str]:
        tied = rank[cost[unit.problem_id]]
        return tied, (unit.sample_index + tied) % rounds, unit.sample_id

    return sorted(units, key=place)


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
