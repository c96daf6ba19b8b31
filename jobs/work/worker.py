"""A worker: shards of one run, or of several, on one node. Plain asyncio over many samples; the engines batch them.

A worker gets the paths of run folders and shard numbers, and reads everything else there. It works on one run after the
other, and engines that the next run would start with the same settings stay open. Killed at any moment, it loses only
the steps in flight; started again, it resumes from the journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import psutil

from harness.engines.pool import EnginePool, in_engine_order
from jobs.run.folder import RunFolder, wait_for_plan
from jobs.slurm import client
from jobs.work import node_share
from jobs.work.neighbors import Neighbors
from jobs.work.run_part import RunPart, ShardBusyError, resolve_together

__all__ = ["LAUNCHER_PID", "OutOfTimeError", "RunsFailed", "ShardBusyError", "run_parts", "run_shard"]

LAUNCHER_PID = "HARNESS_LAUNCHER_PID"
"""Environment variable: the process that the worker must not outlive, because it started it (local runs)."""

_SHUTDOWN_SECONDS = 60.0
"""Time before a long limit after which no sample is started: Slurm may send its signal up to a minute early."""
_LOOK_SECONDS = 1.0
"""Time between two looks of a worker without work whether another one has died and left some."""
_MAX_RESTARTS = 100
_REQUEUE_SECONDS = 120.0
"""How long to wait for Slurm to end this process after a requeue."""


class OutOfTimeError(RuntimeError):
    """The time limit was reached before all samples had ended, and the job could not be requeued."""


class RunsFailed(RuntimeError):
    """Some of a worker's runs were stopped by an error; its other runs were worked on. The message is one line."""


def run_shard(folder: str, shard: int) -> int:
    """Run the unfinished samples of one shard; returns the number of samples that ended.

    Raises the error that stopped it, after a clean shutdown.
    """
    return run_parts([(folder, [shard])])


def run_parts(parts: Sequence[tuple[str, list[int]]], job_name: str | None = None) -> int:
    """Run the unfinished samples of shards of several runs, given by run folder; returns how many samples ended.

    The runs are worked on one after the other, those that can share engines together. An error stops only the run that
    it comes from; RunsFailed is raised after the last. A single run raises its error itself. `job_name` names the job
    in Slurm that the runs share: one that leaves it is passed over. Where Slurm starts several tasks for one job
    (`ntasks-per-node`), those on one node take the shards as they are free, and tasks on several divide them.
    """
    end_with_launcher()
    node_share.take_as_slurm_task()
    wait_for_plans(folder for folder, _ in parts)
    worker = Worker(_parts_of_slurm_task(parts, job_name))
    asyncio.run(worker.work_on_all())
    worker.requeue_if_out_of_time()
    worker.raise_failures()
    return worker.num_ended


def wait_for_plans(folders: Iterable[str]) -> None:
    """Wait in a job until it sees the plans, which another machine may have written a moment ago."""
    for folder in folders if client.this_job() else ():
        wait_for_plan(RunFolder(Path(folder)))


def _parts_of_slurm_task(parts: Sequence[tuple[str, list[int]]], job_name: str | None) -> list[RunPart]:
    number, count = node_share.rank()
    is_free = count > 1 and node_share.have_one_node()
    own = [RunPart(*part, job_name) for part in (parts if is_free else node_share.of_this_task(parts))]
    for part in own if is_free else []:
        part.take_freely(number)
    return own


