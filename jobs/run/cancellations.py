"""Whether a person canceled a run: a night submits what was killed again, and leaves alone what was canceled.

A file of its own: versions that do not know it need not read it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from jobs.run import submissions
from jobs.run.files import append_record, read_records
from jobs.run.folder import RunFolder


def record(run: RunFolder, names: Sequence[str]) -> None:
    """Record that the jobs of these submissions were canceled, durable when this returns."""
    append_record(_path(run), {"canceled": list(names), "at": time.time()})


def is_canceled(run: RunFolder) -> bool:
    """True if the last submission of a run was canceled, and it has not been submitted since."""
    submitted = submissions.read(run)
    canceled = {name for record in read_records(_path(run)) for name in record.get("canceled", ())}
    return bool(submitted) and submitted[-1].name in canceled


def _path(run: RunFolder) -> Path:
    return run.path / "canceled.jsonl"
