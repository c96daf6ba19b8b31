"""Workers on the launching machine: in separate processes, or in the launcher's process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import gpus
from harness.engines import placement
from harness.environment import accelerator
from harness.methods import build
from jobs.run.files import opened
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from jobs.watch import exit_reasons
from jobs.work.worker import LAUNCHER_PID


@dataclass
class InProcessJob:
    """An in-process worker; it runs on the first poll."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    log: Path
    """Path of the log, written if the worker fails; a log from an earlier start is removed."""
    _failure: RuntimeError | None = field(default=None, init=False)
    _has_ended: bool = field(default=False, init=False)

    def done(self) -> bool:
        """Run the job unless it has run; always return True. Raises KeyboardInterrupt if a signal ended the job."""
        if not self._has_ended:
            self._has_ended = True
            self.log.unlink(missing_ok=True)
            try:
                self.function(*self.arguments)
            except asyncio.CancelledError as interrupt:  # on Ctrl-C, workers shut down cleanly
                raise KeyboardInterrupt from interrupt
            except Exception as error:  # noqa: BLE001 reported like the failure of a worker process
                self._failure = RuntimeError(exit_reasons.report(error))
                self._failure.__cause__ = error
                self.log.parent.mkdir(parents=True, exist_ok=True)
                with os.fdopen(opened(self.log, os.O_EXCL), "w", encoding="utf-8") as file:
                    file.write(str(self._failure))
        return True

    def exception(self) -> RuntimeError | None:
        """Return an error with the traceback if the job failed, else None."""
        self.done()
        return self._failure

    def cancel(self) -> None:
        """Mark the job as ended: it ran in this process, so the interrupt has already stopped it."""
        self._has_ended = True


@dataclass
class ProcessJob:
    """A worker in a separate process."""

    process: subprocess.Popen[bytes]
    log: Path

    def done(self) -> bool:
        """Return True if the process has ended."""
        return self.process.poll() is not None

    def exception(self) -> RuntimeError | None:
        """Wait for the process; return an error with its log if it failed, else None."""
        return RuntimeError(self.log.read_text(encoding="utf-8", errors="replace")) if self.process.wait() else None

    def cancel(self) -> None:
        """Ask the worker to shut down cleanly."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)


Job = InProcessJob | ProcessJob
"""A worker started on this machine."""


def start_workers(logged_in: RunFolder, shards: Sequence[tuple[RunFolder, list[int]]]) -> list[ProcessJob]:
    """Start worker processes on this machine, at most as many as a run has shards; each takes a share of every run."""
    shares = _shares(shards)
    folder = logged_in.logs_dir / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    jobs = []
    for number, parts in enumerate(shares):
        share = json.dumps({"parts": parts, "number": number, "count": len(shares)})
        log = folder / f"{os.getpid()}-{number}_0_log.err"
        logs = [os.fdopen(opened(path, os.O_TRUNC), "wb") for path in (log, log.with_suffix(".out"))]
        with logs[0] as errors, logs[1] as output:
            process = subprocess.Popen(
                [sys.executable, "-u", "-m", "jobs.submission.task", "here", share],
                env={**os.environ, LAUNCHER_PID: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,  # the launcher forwards Ctrl-C
            )
        jobs.append(ProcessJob(process, log))
    return jobs


def _shares(shards: Sequence[tuple[RunFolder, list[int]]]) -> list[list[tuple[str, list[int]]]]:
    """Divide the shards of each run among as many workers as this machine has GPUs for; return each worker's part."""
    count = max(len(of_run) for _, of_run in shards)
    if count and accelerator() == "gpu" and (cards := len(gpus.visible_gpus())):
        needed = max(num_cards(run.spec()) for run, of_run in shards if of_run)
        count = min(count, max(1, cards // needed))
    return [[(str(run.path), own) for run, of_run in shards if (own := of_run[n::count])] for n in range(count)]


def num_cards(spec: RunSpec) -> int:
    """Return the number of GPUs for one worker's engines, as far as the specification determines it."""
    on_servers = {role for role, model in spec.models.items() if model is not None and model.server is not None}
    roles = [role for role in build(spec.method, dict(spec.params)).roles if role not in on_servers]
    named = {role: own.gpus for role, own in spec.settings.items() if role in roles}
    return placement.num_cards(named, {role: spec.settings[role].tensor_parallel or 1 for role in roles})
