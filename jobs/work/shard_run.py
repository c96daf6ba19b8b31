"""The samples of a worker in flight over two engines, admitted while there is memory and time, each run to its end."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.chain import Limits
from harness.engine import Engine, Role
from harness.engines.admission import Admission, Admitted
from harness.methods import Method
from harness.problems.problem import Problem
from harness.prompts import opening
from harness.sample import run_sample
from harness.trace import Step, Trace
from jobs.run.endings import RunState
from jobs.run.journal import JournalWriter
from jobs.run.spec import RunSpec, Unit
from jobs.work import cache_room

_DURATIONS = 256
"""Number of the latest samples that the likely duration of the next one is estimated from."""


_MANY = 1 << 20
"""Stands for the number of samples of shards that this worker or another one may take."""


@dataclass(frozen=True)
class TakenShard:
    """A shard whose lock this worker holds."""

    number: int
    todo: list[Unit]
    """Its unfinished samples."""
    state: RunState
    """How far these got."""


class ShardRun:
    """The samples of shards in flight over two engines."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        problems: Mapping[str, Problem],
        engines: Mapping[Role, Engine],
        journal: JournalWriter,
        state: RunState,
        ends_at: float | None = None,
    ) -> None:
        """Prepare to run samples; `ends_at` is when this job will be ended, in seconds since the epoch."""
        self.spec, self.method, self.problems = spec, method, problems
        self.engines, self.journal, self.state = engines, journal, state
        self.limits = Limits(spec.temperature, spec.top_p, spec.token_budget, spec.sampling)
        self.num_asked = self.num_ended = self.num_steps = 0
        self.ends_at = ends_at
        self._durations: deque[float] = deque(maxlen=_DURATIONS)
        self._prompts: dict[str, dict[str, int]] = {}
        self.admission = Admission(
            cache_room.caches(method, engines, spec.token_budget), spec.concurrency, spec.token_budget
        )

    async def run_all(self, units: list[Unit], further: Callable[[], TakenShard | None] | None = None) -> None:
        """Run samples as memory and time allow. The first failure of machinery cancels the rest.

        `further` is asked for another shard whenever all of these have begun and there is room for one more.

        Returns once all samples have ended or, where the remaining time becomes shorter than a sample is likely to
        take, once those have ended that had begun by then.
        """
        async with asyncio.TaskGroup() as group:
            has_time = await self._begin_all(units, group, are_last=further is None)
            while has_time and further is not None:
                await self.admission.wait_for_room()
                if (taken := further()) is None:
                    break
                self.state.unfinished |= taken.state.unfinished
                has_time = await self._begin_all(taken.todo, group, are_last=False)

    async def _begin_all(self, units: list[Unit], group: asyncio.TaskGroup, *, are_last: bool) -> bool:
        """Begin samples as memory allows; False where the time became too short."""
        self.num_asked += len(units)
        for number, unit in enumerate(units, 1):
            begun = self.state.unfinished.get(unit.sample_id)
            admitted = await self.admission.admit(
                unit.problem_id,
                self._prompt_tokens(unit.problem_id),
                begun.emitted_tokens if begun else 0,
                num_later=len(units) - number if are_last else _MANY,
            )
            if not self._has_time_for_another():
                self.admission.release(admitted, None)
                return False
            group.create_task(self._run_sample(unit, admitted))
        return True

    def _prompt_tokens(self, problem_id: str) -> dict[str, int]:
        """Return the length of a problem's prompt by role."""
        if problem_id not in self._prompts:
            problem, lengths = self.problems[problem_id], dict[str, int]()
            for role, engine in self.engines.items():
                rubric = self.method.rubric and role == "target"
                lengths[role] = len(opening(engine.tokenizer, problem, self.spec.wording, rubric=rubric)[0])
            self._prompts[problem_id] = lengths
        return self._prompts[problem_id]

    def _has_time_for_another(self) -> bool:
        """True if the remaining time is longer than 90% of the latest samples took."""
        if self.ends_at is None or not self._durations:
            return True
        likely = sorted(self._durations)[int(0.9 * (len(self._durations) - 1))]
        return time.time() + likely < self.ends_at

    async def _run_sample(self, unit: Unit, admitted: Admitted) -> None:
        seed = seed_of(self.spec, unit, self.problems[unit.problem_id])
        trace = self.state.unfinished.get(unit.sample_id) or Trace(
            unit.sample_id, unit.problem_id, unit.sample_index, seed=seed
        )
        trace.num_attempts += bool(trace.steps)
        emitted: int | None = None
        restarts, started_at = self._restarts(), time.monotonic()
        try:
            await run_sample(
                self.problems[unit.problem_id],
                self.method,
                self.engines,
                trace,
                self.limits,
                on_step=lambda step: self._record_step(trace, step, admitted),
                on_start=lambda: self.journal.start(trace),
                wording=self.spec.wording,
            )
            trace.num_attempts += self._restarts() > restarts  # its latency holds an engine's start
            self.journal.end(trace)
            self.num_ended += 1
            self._durations.append(time.monotonic() - started_at)
            emitted = trace.emitted_tokens
        finally:
            self.admission.release(admitted, emitted)

    def _record_step(self, trace: Trace, step: Step, admitted: Admitted) -> None:
        self.journal.step(trace, step)
        held = cache_room.step_tokens(self.method, trace, admitted.prompt_tokens)
        self.admission.grew(admitted, trace.emitted_tokens, held)
        self.num_steps += 1

    def _restarts(self) -> int:
        return sum(engine.restarts for engine in self.engines.values())


def seed_of(spec: RunSpec, unit: Unit, problem: Problem, renamed: Callable[[str], str] = str) -> int:
    """Return a sample's seed; the run's seed and the sample's index are part of its id.

    `renamed` returns the id of another sample of the same kind, with other random numbers, for an id.
    """
    if spec.selection is None and spec.reward is None:
        return _number(renamed(unit.sample_id))
    return _number(renamed(spec.drawn_alike().sample_ids(problem)[unit.sample_index]))


def _number(sample_id: str) -> int:
    return int(hashlib.sha256(sample_id.encode()).hexdigest()[:8], 16) >> 1
