"""Checks in processes of their own, each under a time limit: one that hangs fails, and the next ones are made."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from harness.acceptance.catalog import START_LIMIT_SECONDS, Check
from harness.acceptance.outcome import Measurement, Outcome
from harness.acceptance.plan import Plan

_LOG_LINES = 20
_CLOSE_SECONDS = 60.0
"""How long a group's engines may take to close once all of its checks are made."""
_GRACE_SECONDS = 10.0
_OWN_LOG = "group.log"
COMMAND = (sys.executable, "-m", "harness.acceptance.group")


@dataclass(frozen=True)
class Supervisor:
    """How groups of checks are run."""

    plan: Plan
    say: Callable[[str], None]
    """Is told lines of progress."""
    time_limit: float | None = None
    """Seconds that any check may take, engine starts included; None: each check's own limit."""
    command: Sequence[str] = COMMAND

    def run(self, checks: Sequence[Check]) -> Iterator[Outcome]:
        """Make the checks in their order, and yield each outcome as it ends."""
        for _, members in groupby(checks, key=lambda check: check.group):
            remaining = list(members)
            while remaining:
                for outcome in self._run_group(remaining):
                    yield outcome
                    remaining = [check for check in remaining if check.name != outcome.check]

    def _run_group(self, checks: Sequence[Check]) -> Iterator[Outcome]:
        """Yield outcomes until all checks are made, or one of them took the process with it."""
        log = Path(self.plan.work) / _OWN_LOG
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self.command, *(check.name for check in checks)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, **self._environment()},
                start_new_session=True,
                text=True,
            )
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it ended at once; the end of its output says so
                process.stdin.write(self.plan.to_json() + "\n")
                process.stdin.flush()
            yield from self._follow(process, {check.name: check for check in checks})
        finally:
            end(process)

    def _follow(self, process: subprocess.Popen[str], checks: Mapping[str, Check]) -> Iterator[Outcome]:
        lines = _lines(process)
        waiting = list(checks)
        begun, limit = time.monotonic(), self._limit(checks[waiting[0]])
        while waiting:
            line = _next(lines, begun + limit - time.monotonic())
            if line is None:
                reason = f"no answer within {limit:.0f} s"
                yield self._failed(waiting[0], reason, time.monotonic() - begun)
                return
            event = _event(line)
            if line == "":
                reason = f"its process ended with {_ending(process)}"
                yield self._failed(waiting[0], reason, time.monotonic() - begun)
                return
            if event.get("event") == "begin":
                begun, limit = time.monotonic(), self._limit(checks[event["check"]])
                self.say(f"{event['check']}: {checks[event['check']].shows}")
            elif event.get("event") == "starting" and self.time_limit is None:
                limit += START_LIMIT_SECONDS
            elif event.get("event") == "say":
                self.say(event["text"])
            elif event.get("event") == "end":
                outcome = _outcome(event["outcome"])
                waiting.remove(outcome.check)
                yield self._with_log(outcome) if outcome.status == "FAIL" else outcome
        _next(lines, _CLOSE_SECONDS)

    def _limit(self, check: Check) -> float:
        return check.limit_seconds if self.time_limit is None else self.time_limit

    def _failed(self, name: str, reason: str, seconds: float) -> Outcome:
        return self._with_log(Outcome(name, "FAIL", reason, seconds=seconds))

    def _with_log(self, outcome: Outcome) -> Outcome:
        return replace(outcome, log=tuple(last_output(Path(self.plan.work))))

    def _environment(self) -> Mapping[str, str]:
        """Return variables for engines that ask no network and, on a GPU, find nothing compiled."""
        offline = {"HF_HUB_OFFLINE": "1"}
        if self.plan.device == "cpu":
            return offline
        caches = Path(self.plan.work) / "caches"
        return {
            **offline,
            "VLLM_CACHE_ROOT": str(caches / "vllm"),
            "TRITON_CACHE_DIR": str(caches / "triton"),
            "TORCHINDUCTOR_CACHE_DIR": str(caches / "inductor"),
            "FLASHINFER_WORKSPACE_BASE": str(caches / "flashinfer"),
            "CUDA_CACHE_PATH": str(caches / "cuda"),
        }


def end(process: subprocess.Popen[str]) -> None:
    """End a process, at first by closing its stdin, and kill what is left of it and below it."""
    below: list[psutil.Process] = []
    with contextlib.suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS if process.poll() is None and not below else 1.0)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(below, timeout=1.0)
    for left in alive:
        with contextlib.suppress(psutil.Error):
            left.kill()
    psutil.wait_procs(alive, timeout=_GRACE_SECONDS)


def last_output(folder: Path, lines: int = _LOG_LINES) -> list[str]:
    """Return the last lines that the engines or their group wrote, whichever wrote last."""
    logs = [path for path in folder.rglob("*.log") if path.stat().st_size]
    if not logs:
        return []
    latest = max(logs, key=lambda path: path.stat().st_mtime)
    text = latest.read_text("utf-8", "replace")
    return [f"{latest.relative_to(folder)}:", *[line for line in text.splitlines() if line.strip()][-lines:]]


def _lines(process: subprocess.Popen[str]) -> queue.Queue[str]:
    """Return the process's lines as they come; an empty one is the end."""
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    threading.Thread(target=read, name="acceptance-events", daemon=True).start()
    return lines


def _next(lines: queue.Queue[str], seconds: float) -> str | None:
    try:
        return lines.get(timeout=max(0.0, seconds))
    except queue.Empty:
        return None


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _outcome(record: dict[str, Any]) -> Outcome:
    measurements = tuple(Measurement.from_data(measurement) for measurement in record["measurements"])
    return Outcome(record["check"], record["status"], record["reason"] or "", measurements, record["seconds"])


def _ending(process: subprocess.Popen[str]) -> str:
    code = process.wait()
    return f"signal {-code}" if code < 0 else f"exit code {code}"
