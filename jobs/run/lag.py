"""Shared filesystems that show a machine what another one wrote only some seconds later.

What must not be decided by such a look is decided by an operation that the server carries out: locks, links, and files
that are created only where there is none. What is merely missing is waited for.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

from harness.checks.storage import is_shared
from jobs.run import endings
from jobs.run.files import opened
from jobs.run.folder import RunDamaged, RunFolder, RunForbidden
from jobs.run.submissions import read

SECONDS = 60.0
"""How long to wait: NFS keeps what it knows of a file or folder for up to 60 s (acregmax, acdirmax)."""
_POLL_SECONDS = 3.0
_KEPT_MARKS = 3


def wait_for_plan(run: RunFolder) -> None:
    """Wait on a shared filesystem until the plan of a run is visible and whole, or for as long as a look may lag."""
    _until(run, lambda: _has_plan(run))


def _has_plan(run: RunFolder) -> bool:
    try:
        run.spec(), run.problems(), run.num_shards()
    except RunForbidden:
        return True  # waiting does not change that
    except RunDamaged:
        return False
    return True


def wait_for_endings(run: RunFolder) -> None:
    """Wait on a shared filesystem until every sample of a run is seen as finished, or for as long as a look may lag."""
    _until(run, lambda: endings.num_unfinished(run) == 0)


def wait_for_submissions(run: RunFolder) -> bool:
    """Wait until every submission that was recorded is visible, as above; returns whether it is.

    The submission lock is held. A mark stands for each of the latest submissions, which the server is asked for.
    """
    return _until(run, lambda: not _has_mark(run, len(read(run))))


def mark_submission(run: RunFolder, number: int) -> None:
    """Mark the submission of this number as recorded. The submission lock is held."""
    with contextlib.suppress(FileExistsError):
        os.close(opened(run.submission_mark(number), os.O_EXCL))
    run.submission_mark(number - _KEPT_MARKS).unlink(missing_ok=True)


def _has_mark(run: RunFolder, number: int) -> bool:
    mark = run.submission_mark(number)
    try:
        os.close(opened(mark, os.O_EXCL))
    except FileExistsError:
        return True
    mark.unlink()
    return False


def _until(run: RunFolder, holds: Callable[[], bool]) -> bool:
    """Wait on a shared filesystem until `holds` is true; returns whether it is. Elsewhere one look is enough."""
    deadline = time.monotonic() + (SECONDS if is_shared(run.path.absolute()) else 0.0)
    while not holds():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True