class Worker:
    """One start of a worker: its parts of runs, and the engines that stay open between them."""

    def __init__(self, parts: Sequence[RunPart], neighbors: Neighbors | None = None) -> None:
        """`neighbors` are the other workers of the task, with which the shards are in common."""
        self.parts = parts
        self._neighbors = neighbors
        self.pool = EnginePool()
        self.out_of_time = False
        self.failures: list[tuple[RunPart, Exception]] = []
        self._order: list[RunPart] | None = None
        self._is_stopping = False

    @property
    def num_ended(self) -> int:
        """Number of samples that ended."""
        return sum(part.num_ended for part in self.parts)

    @property
    def num_steps(self) -> int:
        """Number of steps that were accepted."""
        return sum(part.num_steps for part in self.parts)

    @property
    def num_progress(self) -> int:
        """Number of steps that were accepted and samples that ended or were timed: none means no progress."""
        return self.num_steps + self.num_ended + sum(part.num_timed for part in self.parts)

    def in_order(self) -> list[RunPart]:
        """Return the parts in the order of work. What each needs is resolved now, before any engine is open."""
        if self._order is None:
            resolve_together(self.parts)
            needs = [part.needs_or_none() for part in self.parts]
            self.pool.plan(need for of_part in needs for need in of_part)
            self._order = [self.parts[number] for number in in_engine_order(needs)]
        return self._order

    async def work_on_all(self) -> None:
        """Run what is unfinished of all parts, and close the engines.

        Ends early where Slurm's signal before the time limit arrives, or that limit is near.
        """
        with self._until_signals():
            async with self.pool:
                ends_at = _ends_at()
                await self._work_on_each(ends_at)
                if self._neighbors is not None:
                    await self._stand_by(self._neighbors, ends_at)

    async def _work_on_each(self, ends_at: float | None) -> None:
        failed = [part for part, _ in self.failures]
        for number, part in enumerate(part for part in self.in_order() if part not in failed):
            if number and ends_at is not None and time.time() >= ends_at:
                self.out_of_time = True
            if self.out_of_time:
                return
            try:
                await self._work_on(part, ends_at)
            except Exception as error:
                if len(self.parts) == 1:
                    raise
                self._note_failure(part, error)

    async def _stand_by(self, neighbors: Neighbors, ends_at: float | None) -> None:
        """Wait while other workers of the task are at work, and take what those leave that die."""
        are_at_work = True
        while are_at_work and not self.out_of_time:
            neighbors.rest()
            are_at_work = neighbors.are_at_work()  # before the look: the last one may just have died
            await self._work_on_each(ends_at)
            if are_at_work:
                await asyncio.sleep(_LOOK_SECONDS)

    async def work_on(self, part: RunPart) -> None:
        """Run what is unfinished of one part and keep its engines open; raises the error that stopped it."""
        self.in_order()
        with self._until_signals():
            await self._work_on(part, _ends_at())

    def raise_failures(self) -> None:
        """Raise RunsFailed where runs were stopped by errors."""
        if self.failures:
            reasons = "; ".join(f"{part.run.path.name}: {_reason(error)}" for part, error in self.failures)
            message = f"{len(self.failures)} of {len(self.parts)} runs failed: {reasons}"
            raise RunsFailed(message) from self.failures[0][1]

    def requeue_if_out_of_time(self) -> None:
        """Requeue this job where the time limit came first; raises OutOfTimeError where that cannot be done."""
        if self.out_of_time:
            requeue(has_progressed=bool(self.num_progress))

    async def _work_on(self, part: RunPart, ends_at: float | None) -> None:
        try:
            async with part.until_left():
                await part.work(self.pool, ends_at)
        except Exception:
            await self.pool.close()
            raise
        self.out_of_time |= part.is_cut_short

    def _note_failure(self, part: RunPart, error: Exception) -> None:
        self.failures.append((part, error))
        traceback.print_exception(error)
        print(f"{part.run.path.name} stopped with an error; the other runs go on", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def _until_signals(self) -> Iterator[None]:
        """Cancel what this task does when a signal asks for the end; before the time limit that is no error."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], object]] = {
            signal.SIGTERM: lambda: self._stop(task),
            signal.SIGINT: lambda: self._stop(task),
            signal.SIGUSR2: lambda: self._stop_in_time(task),
        }
        self._is_stopping = False
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        except asyncio.CancelledError:
            if not self.out_of_time:
                raise
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _stop_in_time(self, task: asyncio.Task[None]) -> None:
        self.out_of_time |= not self._is_stopping
        self._stop(task)

    def _stop(self, task: asyncio.Task[None]) -> None:
        """Cancel once: Slurm and the task may both send a signal, and a second one would break off the clean-up."""
        if not self._is_stopping:
            self._is_stopping = True
            task.cancel()


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def _ends_at() -> float | None:
    """Return when this job should start no more samples, in seconds since the epoch.

    That is its time limit less the time by which Slurm's signal may come early; None where there is no limit, or none
    that is known.
    """
    job = client.this_job()
    if job is None:
        return None
    try:
        end = client.end_time(job)
    except client.SlurmError:
        return None  # the signal before the end still comes
    now = time.time()
    return None if end is None else end - min(_SHUTDOWN_SECONDS, 0.1 * max(0.0, end - now))


def requeue(*, has_progressed: bool) -> None:
    """Requeue this job, as often as it makes progress; raises OutOfTimeError where that cannot be done."""
    job = client.this_job()
    if not has_progressed:
        raise OutOfTimeError("the time limit was reached before a single step was accepted: it is too short")
    if job is None or int(os.environ.get("SLURM_RESTART_COUNT", "0")) >= _MAX_RESTARTS:
        raise OutOfTimeError(
            f"the time limit was reached, and this is not a Slurm job or was restarted {_MAX_RESTARTS} times"
        )
    client.requeue(job)
    time.sleep(_REQUEUE_SECONDS)  # Slurm ends this process
    raise OutOfTimeError(f"job {job} was requeued, but Slurm did not end this process")


def end_with_launcher() -> None:
    """End this worker when the launcher that it must not outlive has ended."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None or int(launcher) == os.getpid():
        return

    def watch() -> None:
        while psutil.pid_exists(int(launcher)):
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()
