"""A run's part in the work of one worker: the unfinished samples of some of its shards, over engines from a pool."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path

from filelock import Timeout

from harness import environment
from harness.cli.messages import counted
from harness.engines.calls import taking_turns
from harness.engines.pool import EngineNeed, EnginePool
from harness.methods import Method, build
from harness.problems.problem import Problem
from jobs.run import codes, endings, submissions
from jobs.run import timing as timings
from jobs.run.derived import are_logprobs_asked
from jobs.run.endings import RunState, by_shard
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter, read_journal
from jobs.run.spec import RunSpec, Unit
from jobs.work.attempt import new_attempt
from jobs.work.engine_settings import engine_needs
from jobs.work.shard_run import ShardRun, TakenShard, TimingRun, units_to_time

_LOCK_SECONDS = 3.0
"""How long to wait for a shard's lock: longer than a compaction holds it."""

_LEFT_POLL_SECONDS = 5.0
"""Time between two looks whether the run has left the job that it shares."""


_MAX_DEATHS = 1
"""Number of workers of a task that may die over a shard until the others leave it alone."""
_TWICE = "two workers ended before it was finished"


class ShardBusyError(RuntimeError):
    """Another process holds the lock of this shard."""


class RunPart:
    """Some shards of one run, as one worker runs them."""

    def __init__(
        self, folder: str | Path, shards: Sequence[int], shared_job: str | None = None, first: int | None = None
    ) -> None:
        """Nothing is read or locked yet. `shared_job` names the job that does this, where the run shares it.

        `first`: the shards are in common with other workers. `work` takes one after the other as they are free, and
        begins its search at this place.
        """
        self.run, self.shards, self.shared_job = RunFolder(Path(folder)), list(shards), shared_job
        self.num_ended = self.num_steps = self.num_timed = 0
        self.is_cut_short = False
        """True if samples were not started because the time left was too short."""
        self.is_held_by_others = False
        """Whether another worker was seen at work on the shards that are in common, or times the run's samples."""
        self.free = None if first is None else FreeShards(self.run, self.shards, first)
        """The shards, where other workers take them too; None where all are this worker's."""
        self.kv_bytes: int | None = None
        """Size of the KV caches on a CPU, for `needs`; None: by the memory that is free when they are resolved."""

    @cached_property
    def spec(self) -> RunSpec:
        """The run's specification."""
        return self.run.spec()

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """The run's problems by id."""
        return {problem.id: problem for problem in self.run.problems()}

    @cached_property
    def method(self) -> Method:
        """The run's method. Raises BadMethod where it is not part of this package and cannot be loaded."""
        codes.method_of(self.run)
        return build(self.spec.method, dict(self.spec.params))

    @cached_property
    def needs(self) -> list[EngineNeed]:
        """The engines that the run would start alone on this node; resolved at the first use.

        Raises ValueError where this node cannot start them.
        """
        return engine_needs(self.run, self.spec, self.method, self.problems.values(), self.kv_bytes)

    @contextlib.asynccontextmanager
    async def until_left(self) -> AsyncIterator[None]:
        """Cancel what this task does, without an error, as soon as the run has left the job that it shares."""
        task, left = asyncio.current_task(), asyncio.Event()
        assert task is not None

        async def watch() -> None:
            while self.shared_job not in submissions.left(self.run):
                await asyncio.sleep(_LEFT_POLL_SECONDS)
            left.set()
            task.cancel()

        watching = asyncio.create_task(watch()) if self.shared_job else None
        try:
            yield
        except asyncio.CancelledError:
            if not left.is_set() or task.uncancel() > 0:
                raise
        finally:
            if watching is not None:
                watching.cancel()

    async def work(self, pool: EnginePool, ends_at: float | None) -> None:
        """Run what is unfinished of the shards, while this worker holds their locks.

        Shards in common with other workers are those that are free, until none is; this may be called again later.

        `ends_at`: when to start no more samples, in seconds since the epoch. Raises ShardBusyError and the error that
        stopped it, after a clean shutdown.
        """
        if self.shared_job in submissions.left(self.run):
            return
        with contextlib.ExitStack() as locks:
            if self.free is not None:
                _check_shards(self.run, self.shards)
                if (taken := self.free.take(locks)) is not None:
                    further = partial(self.free.take, locks)
                    await self._run(pool, ends_at, self.run, *taken, further)
                self.is_held_by_others = self.free.is_held_by_others
                if taken is None and not self.is_held_by_others:
                    await self._time(pool, ends_at)
                return
            for shard in self.shards:
                try:
                    locks.enter_context(self.run.shard_lock(shard, _LOCK_SECONDS))
                except Timeout as timeout:
                    message = f"shard {shard} of {self.run.path.name} is locked by another process"
                    raise ShardBusyError(message) from timeout
            _check_shards(self.run, self.shards)
            state = endings.read_state(self.run, self.shards)
            # By sample over several shards too: a run cut short has seen every problem about equally often.
            units = [unit for shard in self.shards for unit in self.run.shard(shard)]
            todo = [unit for unit in units if unit.sample_id not in state.finished]
            todo.sort(key=attrgetter("sample_index"))
            if todo:
                await self._run(pool, ends_at, self.run, self.shards[0], todo, state)
            await self._time(pool, ends_at)

    async def _time(self, pool: EnginePool, ends_at: float | None) -> None:
        """Time samples again, one at a time, where all samples of the run have ended and no other worker does it."""
        if self.is_cut_short or not timings.num_asked(self.run):
            return
        folder = timings.TimingFolder(self.run.path)
        with contextlib.ExitStack() as locks:
            try:
                locks.enter_context(folder.lock("timing", _LOCK_SECONDS))
            except Timeout:
                self.is_held_by_others = self.free is not None
                return
            if todo := units_to_time(self.run, self.problems, self.spec.seed):
                # The engines have forgotten the prompts of the full batches: they are leased again.
                await self._run(pool, ends_at, folder, self.shards[0], todo, RunState())

    async def _run(
        self,
        pool: EnginePool,
        ends_at: float | None,
        folder: RunFolder,
        shard: int,
        todo: list[Unit],
        state: RunState,
        further: Callable[[], TakenShard | None] | None = None,
    ) -> None:
        """Run samples in an attempt whose journal, and then trace file, lie in a folder; `shard` is its first shard."""
        other_codes, load = codes.claim(self.run), environment.load()
        engines = await pool.lease(self.needs, self.run.logs_dir / f"shard-{shard}")
        attempt = new_attempt(self.run, shard, engines, other_codes, load)
        journal = JournalWriter(folder.journal_dir / f"{attempt.attempt_id}.jsonl", attempt)
        used = taking_turns(engines) if self.spec.engine.take_turns else engines
        is_timing = isinstance(folder, timings.TimingFolder)
        kind = TimingRun if is_timing else ShardRun
        samples = kind(self.spec, self.method, self.problems, used, journal, state, ends_at)
        try:
            await samples.run_all(todo, further)
        finally:
            journal.close()
            endings.compact_own(folder, journal.path)
            if is_timing:
                self.num_timed += samples.num_ended
            else:
                self.num_ended += samples.num_ended
                self.num_steps += samples.num_steps
        self.is_cut_short |= samples.num_ended < samples.num_asked
        if not (is_timing or self.is_cut_short) and are_logprobs_asked(self.run):
            from jobs.work.target_logprobs import score_finished

            await score_finished(self.run, self.spec, engines, journal.path)


