"""A worker: one shard on one node. Plain asyncio over many samples; the engines batch them.

It is given a run folder and an index, nothing else, and finds everything there. Killed at any moment, it loses the
steps in flight; started again, it goes on from what the journals hold.
"""

from __future__ import annotations

import asyncio
import hashlib
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
from harness.admission import Admission
from harness.chain import Limits
from harness.engine import Engine, Role
from harness.engines import pair
from harness.engines.settings import EngineSettings, Kind, pair_settings
from harness.methods import Method, build
from harness.problem import Problem
from harness.prompts import opening, problem_text
from harness.sample import run_sample
from harness.trace import Trace
from jobs import state as run_state
from jobs.journal import JournalWriter
from jobs.spec import Attempt, RunSpec, Unit
from jobs.store import RunFolder

LAUNCHER_PID = "HARNESS_LAUNCHER_PID"
"""Set where the worker must not outlive the process that started it (local runs)."""


_BYTES_PER_TOKEN = 2
"""Fewer than any benchmark's text has on average, so that a context is large enough before a tokenizer is loaded."""
_PROMPT_RESERVE = 512
"""Tokens of chat template, instructions and a verdict's question."""


_LOCK_SECONDS = 3.0
"""Longer than a compaction holds a shard."""


class ShardBusyError(RuntimeError):
    """Another worker is at this shard."""


def run_shard(folder: str, shard: int) -> int:
    """Run what is left of one shard; returns the number of samples that ended. Raises what broke, after a clean
    shutdown."""
    run = RunFolder(Path(folder))
    _follow_launcher()
    try:
        with run.shard_lock(shard, _LOCK_SECONDS):
            return asyncio.run(_work(run, shard))
    except Timeout as busy:
        raise ShardBusyError(f"shard {shard} of {run.path.name} is being worked on by another process") from busy


async def _work(run: RunFolder, shard: int) -> int:
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    spec, problems = run.spec(), {p.id: p for p in run.problems()}
    state = run_state.read_state(run)
    shards = run.shards()
    if not 0 <= shard < len(shards):
        raise ValueError(f"{run.path.name} has {len(shards)} shards, there is no shard {shard}: they were dealt again")
    todo = [unit for unit in shards[shard] if unit.sample_id not in state.finished]
    if not todo:
        return 0
    method = build(spec.method, dict(spec.params))
    settings = _settings(spec, method, problems.values())
    started = time.monotonic()
    async with pair.open_engines(
        spec.draft, spec.target, method.roles, settings, run.logs_dir / f"shard-{shard}"
    ) as engines:
        attempt = _attempt(run, shard, engines, time.monotonic() - started)
        journal = JournalWriter(run.journal_dir / f"{attempt.attempt_id}.jsonl", attempt)
        try:
            shard_run = ShardRun(spec, method, problems, engines, journal, state)
            await shard_run.all(todo)
        finally:
            journal.close()
    return shard_run.num_ended


class ShardRun:
    """The samples of one shard in flight over two engines."""

    def __init__(
        self,
        spec: RunSpec,
        method: Method,
        problems: Mapping[str, Problem],
        engines: Mapping[Role, Engine],
        journal: JournalWriter,
        state: run_state.RunState,
    ) -> None:
        self.spec, self.method, self.problems = spec, method, problems
        self.engines, self.journal, self.state = engines, journal, state
        self.limits = Limits(spec.temperature, spec.top_p, spec.token_budget)
        self.num_ended = 0
        rooms = [engine.kv_tokens for engine in engines.values() if engine.kv_tokens is not None]
        self.admission = Admission(min(rooms, default=None), spec.concurrency, spec.token_budget)

    async def all(self, units: list[Unit]) -> None:
        """Run samples as room allows. The first failure of machinery cancels the rest."""
        tokenizer = next(iter(self.engines.values())).tokenizer
        async with asyncio.TaskGroup() as group:
            for unit in units:
                prompt_tokens = len(opening(tokenizer, self.problems[unit.problem_id])[0])
                group.create_task(self._one(unit, await self.admission.admit(prompt_tokens)))

    async def _one(self, unit: Unit, held: int) -> None:
        trace = self.state.unfinished.get(unit.sample_id) or Trace(
            unit.sample_id, unit.problem_id, unit.sample_index, seed=_seed(unit.sample_id)
        )
        trace.num_attempts += bool(trace.steps)
        emitted: int | None = None
        restarts = self._restarts()
        try:
            await run_sample(
                self.problems[unit.problem_id],
                self.method,
                self.engines,
                trace,
                self.limits,
                on_step=lambda step: self.journal.step(trace, step),
                on_start=lambda: self.journal.start(trace),
            )
            trace.num_attempts += self._restarts() > restarts  # its latency holds an engine's start
            self.journal.end(trace)
            self.num_ended += 1
            emitted = trace.emitted_tokens
        finally:
            await self.admission.release(held, emitted)

    def _restarts(self) -> int:
        return sum(engine.restarts for engine in self.engines.values())


def _seed(sample_id: str) -> int:
    """A sample's seed; the run's seed and the sample's index are part of its id."""
    return int(hashlib.sha256(sample_id.encode()).hexdigest()[:8], 16) >> 1


def _settings(spec: RunSpec, method: Method, problems: Iterable[Problem]) -> dict[Role, EngineSettings]:
    engine = spec.engine
    prompt_bytes = max(len(problem_text(p).encode()) for p in problems)
    needed = prompt_bytes // _BYTES_PER_TOKEN + _PROMPT_RESERVE
    needed += spec.token_budget + method.verdict_tokens(spec.token_budget)
    return pair_settings(
        cast(Kind, engine.kind),
        method.roles,
        dtype=engine.dtype,
        max_context=engine.max_context or needed,
        tensor_parallel={"draft": engine.draft_tensor_parallel, "target": engine.target_tensor_parallel},
        memory={"draft": engine.draft_memory, "target": engine.target_memory},
        concurrency=spec.concurrency,
        candidates=method.parallel,
    )


def _attempt(run: RunFolder, shard: int, engines: Mapping[Role, Engine], startup_seconds: float) -> Attempt:
    now = time.time()
    stamp = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%S.%f")
    hardware = environment.hardware()
    gpus = hardware.get("gpus") or []
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    return Attempt(
        attempt_id=f"{stamp}-{socket.gethostname()}-{os.getpid()}-shard{shard}",
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
            role: {"kv_tokens": engine.kv_tokens, "context_tokens": engine.context_tokens}
            for role, engine in engines.items()
        }
        | {"startup_seconds": startup_seconds},
    )


def _follow_launcher() -> None:
    """End this worker when the launcher that it must not outlive is gone."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None or int(launcher) == os.getpid():
        return

    def watch() -> None:
        while psutil.pid_exists(int(launcher)):
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()
