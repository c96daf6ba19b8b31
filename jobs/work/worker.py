"""A worker: one shard, or several, on one node. Plain asyncio over many samples; the engines batch them.

A worker gets the path of a run folder and shard numbers, and reads everything else there. Killed at any moment, it
loses only the steps in flight; started again, it resumes from the journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import psutil
from filelock import Timeout

from harness.engines import factory
from harness.engines.turns import taking_turns
from harness.methods import build
from harness.plural import counted
from jobs.run import state as run_state
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter
from jobs.run.spec import Unit
from jobs.run.wording import check_prompts
from jobs.slurm import client
from jobs.submission import snapshot
from jobs.work.attempt import new_attempt
from jobs.work.engine_settings import engine_settings
from jobs.work.shard_run import ShardRun

LAUNCHER_PID = "HARNESS_LAUNCHER_PID"
"""Environment variable: the process that the worker must not outlive, because it started it (local runs)."""

_LOCK_SECONDS = 3.0
"""How long to wait for a shard's lock: longer than a compaction holds it."""
_SHUTDOWN_SECONDS = 60.0
"""Time before a long limit after which no sample is started: Slurm may send its signal up to a minute early."""
_MAX_RESTARTS = 100
_REQUEUE_SECONDS = 120.0
"""How long to wait for Slurm to end this process after a requeue."""


class ShardBusyError(RuntimeError):
    """Another process holds the lock of this shard."""


class OutOfTimeError(RuntimeError):
    """The time limit was reached before all samples had ended, and the job could not be requeued."""


def run_shard(folder: str, shard: int) -> int:
    """Run the unfinished samples of one shard; returns the number of samples that ended.

    Raises the error that stopped it, after a clean shutdown.
    """
    return run_shards(folder, [shard])


def run_shards(folder: str, shards: list[int]) -> int:
    """Run the unfinished samples of several shards over one start of the engines; returns how many samples ended.

    Where Slurm's time limit comes first, the steps under way are recorded and the job is requeued. Raises the error
    that stopped it, after a clean shutdown.
    """
    snapshot.require()
    run = RunFolder(Path(folder))
    _end_with_launcher()
    with contextlib.ExitStack() as locks:
        for shard in shards:
            try:
                locks.enter_context(run.shard_lock(shard, _LOCK_SECONDS))
            except Timeout as timeout:
                raise ShardBusyError(f"shard {shard} of {run.path.name} is locked by another process") from timeout
        worker = _Worker(run, shards)
        asyncio.run(worker.work())
    if worker.out_of_time:
        _requeue(worker)
    return worker.num_ended


class _Worker:
    """One start of a worker."""

    def __init__(self, run: RunFolder, shards: list[int]) -> None:
        self.run, self.shards = run, shards
        self.num_ended = self.num_steps = 0
        self.out_of_time = False

    async def work(self) -> None:
        """Run the unfinished samples; ends early where Slurm's signal before the time limit arrives."""
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        loop.add_signal_handler(signal.SIGUSR2, self._stop_in_time, task)
        try:
            await self._work()
        except asyncio.CancelledError:
            if not self.out_of_time:
                raise

    def _stop_in_time(self, task: asyncio.Task[None]) -> None:
        self.out_of_time = True
        task.cancel()

    async def _work(self) -> None:
        run, spec = self.run, self.run.spec()
        problems = {p.id: p for p in run.problems()}
        state = run_state.read_state(run, self.shards)
        todo = [unit for unit in _units(run, self.shards) if unit.sample_id not in state.finished]
        if not todo:
            return
        check_prompts(spec)
        method = build(spec.method, dict(spec.params))
        settings = engine_settings(spec, method, problems.values())
        started = time.monotonic()
        logs = run.logs_dir / f"shard-{self.shards[0]}"
        async with factory.open_engines(spec.draft, spec.target, method.roles, settings, logs) as engines:
            attempt = new_attempt(run, self.shards[0], engines, settings, time.monotonic() - started)
            used_engines = taking_turns(engines) if spec.engine.take_turns else engines
            journal = JournalWriter(run.journal_dir / f"{attempt.attempt_id}.jsonl", attempt)
            samples = ShardRun(spec, method, problems, used_engines, journal, state, _ends_at())
            try:
                await samples.run_all(todo)
            finally:
                journal.close()
                run_state.compact_own(run, journal.path)
                self.num_ended, self.num_steps = samples.num_ended, samples.num_steps
        self.out_of_time |= self.num_ended < len(todo)


def _units(run: RunFolder, shards: list[int]) -> list[Unit]:
    num_shards = run.num_shards()
    for shard in shards:
        if not 0 <= shard < num_shards:
            raise ValueError(
                f"{run.path.name} has {counted(num_shards, 'shard')} and no shard {shard}: "
                "its samples were assigned again"
            )
    # Over several shards too: a run cut short has seen every problem about equally often.
    return sorted((unit for shard in shards for unit in run.shard(shard)), key=lambda unit: unit.sample_index)


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


def _requeue(worker: _Worker) -> None:
    """Requeue this job, as often as it makes progress; raises OutOfTimeError where that cannot be done."""
    job = client.this_job()
    if not worker.num_steps + worker.num_ended:
        raise OutOfTimeError("the time limit was reached before a single step was accepted: it is too short")
    if job is None or int(os.environ.get("SLURM_RESTART_COUNT", "0")) >= _MAX_RESTARTS:
        raise OutOfTimeError(
            f"the time limit was reached, and this is not a Slurm job or was restarted {_MAX_RESTARTS} times"
        )
    client.requeue(job)
    time.sleep(_REQUEUE_SECONDS)  # Slurm ends this process
    raise OutOfTimeError(f"job {job} was requeued, but Slurm did not end this process")


def _end_with_launcher() -> None:
    """End this worker when the launcher that it must not outlive has ended."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None or int(launcher) == os.getpid():
        return

    def watch() -> None:
        while psutil.pid_exists(int(launcher)):
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()
