"""What happened in a night, as lines of JSON that are appended to `nights/<date>.jsonl`.

A verdict job may die anywhere; the next one reads here what was done. Only what follows the last launch counts: someone
who launches a night again asks for it anew.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.run.files import append_record, read_records
from jobs.run.locks import Lock


@dataclass(frozen=True)
class NightRecord:
    """The record of one night."""

    path: Path

    def append(self, what: str, **values: Any) -> None:
        """Append what happened, durable when this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with Lock(self.path.with_name(".record.lock")):  # NFS lets appends of two machines replace each other
            append_record(self.path, {"event": what, "at": time.time(), **values})

    def events(self, what: str | None = None) -> list[dict[str, Any]]:
        """Return what happened since the last launch, that launch included; all of it, or one kind."""
        latest: list[dict[str, Any]] = []
        for record in self._every():
            if record["event"] == "launched":
                latest = []
            latest.append(record)
        return [record for record in latest if what in (None, record["event"])]

    def last(self, what: str) -> dict[str, Any] | None:
        """Return the last event of a kind since the last launch."""
        return next(iter(reversed(self.events(what))), None)

    @property
    def names(self) -> dict[int, str]:
        """Names of the run folders that were launched, by number of the launch in the suite."""
        launched = self.last("launched")
        return {int(number): name for number, name in launched["runs"].items()} if launched else {}

    @property
    def confirming(self) -> dict[int, str]:
        """Names of the run folders that confirm a suspicion, by number of the launch in the suite."""
        confirming = self.last("confirming")
        return {int(number): name for number, name in confirming["runs"].items()} if confirming else {}

    @property
    def requests(self) -> dict[str, Mapping[str, Any]]:
        """How each run is submitted to Slurm, by name; runs on this machine have none."""
        found: dict[str, Mapping[str, Any]] = {}
        for event in (*self.events("launched"), *self.events("confirming")):
            found |= event["requests"]
        return found

    @property
    def is_concluded(self) -> bool:
        """True if the night has its verdict."""
        return self.last("concluded") is not None

    def verdict_job(self, jobs: Sequence[str]) -> dict[str, Any] | None:
        """Return what the last of these verdict jobs waits for, whichever launch of the night submitted it."""
        of_these = [r for r in self._every() if r["event"] == "verdict job" and r["job"] in jobs]
        return next(iter(reversed(of_these)), None)

    def _every(self) -> Iterator[dict[str, Any]]:
        return (record for record in read_records(self.path) if isinstance(record, dict) and "event" in record)
