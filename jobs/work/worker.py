"""A worker: one shard, or several, on one node. Plain asyncio over many samples; the engines batch them.

A worker gets the path of a run folder and shard numbers, and reads everything else there. Killed at any moment, it
loses only the steps in flight; started again, it resumes from the journals.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import psutil
from filelock import Timeout

from harness import environment
from harness.context import required_context_tokens
from harness.engine import Engine, Role
from harness.engines import adapter, factory
from harness.engines.settings import EngineSettings, Kind, pair_settings
from harness.engines.speculation import DraftSampling, Proposer, Speculation, unsupported_reason
from harness.engines.turns import taking_turns
from harness.methods import Method, build
from harness.plural import counted
from harness.problems.problem import Problem
from harness.prompts import THINK_END
from jobs.run import state as run_state
from jobs.run.endings import attempt_name
from jobs.run.folder import RunFolder
from jobs.run.journal import JournalWriter
from jobs.run.spec import Attempt, RunSpec, Unit
from jobs.run.wording import check_prompts
from jobs.slurm import client
from jobs.submission import snapshot
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
        settings = _settings(spec, method, problems.values())
        started = time.monotonic()
        logs = run.logs_dir / f"shard-{self.shards[0]}"
        async with factory.open_engines(spec.draft, spec.target, method.roles, settings, logs) as engines:
            attempt = _attempt(run, self.shards[0], engines, time.monotonic() - started)
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


def _settings(spec: RunSpec, method: Method, problems: Iterable[Problem]) -> dict[Role, EngineSettings]:
    engine = spec.engine
    verdict_tokens = method.verdict_tokens(spec.token_budget)
    required_context = required_context_tokens(problems, spec.token_budget, verdict_tokens, spec.wording)
    return pair_settings(
        cast(Kind, engine.kind),
        method.roles,
        dtype=engine.dtype,
        max_context=engine.max_context or required_context,
        tensor_parallel={"draft": engine.draft_tensor_parallel, "target": engine.target_tensor_parallel},
        memory={"draft": engine.draft_memory, "target": engine.target_memory},
        concurrency=spec.concurrency,
        candidates=method.parallel,
        take_turns=engine.take_turns,
        speculation=_speculation(spec),
        adapter=_adapter(spec),
    )


def _speculation(spec: RunSpec) -> Speculation | None:
    """Return the token-level speculation of a run; raises ValueError where this node does not support it."""
    engine = spec.engine
    if engine.spec_decode is None or engine.spec_tokens is None:
        return None
    if reason := unsupported_reason(engine.kind, environment.accelerator(), spec.temperature, engine.spec_decode):
        raise ValueError(reason)
    weights = spec.speculator or (spec.draft if engine.spec_decode == "draft" else None)
    return Speculation(
        cast(Proposer, engine.spec_decode),
        engine.spec_tokens,
        weights.path if weights else None,
        weights.revision if weights else None,
        cast(DraftSampling, engine.spec_sampling or "greedy"),
    )


def _adapter(spec: RunSpec) -> adapter.Adapter | None:
    """Return the adapter of a run; raises ValueError where its folder no longer holds what was planned."""
    if spec.selection is None:
        return None
    selection = adapter.read(spec.selection.path)
    if adapter.fingerprint(Path(selection.path)) != spec.selection.fingerprint:
        raise ValueError(f"the selection adapter in {selection.path} has changed since this run was planned")
    return selection


def _attempt(run: RunFolder, shard: int, engines: Mapping[Role, Engine], startup_seconds: float) -> Attempt:
    now = time.time()
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%f")
    hardware = environment.hardware()
    gpus = hardware.get("gpus") or []
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    return Attempt(
        attempt_id=attempt_name(f"{stamp}-{socket.gethostname()}-{os.getpid()}", run.assignment(), shard),
        run_id=run.path.name,
        shard=shard,
        hostname=socket.gethostname(),
        pid=os.getpid(),
        started_at=now,
        git_commit=environment.git_commit(),
        slurm_job_id=job,
        device=gpus[0]["name"] if gpus else "cpu",
        num_devices=max(1, len(gpus)),
        versions=environment.versions(),
        hardware=hardware,
        engines={
            role: {
                "kv_tokens": engine.kv_tokens,
                "context_tokens": engine.context_tokens,
                "think_end_id": _single_id(engine, THINK_END),
                **_drafts(engine),
            }
            for role, engine in engines.items()
        }
        | {"startup_seconds": startup_seconds},
    )


def _single_id(engine: Engine, text: str) -> int | None:
    """Return the id of a text that is one token; None if it is several."""
    ids = engine.tokenizer.encode(text)
    return ids[0] if len(ids) == 1 else None


def _drafts(engine: Engine) -> dict[str, str]:
    """Return how the engine itself says that proposed tokens are sampled; empty where no model proposes any."""
    method: str | None = getattr(engine, "draft_sample_method", None)
    return {} if method is None else {"draft_sample_method": method}


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
