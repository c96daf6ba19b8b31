"""Entropies from the most probable tokens, and requests that must not meet in one batch."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest

from harness.engine import EngineDied, VerdictUnavailable
from harness.engines.distributions import Batches, Kind, entropies, entropy_bound, given_logprobs, token_logprobs


def _output(*positions: dict[int, float]) -> Any:
    ranked = [{token: SimpleNamespace(logprob=x) for token, x in position.items()} for position in positions]
    return SimpleNamespace(token_ids=[next(iter(position)) for position in positions], logprobs=ranked)


def test_the_entropy_of_a_whole_distribution_is_exact() -> None:
    probabilities = [0.5, 0.25, 0.25]
    assert entropy_bound(map(math.log, probabilities)) == pytest.approx(1.5 * math.log(2))
    assert entropy_bound([0.0]) == 0


def test_tokens_that_are_not_listed_count_as_one_so_the_entropy_is_a_lower_bound() -> None:
    uniform = [math.log(1 / 8)] * 8
    bound = entropy_bound(uniform[:6])
    assert bound == pytest.approx(6 / 8 * math.log(8) + 2 / 8 * math.log(4))
    assert bound < entropy_bound(uniform)


def test_a_position_with_masked_tokens_has_no_entropy() -> None:
    assert entropies(_output({5: math.log(0.5), 6: math.log(0.5)}), 2) == pytest.approx((math.log(2),))
    for position in ({5: -0.5, 0: -math.inf}, {5: -0.5}):
        with pytest.raises(VerdictUnavailable):
            entropies(_output(position), 2)


def test_log_probabilities_are_those_of_the_tokens_themselves() -> None:
    assert token_logprobs(_output({5: -0.25, 9: -1.5}, {7: -2.0})) == (-0.25, -2.0)
    prompt = [None, *_output({1: -1.0, 8: -0.1}, {2: -2.0}, {3: -3.0}).logprobs]
    assert given_logprobs(prompt, [0, 1, 2, 3], 2) == (-2.0, -3.0)
    with pytest.raises(EngineDied):
        given_logprobs(None, [0, 1], 1)


async def test_two_kinds_of_requests_never_run_together_and_one_kind_does() -> None:
    batches, running, met = Batches(), list[Kind](), set[tuple[Kind, ...]]()

    async def request(kind: Kind) -> None:
        async with batches.of(kind):
            running.append(kind)
            await asyncio.sleep(0.01)
            met.add(tuple(sorted(running)))
            running.remove(kind)

    canceled = asyncio.create_task(request("named"))
    kinds: tuple[Kind, ...] = ("named", "ranked", "named", "ranked", "ranked")
    tasks = [asyncio.create_task(request(kind)) for kind in kinds]
    await asyncio.sleep(0)
    canceled.cancel()
    running.remove("named")
    await asyncio.gather(*tasks)
    assert all(len(set(together)) == 1 for together in met)
    assert ("ranked", "ranked", "ranked") in met
