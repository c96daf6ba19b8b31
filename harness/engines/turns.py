"""Two engines that take turns: while one is working, requests to the other one wait.

SpecReason's paper describes its system so (section 4.1). Its published script starts 16 processes against both servers,
so there both work at once; SCoT's program runs one problem at a time; SpecCoT's is not published. By default both
engines here work whenever any sample has a request for them. `--take-turns` turns that off, so that its gain can be
measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from harness.engine import Choice, Engine, Generation, Role, Sampling, Timing
from harness.engines.wrapper import EngineWrapper


class Turns:
    """Keeps track of whose turn it is.

    The turn passes when the working engine is done and requests wait for the other one. A request to the working engine
    joins in, unless requests wait for the other engine, which would otherwise never get its turn.
    """

    def __init__(self) -> None:
        self._working_role: Role | None = None
        self._num_working = 0
        self._waiting: list[tuple[Role, asyncio.Future[None]]] = []
        """Role and wake-up of each waiting request, in the order of arrival."""

    @contextlib.asynccontextmanager
    async def turn(self, role: Role) -> AsyncIterator[float]:
        """Work in the role's turn; yields the seconds spent waiting for it."""
        requested_at = time.monotonic()
        if self._num_working and (role != self._working_role or self._is_another_waiting(role)):
            await self._wait(role)
        else:
            self._begin(role)
        try:
            yield time.monotonic() - requested_at
        finally:
            self._num_working -= 1
            self._pass_on()

    def _begin(self, role: Role) -> None:
        self._working_role = role
        self._num_working += 1

    def _is_another_waiting(self, role: Role) -> bool:
        return any(other != role and not wake_up.done() for other, wake_up in self._waiting)

    async def _wait(self, role: Role) -> None:
        wake_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((role, wake_up))
        try:
            await wake_up
        except asyncio.CancelledError:
            if not wake_up.cancelled():  # its turn came at the same moment
                self._num_working -= 1
            self._pass_on()
            raise

    def _pass_on(self) -> None:
        # Requests that were cancelled at this moment and have not run yet are still in the list.
        self._waiting = [(role, wake_up) for role, wake_up in self._waiting if not wake_up.done()]
        if self._num_working or not self._waiting:
            return
        others = [role for role, _ in self._waiting if role != self._working_role]
        following = others[0] if others else self._waiting[0][0]
        woken = [wake_up for role, wake_up in self._waiting if role == following]
        self._waiting = [(role, wake_up) for role, wake_up in self._waiting if role != following]
        for wake_up in woken:
            self._begin(following)
            wake_up.set_result(None)


class TurnTaking(EngineWrapper):
    """An engine that works only in its turn; waiting for the turn counts as queueing."""

    def __init__(self, engine: Engine, role: Role, turns: Turns) -> None:
        super().__init__(engine, role)
        self._turns = turns

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Engine.generate in its turn."""
        async with self._turns.turn(self._role) as waited_seconds:
            reply = await self._engine.generate(prompt, sampling)
        return replace(reply, timing=_delayed(reply.timing, waited_seconds))

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """Engine.choose in its turn."""
        async with self._turns.turn(self._role) as waited_seconds:
            reply = await self._engine.choose(prompt, options)
        return replace(reply, timing=_delayed(reply.timing, waited_seconds))


def taking_turns(engines: Mapping[Role, Engine]) -> dict[Role, Engine]:
    """Return the engines of one worker such that never two of them work at the same time."""
    turns = Turns()
    return {role: TurnTaking(engine, role, turns) for role, engine in engines.items()}


def _delayed(timing: Timing, seconds: float) -> Timing:
    return replace(
        timing,
        submitted_at=timing.submitted_at - seconds,
        queued_seconds=timing.queued_seconds + seconds,
        first_token_seconds=timing.first_token_seconds + seconds,
        end_seconds=timing.end_seconds + seconds,
    )
