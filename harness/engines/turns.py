"""Two engines that take turns: while one works, whoever asks the other waits.

The papers' programs work so: the draft's batch, then the target's. Here both engines work whenever any sample has
something for them. `--take-turns` takes that away, so that what it is worth can be measured.
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
    """Whose turn it is. It passes when the one at work is done and the other is waited for; whoever asks an engine at
    work joins in, unless somebody waits for the other one: else that one would never have its turn."""

    def __init__(self) -> None:
        self._at_work: Role | None = None
        self._num_working = 0
        self._waiting: list[tuple[Role, asyncio.Future[None]]] = []

    @contextlib.asynccontextmanager
    async def turn(self, role: Role) -> AsyncIterator[float]:
        """Work in the role's turn; gives the seconds that were waited for it."""
        asked = time.monotonic()
        if self._num_working and (role != self._at_work or self._is_waited_for_by_another(role)):
            await self._wait(role)
        else:
            self._begin(role)
        try:
            yield time.monotonic() - asked
        finally:
            self._num_working -= 1
            self._pass_on()

    def _begin(self, role: Role) -> None:
        self._at_work = role
        self._num_working += 1

    def _is_waited_for_by_another(self, role: Role) -> bool:
        return any(other != role and not called.done() for other, called in self._waiting)

    async def _wait(self, role: Role) -> None:
        called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((role, called))
        try:
            await called
        except asyncio.CancelledError:
            if not called.cancelled():  # its turn had come in the same moment
                self._num_working -= 1
            self._pass_on()
            raise

    def _pass_on(self) -> None:
        # Of those cancelled in this very moment some have not yet run and are still in the list.
        self._waiting = [one for one in self._waiting if not one[1].done()]
        if self._num_working or not self._waiting:
            return
        others = [role for role, _ in self._waiting if role != self._at_work]
        following = others[0] if others else self._waiting[0][0]
        called = [future for role, future in self._waiting if role == following]
        self._waiting = [one for one in self._waiting if one[0] != following]
        for future in called:
            self._begin(following)
            future.set_result(None)


class TurnTaking(EngineWrapper):
    """An engine that works in its turn only; the wait counts as queueing."""

    def __init__(self, engine: Engine, role: Role, turns: Turns) -> None:
        super().__init__(engine, role)
        self._turns = turns

    async def generate(self, prompt: Sequence[int], sampling: Sampling) -> Generation:
        """Engine.generate in its turn."""
        async with self._turns.turn(self._role) as waited:
            reply = await self._engine.generate(prompt, sampling)
        return replace(reply, timing=_later(reply.timing, waited))

    async def choose(self, prompt: Sequence[int], options: Sequence[int]) -> Choice:
        """Engine.choose in its turn."""
        async with self._turns.turn(self._role) as waited:
            reply = await self._engine.choose(prompt, options)
        return replace(reply, timing=_later(reply.timing, waited))


def taking_turns(engines: Mapping[Role, Engine]) -> dict[Role, Engine]:
    """The engines of one worker, never two of them at work."""
    turns = Turns()
    return {role: TurnTaking(engine, role, turns) for role, engine in engines.items()}


def _later(timing: Timing, seconds: float) -> Timing:
    return replace(
        timing,
        submitted_at=timing.submitted_at - seconds,
        queued_seconds=timing.queued_seconds + seconds,
        first_token_seconds=timing.first_token_seconds + seconds,
        end_seconds=timing.end_seconds + seconds,
    )
