"""Shards: balanced as well as longest-first can be, round by round within a shard, and the same every time."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.problems.problem import Problem
from jobs.run.forecast import Recorded, assign_to_shards, expected_tokens
from jobs.run.spec import Unit


def plan(problems: int, samples: int) -> list[Unit]:
    """Units as a run plans them: sample index first."""
    names = [(f"d/{p}", i) for i in range(samples) for p in range(problems)]
    return [Unit(hashlib.sha256(f"{name}/{i}".encode()).hexdigest()[:16], name, i) for name, i in names]


def heavy_tailed(problems: int, seed: int = 0) -> dict[str, float]:
    draw = random.Random(seed)
    return {f"d/{p}": draw.lognormvariate(6.0, 1.0) for p in range(problems)}


def loads(shards: Sequence[Sequence[Unit]], tokens: dict[str, float]) -> list[float]:
    return [sum(tokens[unit.problem_id] for unit in shard) for shard in shards]


@pytest.mark.parametrize(
    ("problems", "samples", "shards"), [(40, 16, 7), (40, 16, 8), (5, 3, 15), (3, 1, 50), (0, 2, 3)]
)
@pytest.mark.parametrize("balanced", [False, True])
def test_every_unit_is_assigned_once_and_no_shard_is_empty(
    problems: int, samples: int, shards: int, balanced: bool
) -> None:
    units = plan(problems, samples)
    assigned = assign_to_shards(units, shards, heavy_tailed(problems) if balanced else None)
    assert sorted(u.sample_id for shard in assigned for u in shard) == sorted(u.sample_id for u in units)
    assert len(assigned) == min(shards, len(units))
    assert all(assigned)


def test_without_expectations_shards_are_of_equal_size() -> None:
    assert {len(shard) for shard in assign_to_shards(plan(41, 3), 8)} == {15, 16}
    assert {len(shard) for shard in assign_to_shards(plan(2, 3), 2, {"d/0": 0.0, "d/1": 0.0})} == {3}


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=7), st.integers(1, 3))
def test_within_the_bound_of_longest_processing_time_of_the_best_there_is(sizes: list[int], shards: int) -> None:
    units = plan(len(sizes), 1)
    tokens = {f"d/{p}": float(size) for p, size in enumerate(sizes)}
    best = min(
        max(sum(size for size, at in zip(sizes, places, strict=True) if at == shard) for shard in range(shards))
        for places in itertools.product(range(shards), repeat=len(sizes))
    )
    assert max(loads(assign_to_shards(units, shards, tokens), tokens)) <= (4 / 3 - 1 / (3 * shards)) * best + 1e-9


@pytest.mark.parametrize("shards", [3, 8, 20])
def test_one_problems_samples_do_not_gather_in_one_shard(shards: int) -> None:
    """40 problems over 8 or 20 shards, all alike: in the order of the dataset each shard would hold 5 or 2 problems."""
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


def test_equal_arguments_give_equal_shards_whatever_the_order_of_the_units() -> None:
    units, tokens = plan(30, 4), heavy_tailed(30)
    shuffled = random.Random(3).sample(units, len(units))
    assert (
        assign_to_shards(units, 7, tokens)
        == assign_to_shards(units, 7, tokens)
        == assign_to_shards(shuffled, 7, tokens)
    )


def test_a_problem_without_expectation_counts_as_the_average_one() -> None:
    assigned = assign_to_shards(plan(4, 1), 2, {"d/0": 10.0, "d/1": 30.0})
    assert sorted(sorted(unit.problem_id for unit in shard) for shard in assigned) == [["d/0", "d/1"], ["d/2", "d/3"]]


@pytest.mark.parametrize("tokens", [-1.0, float("nan"), float("inf")])
def test_an_impossible_expectation_is_refused(tokens: float) -> None:
    with pytest.raises(ValueError, match="d/1"):
        assign_to_shards(plan(2, 1), 2, {"d/1": tokens})


def problem(index: int, text: str, level: str | None = None) -> Problem:
    return Problem(f"d/{index}", "d", text, "1", level=level)


def test_levels_decide_where_every_problem_has_one() -> None:
    tokens = expected_tokens([problem(0, "x" * 500, "1"), problem(1, "x", "Level 5"), problem(2, "xx", "3")])
    assert tokens["d/0"] < tokens["d/2"] < tokens["d/1"]
    assert tokens["d/1"] / tokens["d/0"] == pytest.approx(3.4)


@pytest.mark.parametrize("level", [None, "?", "hard", "2024"])
def test_lengths_decide_where_a_level_is_missing_or_no_level(level: str | None) -> None:
    tokens = expected_tokens([problem(0, "x" * 32, "1"), problem(1, "x", level)])
    assert tokens["d/0"] / tokens["d/1"] == pytest.approx(4.0)


def test_history_outranks_the_guess_and_scales_it() -> None:
    problems = [problem(0, "a" * 100), problem(1, "b" * 100), problem(2, "c" * 100)]
    history = {"a" * 100: Recorded(900.0, 50), "b" * 100: Recorded(100.0, 50)}
    tokens = expected_tokens(problems, history)
    assert tokens["d/0"] == pytest.approx(900, rel=0.02)
    assert tokens["d/1"] == pytest.approx(100, rel=0.1)
    assert tokens["d/2"] == pytest.approx(500)


def test_one_recorded_sample_is_half_believed() -> None:
    problems = [problem(0, "a" * 100), problem(1, "b" * 100)]
    tokens = expected_tokens(problems, {"a" * 100: Recorded(300.0, 1), "b" * 100: Recorded(100.0, 1)})
    assert tokens == pytest.approx({"d/0": 250.0, "d/1": 150.0})


def test_history_of_other_problems_is_no_history() -> None:
    problems = [problem(0, "a" * 32), problem(1, "b")]
    assert expected_tokens(problems, {"z": Recorded(9.0, 9)}) == expected_tokens(problems)
