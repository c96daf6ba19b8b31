"""The plan: which units each worker is assigned, so that all workers are likely to finish at the same time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

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
