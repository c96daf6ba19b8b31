"""A worker's part of a run: the unfinished samples of some of its shards, with engines from a pool."""

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
from jobs.run.spec import RunSpec
from jobs.work.attempt import new_attempt
from jobs.work.engine_settings import engine_needs
from jobs.work.shard_run import ShardRun, TakenShard, TimingRun, units_to_time

_LOCK_SECONDS = 3.0
"""How long to wait for a shard's lock: longer than a compaction holds it."""

_LEFT_POLL_SECONDS = 5.0
"""Interval for checking whether the run has withdrawn from its shared job."""


_MAX_DEATHS = 1
"""Number of workers of a task that may die on a shard before it is skipped."""
_TWICE = "at least two workers exited before finishing it"


class ShardBusyError(RuntimeError):
    """Another process holds the lock of this shard."""


class RunPart:
    """Some shards of one run, as executed by one worker."""

    def __init__(
        self, folder: str | Path, shards: Sequence[int], shared_job: str | None = None, first: int | None = None
    ) -> None:
        """Nothing is read or locked yet. `shared_job`: the name of the job if the run shares it.

        If `first` is given, the shards are shared with other workers: `work` takes free shards one after the other, and
        of those with equally many unfinished samples, it tries the one at this index first.
        """
        self.run, self.shards, self.shared_job = RunFolder(Path(folder)), list(shards), shared_job
        self.num_ended = self.num_steps = self.num_timed = 0
        self.is_cut_short = False
        """True if samples were not started because the remaining time was too short."""
        self.is_held_by_others = False
        """Whether another worker holds shared shards, or times the run's samples."""
        self.free = None if first is None else FreeShards(self.run, self.shards, first)
        """The shards if shared with other workers; None if all belong to this worker."""
        self.kv_bytes: int | None = None
        """Size of the KV caches on a CPU, in bytes, for `needs`; None: chosen from free memory when `needs` is read."""

    @cached_property
    def spec(self) -> RunSpec:
        return self.run.spec()

    @cached_property
    def problems(self) -> dict[str, Problem]:
        """The run's problems by id."""
        return {problem.id: problem for problem in self.run.problems()}

    @cached_property
    def method(self) -> Method:
        """The run's method. Raises BadMethod if it is not part of this package and cannot be loaded."""
        codes.method_of(self.run)
        return build(self.spec.method, dict(self.spec.params))

    @cached_property
    def needs(self) -> list[EngineNeed]:
        """The engines that the run needs on this node; resolved at the first use.

        Raises ValueError if this node cannot start them.
        """
        return engine_needs(self.run, self.spec, self.method, self.problems.values(), self.kv_bytes)

    @contextlib.asynccontextmanager
    async def until_left(self) -> AsyncIterator[None]:
        """Cancel the current task, without an error, when the run withdraws from its shared job."""
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
        """Run the unfinished samples of the shards while holding their locks.

        If shards are shared with other workers, take free ones until there are none; may be called again later.

        `ends_at`: time by which samples should have ended, in seconds since the epoch. After a clean shutdown, raises
        ShardBusyError or the error that stopped the work.
        """
        if self.shared_job in submissions.left(self.run):
            return
        with contextlib.ExitStack() as locks:
            if self.free is not None:
                _check_shards(self.run, self.shards)
                if (taken := self.free.take(locks)) is not None:
                    await self._run(pool, ends_at, self.run, taken, partial(self.free.take, locks))
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
            # Order by sample index across shards, so an interrupted run covers all problems about equally.
            units = [unit for shard in self.shards for unit in self.run.shard(shard)]
            todo = [unit for unit in units if unit.sample_id not in state.finished]
            todo.sort(key=attrgetter("sample_index"))
            if todo:
                await self._run(pool, ends_at, self.run, (self.shards[0], todo, state))
            await self._time(pool, ends_at)

    async def _time(self, pool: EnginePool, ends_at: float | None) -> None:
        """Rerun timing samples one at a time if all samples have ended and no other worker is doing so."""
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
                # Lease the engines again, which clears the prompts of the full batches.
                await self._run(pool, ends_at, folder, (self.shards[0], todo, RunState()))

    async def _run(
        self,
        pool: EnginePool,
        ends_at: float | None,
        folder: RunFolder,
        taken: TakenShard,
        further: Callable[[], TakenShard | None] | None = None,
    ) -> None:
        """Run samples as one attempt that writes its journal and trace file to `folder`; `taken`: its first shard."""
        shard, todo, state = taken
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
    """Shared shards of a run that workers take one after the other."""

    def __init__(self, run: RunFolder, shards: Sequence[int], first: int = 0) -> None:
        """The search starts at the shard with the most unfinished samples; of equals, at the one at index `first`."""
        self._first, first = first, first % max(1, len(shards))
        self._run, self._shards = run, [*shards[first:], *shards[:first]]
        self.is_held_by_others = False
        """Whether the last search found a shard held by another worker."""
        self._done: set[int] = set()
        """Shards that are finished, taken by this worker, or skipped because workers died on them."""
        self._begun_at: float | None = None

    def take(self, locks: contextlib.ExitStack) -> TakenShard | None:
        """Lock the next free unfinished shard until `locks` closes; None if there is none."""
        if self._begun_at is None:
            self._begun_at = time.time()
            ended = by_shard(self._run, endings.read_state(self._run, self._shards).endings)
            # Start with the largest: starting it last would keep all other workers waiting.
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
                    self._say(f"runs shard {number} of {self._run.path.name}")
                    return taken
        return None

    def _unfinished(self, number: int, begun_at: float) -> TakenShard | None:
        """Return a locked shard; None if it is finished or workers died on it since `begun_at`."""
        units = self._run.shard(number)
        samples = {unit.sample_id for unit in units}
        state = endings.read_state(self._run, self._shards, samples)
        todo = [unit for unit in units if unit.sample_id not in state.finished]
        if todo and state.unfinished and self._deaths(samples, begun_at) > _MAX_DEATHS:
            self._say(f"skips shard {number} of {self._run.path.name}: {_TWICE}")
            return None
        return (number, todo, state) if todo else None

    def _deaths(self, samples: set[str], begun_at: float) -> int:
        """Return how many attempts since `begun_at` left samples of a locked shard unfinished."""
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
        raise ValueError(f"{has}, and no shard {max(shards)}: the samples were reassigned")
