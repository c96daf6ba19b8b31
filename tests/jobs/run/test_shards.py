"""Shards: dealt problem by problem, round by round within a shard, and the same every time."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
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


def test_shards_are_of_equal_size() -> None:
    assert {len(shard) for shard in assign_to_shards(plan(41, 3), 8)} == {15, 16}


@pytest.mark.parametrize(("problems", "samples", "shards"), [(200, 16, 8), (200, 16, 24), (400, 1, 4)])
def test_no_shard_has_all_the_long_problems(problems: int, samples: int, shards: int) -> None:
    tokens = heavy_tailed(problems)
    spent = loads(assign_to_shards(plan(problems, samples), shards, tokens), tokens)
    assert max(spent) <= sum(spent) / shards + max(tokens.values())


@pytest.mark.parametrize("shards", [3, 8, 20])
def test_one_problems_samples_do_not_gather_in_one_shard(shards: int) -> None:
    """40 problems over 8 or 20 shards: in the order of the dataset each shard would hold 5 or 2 problems."""
    for shard in assign_to_shards(plan(40, 16), shards):
        assert max(Counter(unit.problem_id for unit in shard).values()) < 16


@pytest.mark.parametrize("shards", [1, 4, 16, 64])
def test_a_run_cut_short_has_seen_every_problem_about_equally_often(shards: int) -> None:
    problems, samples = 200, 16
    units, tokens = plan(problems, samples), heavy_tailed(problems)
    assigned = assign_to_shards(units, shards, tokens)
    until = 0.5 * max(loads(assigned, tokens))
    seen = Counter(dict.fromkeys(tokens, 0))
    for shard in assigned:
        ends = itertools.accumulate(tokens[unit.problem_id] for unit in shard)
        seen.update(unit.problem_id for unit, end in zip(shard, ends, strict=True) if end <= until)
    expected = samples / 2
    assert sum(abs(n - expected) for n in seen.values()) / problems < 1.5
    assert min(seen.values()) >= 2


def test_within_a_round_the_longest_come_first() -> None:
    tokens = heavy_tailed(50)
    for shard in assign_to_shards(plan(50, 4), 3, tokens):
        keys = [(unit.sample_index, -tokens[unit.problem_id]) for unit in shard]
        assert keys == sorted(keys)
