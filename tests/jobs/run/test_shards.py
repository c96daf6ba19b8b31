"""Shards: dealt problem by problem, round by round within a shard, and the same every time."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

import pytest

from jobs.run.spec import Unit, assign_to_shards


def plan(problems: int, samples: int) -> list[Unit]:
    """Units as a run plans them: sample index first."""
    names = [(f"d/{p}", i) for i in range(samples) for p in range(problems)]
    return [Unit(hashlib.sha256(f"{name}/{i}".encode()).hexdigest()[:16], name, i) for name, i in names]


def heavy_tailed(problems: int, seed: int = 0) -> dict[str, int]:
    draw = random.Random(seed)
    return {f"d/{p}": int(draw.lognormvariate(6.0, 1.0)) for p in range(problems)}


def loads(shards: Sequence[Sequence[Unit]], tokens: dict[str, int]) -> list[int]:
    return [sum(tokens[unit.problem_id] for unit in shard) for shard in shards]


@pytest.mark.parametrize(
    ("problems", "samples", "shards"), [(40, 16, 7), (40, 16, 8), (5, 3, 15), (3, 1, 50), (0, 2, 3)]
)
def test_every_unit_is_assigned_once_and_no_shard_is_empty(problems: int, samples: int, shards: int) -> None:
    units = plan(problems, samples)
    assigned = assign_to_shards(units, shards)
    assert sorted(u.sample_id for shard in assigned for u in shard) == sorted(u.sample_id for u in units)
    assert len(assigned) == min(shards, len(units))
    assert all(assigned)


@pytest.mark.parametrize(("problems", "samples", "shards"), [(200, 16, 8), (200, 16, 24), (400, 1, 4)])
def test_no_shard_has_all_the_long_problems(problems: int, samples: int, shards: int) -> None:
    tokens = heavy_tailed(problems)
    spent = loads(assign_to_shards(plan(problems, samples), shards, tokens), tokens)
    assert max(spent) <= sum(spent) / shards + max(tokens.values())
