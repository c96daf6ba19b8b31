"""Samples are admitted in order while they are expected to fit into the KV cache."""

from __future__ import annotations

import asyncio
import time

from hypothesis import given
from hypothesis import strategies as st

from harness.admission import Admission


async def starts_at_once(admission: Admission, prompt_tokens: int) -> bool:
    """Try to admit a sample without waiting for another one to end; a sample that fits is admitted for good."""
    try:
        await asyncio.wait_for(admission.admit(prompt_tokens), 0.01)
    except TimeoutError:
        return False
    return True


async def test_samples_are_admitted_until_the_cache_is_full() -> None:
    admission = Admission(capacity_tokens=1000, concurrency=64, token_budget=400)  # expects 100 tokens each
    assert [await starts_at_once(admission, 150) for _ in range(5)] == [True, True, True, True, False]
    assert admission.running == 4


async def test_samples_are_admitted_until_the_concurrency_is_reached() -> None:
    admission = Admission(capacity_tokens=1_000_000, concurrency=3, token_budget=400)
    assert [await starts_at_once(admission, 10) for _ in range(4)] == [True, True, True, False]


async def test_an_engine_without_a_cache_limit_is_limited_by_the_concurrency_alone() -> None:
    admission = Admission(capacity_tokens=None, concurrency=2, token_budget=10**9)
    assert [await starts_at_once(admission, 10**9) for _ in range(3)] == [True, True, False]


async def test_a_sample_that_can_never_fit_runs_alone() -> None:
    admission = Admission(capacity_tokens=100, concurrency=8, token_budget=400)
    assert await starts_at_once(admission, 5000)
    assert not await starts_at_once(admission, 1), "not beside one that already overfills the cache"


async def test_before_any_sample_has_ended_a_quarter_of_the_budget_is_expected() -> None:
    assert Admission(None, 8, token_budget=4000).expected_tokens == 1000


async def test_the_expectation_is_the_90th_percentile_of_the_samples_that_ended() -> None:
    admission = Admission(None, 1000, token_budget=4000)
    for length in range(100, 0, -1):
        await admission.release(await admission.admit(1), length)
    assert admission.expected_tokens == 90
    for _ in range(100):
        await admission.release(await admission.admit(1), 100_000)
    assert admission.expected_tokens == 4000, "no sample emits more than its budget"


async def test_only_the_last_256_samples_count() -> None:
    admission = Admission(None, 1000, token_budget=4000)
    for length in [3000] * 500 + [10] * 256:
        await admission.release(await admission.admit(1), length)
    assert admission.expected_tokens == 10


async def test_a_failed_sample_gives_its_room_back_and_teaches_no_length() -> None:
    admission = Admission(capacity_tokens=300, concurrency=8, token_budget=400)
    held = await admission.admit(150)
    assert not await starts_at_once(admission, 150)
    await admission.release(held, None)
    assert admission.running == 0
    assert admission.expected_tokens == 100
    assert await starts_at_once(admission, 150)


async def test_what_was_held_is_released_even_after_the_expectation_has_changed() -> None:
    admission = Admission(capacity_tokens=1000, concurrency=64, token_budget=4000)  # expects 1000 tokens
    long = await admission.admit(0)
    await admission.release(long, 10)  # expects 10 tokens from now on
    held = [await admission.admit(190) for _ in range(5)]
    assert held == [200] * 5
    assert not await starts_at_once(admission, 190)


async def test_waiting_samples_are_admitted_in_the_order_in_which_they_asked() -> None:
    admission = Admission(capacity_tokens=200, concurrency=64, token_budget=400)
    order: list[int] = []
    held = await admission.admit(100)

    async def sample(number: int) -> None:
        own = await admission.admit(100)
        order.append(number)
        await asyncio.sleep(0)
        await admission.release(own, None)

    waiting = [asyncio.create_task(sample(number)) for number in range(5)]
    await asyncio.sleep(0)
    await admission.release(held, None)
    await asyncio.gather(*waiting)
    assert order == [0, 1, 2, 3, 4]


async def test_a_waiting_sample_that_is_cancelled_holds_nothing() -> None:
    admission = Admission(capacity_tokens=200, concurrency=64, token_budget=400)
    held = await admission.admit(100)
    waiting = asyncio.create_task(admission.admit(100))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await admission.release(held, None)
    assert admission.running == 0
    assert await starts_at_once(admission, 100)


@given(
    samples=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 400)), min_size=1, max_size=30),
    capacity=st.integers(1, 2000),
    concurrency=st.integers(1, 8),
)
def test_the_cache_is_never_overfilled_but_by_a_sample_alone_and_all_samples_run(
    samples: list[tuple[int, int]], capacity: int, concurrency: int
) -> None:
    admission = Admission(capacity, concurrency, token_budget=400)
    holding: dict[int, int] = {}
    ended: list[int] = []

    async def sample(number: int, prompt_tokens: int, emitted_tokens: int) -> None:
        holding[number] = await admission.admit(prompt_tokens)
        assert len(holding) <= concurrency
        assert len(holding) == 1 or sum(holding.values()) <= capacity
        await asyncio.sleep(0)
        await admission.release(holding.pop(number), emitted_tokens)
        ended.append(number)

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*(sample(i, *s) for i, s in enumerate(samples))), 10)

    started_at = time.monotonic()
    asyncio.run(run())
    assert sorted(ended) == list(range(len(samples)))
    assert time.monotonic() - started_at < 10
