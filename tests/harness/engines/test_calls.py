"""Engines that take turns, requests that must not meet in one batch, and when an engine counts as stalled."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from harness.engine import (
    Choice,
    Engine,
    EngineDied,
    Generation,
    Likelihood,
    Role,
    Sampling,
    Timing,
    VerdictUnavailable,
)
from harness.engines import calls
from harness.engines.calls import Batches, EngineWrapper, Kind, StallClock, Turns, entropy_bound, taking_turns
from harness.engines.scripted import ScriptedEngine
from harness.engines.vllm import entropies, given_logprobs, token_logprobs
from harness.launch import main as launch


class _Slow(EngineWrapper):
    """Writes down when it works."""

    def __init__(self, role: Role, at_work: list[Role], seen: list[tuple[Role, ...]]) -> None:
        super().__init__(ScriptedEngine(lambda prompt, sampling: [], lambda prompt, labels: []), role)
        self.at_work, self.seen = at_work, seen

    async def _work(self) -> Timing:
        self.at_work.append(self._role)
        await asyncio.sleep(0.02)
        self.seen.append(tuple(self.at_work))
        self.at_work.remove(self._role)
        return Timing(1000.0, 0.0, 0.01, 0.02, 1)

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        return Generation((), 1, 0, await self._work())

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        return Choice((-1.0,), 1, 0, await self._work())

    async def log_probabilities(self, prompt: Sequence[int], continuation: Sequence[int]) -> Likelihood:
        return Likelihood((-1.0,), 2, 0, await self._work())


_REQUESTS: tuple[Callable[[Engine], Awaitable[Generation | Choice | Likelihood]], ...] = (
    lambda engine: engine.generate([1], Sampling(1)),
    lambda engine: engine.choose([1], [2]),
    lambda engine: engine.log_probabilities([1], [2]),
)


async def _sample(engines: Mapping[Role, Engine], order: tuple[Role, ...]) -> list[Generation | Choice | Likelihood]:
    return [await ask(engines[role]) for role, ask in zip(order, itertools.cycle(_REQUESTS), strict=False)]


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
    await asyncio.wait_for(behind, 1)
    assert not first.done(), "the request joins in once nobody waits for the other engine"
    first.cancel()
    await asyncio.wait_for(work("target", 0), 1)


async def _nothing(turns: Turns, role: Role) -> None:
    async with turns.turn(role):
        pass


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


def _output(*positions: dict[int, float]) -> Any:
    ranked = [{token: SimpleNamespace(logprob=x) for token, x in position.items()} for position in positions]
    return SimpleNamespace(token_ids=[next(iter(position)) for position in positions], logprobs=ranked)


@pytest.mark.parametrize(
    ("probabilities", "nats"),
    [
        ([1.0], 0),
        ([0.5, 0.25, 0.25], 1.5 * math.log(2)),
        ([1 / 8] * 6, 6 / 8 * math.log(8) + 2 / 8 * math.log(4)),  # the rest counts as one token
    ],
)
def test_the_entropy_is_exact_or_a_lower_bound_where_tokens_are_not_listed(
    probabilities: list[float], nats: float
) -> None:
    assert entropy_bound(map(math.log, probabilities)) == pytest.approx(nats)


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


class Time:
    """A clock that the test sets, and looks at the engine once per second."""

    def __init__(self, limit: float) -> None:
        self.seconds = 1000.0
        self.clock = StallClock(limit, lambda: self.seconds)

    def pass_by(self, seconds: int, num_unfinished: int, *, works_every: int | None = None) -> bool:
        """Return whether the last of the looks found the engine stalled."""
        found = None
        for second in range(1, seconds + 1):
            if works_every and second % works_every == 0:
                self.clock.note_work()
            self.seconds += 1
            found = self.clock.stalled(num_unfinished)
        return found is not None


@pytest.mark.parametrize(
    ("limit", "before", "works_every", "unfinished", "seconds"),
    [
        (1800, 0, None, 12, 1800),
        (10, 1000, None, 1, 10),  # waiting does not count for the next request
        (10, 99_999, 9, 300, 9),
        (10, 100_000, None, 0, None),
        (0, 100_000, None, 5, None),
    ],
    ids=["nothing done", "idle before", "work in every limit", "no requests", "no limit"],
)
def test_an_engine_that_does_nothing_for_the_limit_while_requests_are_unfinished_is_stalled(
    limit: float, before: int, works_every: int | None, unfinished: int, seconds: int | None
) -> None:
    time = Time(limit)
    assert not time.pass_by(before, unfinished if works_every or seconds is None else 0, works_every=works_every)
    if seconds is not None:
        assert not time.pass_by(seconds, unfinished), "the first look only finds the requests"
        assert time.pass_by(1, unfinished)


@pytest.mark.parametrize("suspended_seconds", [3600, 30 * 86400])
def test_time_in_which_the_worker_itself_was_suspended_does_not_count(suspended_seconds: int) -> None:
    time = Time(1800)
    time.pass_by(60, 5)
    time.seconds += suspended_seconds
    assert not time.pass_by(60, 5)
    assert time.pass_by(1800, 5)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 1800), ("0", 0), (" 2.5 ", 2.5), ("30m", None), ("-1", None), ("nan", None)],
)
def test_the_environment_sets_the_limit_in_seconds(
    text: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(calls.LIMIT, text)
    if seconds is not None:
        assert calls.limit_seconds() == seconds
        return
    flags = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--dry-run"]
    result = CliRunner().invoke(launch, flags)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {calls.LIMIT}={text}: ")
    assert result.stderr.count("\n") == 1
