"""Writing a journal; its lines and what a killed writer leaves are described in jobs.run.journal, which reads them."""

from __future__ import annotations

import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from harness.trace import Call, Step, Trace
from jobs.run.digest import FORMAT, FORMAT_KEY, with_checksum
from jobs.run.files import opened
from jobs.run.spec import Attempt

_SYNC_SECONDS = 1.0


class JournalWriter:
    """Appends the events of one attempt. Raises FileExistsError where another attempt has the same name."""

    def __init__(self, path: Path, attempt: Attempt) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self._handle = opened(path, os.O_APPEND | os.O_EXCL)
        self._owner = attempt.attempt_id
        self._written_calls: dict[str, int] = {}
        self._failure: OSError | None = None
        self._dirty = threading.Event()
        self._closed = threading.Event()
        self._syncer = threading.Thread(target=self._sync, name="journal-sync", daemon=True)
        self._syncer.start()
        self._append({"event": "attempt", FORMAT_KEY: FORMAT, **asdict(attempt)})

    def start(self, trace: Trace) -> None:
        """Record that a sample begins, with the steps that it already has."""
        self._written_calls[trace.sample_id] = len(trace.calls)
        self._append({"event": "start", "trace": trace})

    def step(self, trace: Trace, step: Step) -> None:
        """Record an accepted step, with the calls since the step before."""
        self._append(
            {
                "event": "step",
                "sample_id": trace.sample_id,
                "step": step,
                "num_steps": len(trace.steps),
                "calls": self._new_calls(trace),
            }
        )

    def end(self, trace: Trace) -> None:
        """Record that a sample ended."""
        self._append(
            {
                "event": "end",
                "sample_id": trace.sample_id,
                "num_steps": len(trace.steps),
                "calls": self._new_calls(trace),
                "stop_reason": trace.stop_reason,
                "error": trace.error,
                "latency_seconds": trace.latency_seconds,
                "num_attempts": trace.num_attempts,
            }
        )
        del self._written_calls[trace.sample_id]

    def close(self) -> None:
        """Sync and close the file; may be called twice."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._dirty.set()
        self._syncer.join()
        try:
            os.fsync(self._handle)
        finally:
            os.close(self._handle)

    def _new_calls(self, trace: Trace) -> list[Call]:
        num_written = self._written_calls[trace.sample_id]
        self._written_calls[trace.sample_id] = len(trace.calls)
        return trace.calls[num_written:]

    def _append(self, event: dict[str, Any]) -> None:
        if self._failure is not None:  # nothing may be written after a torn line
            raise OSError(f"{self.path}: an earlier write failed: {self._failure}")
        line = with_checksum(orjson.dumps(event), self._owner)
        try:
            written = os.write(self._handle, line)
            if written != len(line):  # a full disk writes part of a line
                raise OSError(f"{self.path}: wrote {written} of {len(line)} bytes; is the disk full?")
        except OSError as failure:
            self._failure = failure
            raise
        self._dirty.set()

    def _sync(self) -> None:
        while not self._closed.is_set():
            self._dirty.wait()
            self._dirty.clear()
            if not self._closed.is_set():
                try:
                    os.fsync(self._handle)
                except OSError as failure:  # the system reports it once; the next write reports it to the worker
                    self._failure = failure
                    return
                self._closed.wait(_SYNC_SECONDS)
