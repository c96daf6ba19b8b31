"""Samples are admitted in order while the highest total that they are expected to hold fits into every KV cache."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.engines import admission as admission_module
from harness.engines.admission import Admission, Admitted, Cache
from tools.simulate.cache import (
    BUDGET,
    Forecasting,
    Reserving,
    Sample,
    at_budget,
    long_tailed,
    samples,
    simulate,
)

UNEQUAL_CACHE = 165_000
"""Tokens of the draft's cache with 0.12 of one 80 GB card."""


def cache_of(tokens: int | None, **settings: float) -> dict[str, Cache]:
    return {"target": Cache(tokens, **settings)}  # type: ignore[arg-type]


def started(admission: Admission, number: int, *, prompt: int = 100, emitted: int = 0, later: int = 0) -> int:
    """Start samples of different problems until one does not fit; returns how many are running."""
    for i in range(number):
        if admission.try_admit(f"problem {i}", {"target": prompt}, emitted, later) is None:
            break
    return admission.running


@pytest.mark.parametrize("kind", [long_tailed, at_budget])
def test_more_samples_are_in_flight_than_with_fixed_reservations_and_the_cache_hardly_overflows(
    kind: Callable[[random.Random], Sample],
) -> None:
    before = simulate(Reserving(UNEQUAL_CACHE, 256), samples(kind, 400), UNEQUAL_CACHE)
    now = simulate(Forecasting(UNEQUAL_CACHE, 256), samples(kind, 400), UNEQUAL_CACHE)
    assert now.overflow < 0.03
    assert now.recomputed < 0.03
    assert now.mean_in_flight > 1.2 * before.mean_in_flight
    assert now.all_seconds < 0.85 * before.all_seconds


def test_a_prompt_that_samples_of_one_problem_share_is_held_once_and_until_the_last_of_them_ends() -> None:
    shared, alone = (Admission(cache_of(10_000), 64, 10) for _ in range(2))
    first = shared.try_admit("the problem", {"target": 3000})
    assert first is not None
    while shared.try_admit("the problem", {"target": 3000}):
        pass
    assert shared.running == 64
    assert started(alone, 64, prompt=3000) == 3
    shared.release(first, None)
    assert shared._prompts["target"] == 3000


def test_parallel_candidates_and_verdicts_are_room_that_a_sample_needs_besides_its_chain() -> None:
    plain = started(Admission(cache_of(100_000), 256, 1000), 256)
    stepwise = Admission(cache_of(100_000, step_tokens=1000), 256, 1000)
    assert started(stepwise, 256) < plain / 2
    observed = Admission(cache_of(100_000), 256, 1000)
    sample = observed.try_admit("problem", {"target": 100})
    assert sample is not None
    observed.grew(sample, 0, {"target": 1000})
    observed.release(sample, None)
    assert started(observed, 256) == started(stepwise, 256)


def test_a_resumed_sample_takes_the_room_of_its_chain_when_it_starts() -> None:
    admission = Admission(cache_of(10_000), 64, 8000)
    assert admission.try_admit("problem 0", {"target": 100}, emitted_tokens=7000) is not None
    assert admission.try_admit("problem 1", {"target": 100}, emitted_tokens=7000) is None


def test_lengths_are_learned_from_ended_samples_and_from_those_that_are_still_running() -> None:
    now = 0.0
    guessing, ended, running = (Admission(cache_of(50_000), 256, BUDGET, clock=lambda: now) for _ in range(3))
    for i in range(100):
        sample = ended.try_admit(f"problem {i}", {"target": 100})
        assert sample is not None
        ended.release(sample, 300)
    assert started(ended, 256) > 3 * started(guessing, 256)
    first = [running.try_admit(f"problem {i}", {"target": 100}) for i in range(4)]
    for number, sample in enumerate(first):
        assert sample is not None
        running.grew(sample, 4000) if number else running.release(sample, 300)
    assert started(running, 256) < started(ended, 256), "one short sample of four says little"


async def test_room_that_comes_without_the_end_of_a_sample_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission_module, "_WAIT_SECONDS", 0.01)
    now = 0.0
    admission = Admission(cache_of(15_000, step_tokens=7000), 64, 8000, clock=lambda: now)
    first = await admission.admit("first", {"target": 100})
    waiting = asyncio.create_task(admission.admit("second", {"target": 100}, num_later=0))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    admission.grew(first, 10, {"target": 50})  # steps are shorter than was assumed
    now += 1
    admission.release(await asyncio.wait_for(waiting, 5), None)


@given(
    samples=st.lists(st.tuples(st.integers(0, 600), st.integers(0, 400)), min_size=1, max_size=30),
    capacity=st.integers(1, 2000),
    concurrency=st.integers(1, 8),
)
@settings(deadline=None, max_examples=40)
def test_what_is_admitted_fits_or_runs_alone_and_every_sample_runs(
    samples: list[tuple[int, int]], capacity: int, concurrency: int
) -> None:
    admission = Admission(cache_of(capacity), concurrency, 400)
    running: set[Admitted] = set()
    ended: list[int] = []

    async def sample(number: int, prompt_tokens: int, emitted_tokens: int) -> None:
        own = await admission.admit(f"problem {number}", {"target": prompt_tokens})
        running.add(own)
        assert len(running) <= concurrency
        assert len(running) == 1 or sum(one.prompt_tokens["target"] for one in running) <= capacity
        await asyncio.sleep(0)
        running.discard(own)
        admission.release(own, emitted_tokens)
        ended.append(number)

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*(sample(i, *s) for i, s in enumerate(samples))), 10)

    started_at = time.monotonic()
    asyncio.run(run())
    assert sorted(ended) == list(range(len(samples)))
    assert time.monotonic() - started_at < 10


@pytest.mark.parametrize("num_turns", range(4))
async def test_a_cancellation_at_the_moment_of_a_release_is_not_lost(num_turns: int) -> None:
    admission = Admission(cache_of(200), 64, 400)
    held = await admission.admit("first", {"target": 100})
    waiting = asyncio.create_task(admission.admit("second", {"target": 100}))
    await asyncio.sleep(0.01)
    admission.release(held, None)
    for _ in range(num_turns):  # of the event loop, until which the waiting one has not gone on
        await asyncio.sleep(0)
    if waiting.cancel():
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert admission.running == 0
