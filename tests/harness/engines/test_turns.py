"""Engines that take turns: never two at work, nobody left waiting, and waiting counted as queueing."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from harness.engine import Engine, Generation, Role, Sampling, Timing
from harness.engines.scripted import ScriptedEngine
from harness.engines.turns import Turns, taking_turns
from harness.engines.wrapper import EngineWrapper


class _Slow(EngineWrapper):
    """Writes down when it works."""

    def __init__(self, role: Role, at_work: list[Role], seen: list[tuple[Role, ...]]) -> None:
        super().__init__(ScriptedEngine(lambda prompt, sampling: [], lambda prompt, labels: []), role)
        self.at_work, self.seen = at_work, seen

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        self.at_work.append(self._role)
        await asyncio.sleep(0.02)
        self.seen.append(tuple(self.at_work))
        self.at_work.remove(self._role)
        return Generation((), 1, 0, Timing(1000.0, 0.0, 0.01, 0.02, 1))


async def _sample(engines: Mapping[Role, Engine], order: tuple[Role, ...]) -> list[Generation]:
    return [await engines[role].generate([1], Sampling(1)) for role in order]


async def test_never_two_engines_at_work_and_a_batch_of_one_works_together() -> None:
    roles: tuple[Role, ...] = ("draft", "target")
    at_work: list[Role] = []
    seen: list[tuple[Role, ...]] = []
    raw: dict[Role, Engine] = {role: _Slow(role, at_work, seen) for role in roles}
    engines = taking_turns(raw)
    orders: list[tuple[Role, ...]] = [("draft", "target") * 3, ("target", "draft") * 3, ("draft",) * 4, ("target",) * 4]
    replies = await asyncio.wait_for(asyncio.gather(*(_sample(engines, o) for o in orders)), 5)
    assert all(len(set(working)) == 1 for working in seen)
    assert {len(working) for working in seen} >= {1, 2}, "samples that ask the same engine share its turn"
    assert len(seen) == sum(map(len, orders)), "nobody waits for ever"
    waits = [reply.timing.queued_seconds for own in replies for reply in own]
    assert max(waits) > 0.015, "the wait for a turn is queueing"
    for reply in (one for own in replies for one in own):
        timing = reply.timing
        assert timing.end_seconds == pytest.approx(0.02 + timing.queued_seconds)
        assert timing.submitted_at == pytest.approx(1000 - timing.queued_seconds)


async def test_whoever_is_cancelled_while_waiting_or_working_blocks_nobody() -> None:
    turns = Turns()
    begun = asyncio.Event()

    async def work(role: Role, seconds: float) -> None:
        async with turns.turn(role):
            begun.set()
            await asyncio.sleep(seconds)

    first = asyncio.create_task(work("draft", 60))
    await begun.wait()
    waiting = asyncio.create_task(work("target", 60))
    behind = asyncio.create_task(work("draft", 0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0.01)
    assert not behind.done(), "it waits for the end of the turn that it came too late for"
    first.cancel()
    await asyncio.wait_for(behind, 1)
    await asyncio.wait_for(work("target", 0), 1)


async def test_all_may_be_cancelled_in_one_moment() -> None:
    turns = Turns()

    async def work(role: Role) -> None:
        async with turns.turn(role):
            await asyncio.sleep(60)

    order: tuple[Role, ...] = ("draft", "target", "draft", "target")
    tasks = [asyncio.create_task(work(role)) for role in order]
    await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(end) for end in ended] == [asyncio.CancelledError] * 4
    async with asyncio.timeout(1), turns.turn("target"):
        pass


async def _nothing(turns: Turns, role: Role) -> None:
    async with turns.turn(role):
        pass


async def test_who_is_cancelled_as_the_turn_passes_takes_nobody_along() -> None:
    turns = Turns()
    first = turns.turn("draft")
    await first.__aenter__()
    tasks = [asyncio.create_task(_nothing(turns, "target")) for _ in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()  # it has not run since when the turn passes
    await first.__aexit__(None, None, None)
    ended = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 1)
    assert [type(end) for end in ended] == [asyncio.CancelledError, type(None), type(None)]


async def test_a_turn_that_is_cancelled_in_the_moment_it_comes_is_passed_on() -> None:
    turns = Turns()
    first = turns.turn("draft")
    await first.__aenter__()
    called = asyncio.create_task(_nothing(turns, "target"))
    await asyncio.sleep(0)
    await first.__aexit__(None, None, None)
    called.cancel()  # its turn has come, it has not run since
    with pytest.raises(asyncio.CancelledError):
        await called
    await asyncio.wait_for(_nothing(turns, "draft"), 1)