class FreeShards:
    """Shards of a run that this worker takes one after the other, while others take theirs."""

    def __init__(self, run: RunFolder, shards: Sequence[int], first: int = 0) -> None:
        """Nothing is read yet. The search begins with the largest shard, and of equal ones at place `first`."""
        self._first, first = first, first % max(1, len(shards))
        self._run, self._shards = run, [*shards[first:], *shards[:first]]
        self.is_held_by_others = False
        """Whether the last search met a shard that another worker has."""
        self._done: set[int] = set()
        """Shards that are finished, that this worker has, or that are given up."""
        self._begun_at: float | None = None

    def take(self, locks: contextlib.ExitStack) -> TakenShard | None:
        """Lock the next shard that is free and unfinished, until `locks` closes; None where there is none now."""
        if self._begun_at is None:
            self._begun_at = time.time()
            ended = by_shard(self._run, endings.read_state(self._run, self._shards).endings)
            # The largest first: one that is begun last would keep all others waiting.
            self._shards.sort(key=lambda shard: ended.finished[shard] - ended.planned[shard])
        self.is_held_by_others = False
        for number in [shard for shard in self._shards if shard not in self._done]:
            with contextlib.ExitStack() as lock:
                try:
                    lock.enter_context(self._run.shard_lock(number))
                except Timeout:
                    self.is_held_by_others = True
                    continue
                taken = self._unfinished(number, self._begun_at)
                self._done.add(number)
                if taken is not None:
                    locks.push(lock.pop_all())
                    locks.callback(self._done.discard, number)
                    self._say(f"takes shard {number} of {self._run.path.name}")
                    return taken
        return None

    def _unfinished(self, number: int, begun_at: float) -> TakenShard | None:
        """Return a shard that is locked; None where it is finished, or where workers died over it since `begun_at`."""
        units = self._run.shard(number)
        samples = {unit.sample_id for unit in units}
        state = endings.read_state(self._run, self._shards, samples)
        todo = [unit for unit in units if unit.sample_id not in state.finished]
        if todo and state.unfinished and self._deaths(samples, begun_at) > _MAX_DEATHS:
            self._say(f"leaves shard {number} of {self._run.path.name} alone: {_TWICE}")
            return None
        return (number, todo, state) if todo else None

    def _deaths(self, samples: set[str], begun_at: float) -> int:
        """Return how many attempts have left samples of a locked shard unfinished since then."""
        deaths = 0
        for path in submissions.files_of_shards(self._run, self._shards, self._run.journals()):
            with contextlib.suppress(FileNotFoundError):
                is_new = path.stat().st_mtime >= begun_at
                deaths += is_new and not samples.isdisjoint(read_journal(path).unfinished)
        return deaths

    def _say(self, what: str) -> None:
        print(f"worker {self._first} {what}", file=sys.stderr, flush=True)


def _check_shards(run: RunFolder, shards: Sequence[int]) -> None:
    if max(shards, default=-1) >= (num_shards := run.num_shards()):
        has = f"{run.path.name} has {counted(num_shards, 'shard')}"
        raise ValueError(f"{has} and no shard {max(shards)}: its samples were assigned again")
