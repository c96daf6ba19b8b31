"""Segments of shared memory that an engine's processes use, so that a later worker can remove what a killed one left.

They are removed by a helper of Python's that ends last. Slurm kills it too where it kills a whole job, and the segments
would stay in the node's memory.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterable
from pathlib import Path

LIST = "shared-memory"
"""Name of the file that lists segments."""
_SEGMENTS = Path("/dev/shm")
_MAPPED = re.compile(r" /dev/shm/(psm_[0-9a-f]{8})$", re.MULTILINE)
_NAME = re.compile(r"psm_[0-9a-f]{8}")
"""What Python calls a segment of which nobody chose the name."""


def note(processes: Iterable[int], folder: Path) -> None:
    """Add the segments that these processes map to the list in a folder."""
    names: set[str] = set()
    for process in processes:
        with contextlib.suppress(OSError):  # it has ended
            names |= set(_MAPPED.findall(Path(f"/proc/{process}/maps").read_text(errors="replace")))
    with contextlib.suppress(OSError), (folder / LIST).open("a") as noted:
        noted.writelines(f"{name}\n" for name in sorted(names))


def remove_noted(folder: Path, segments: Path = _SEGMENTS) -> None:
    """Remove the segments of this user that a folder lists; nobody may be using them any more."""
    with contextlib.suppress(OSError):
        for name in (folder / LIST).read_text(errors="replace").split():
            with contextlib.suppress(OSError):
                status = (segments / name).lstat() if _NAME.fullmatch(name) else None
                if status is not None and stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid():
                    (segments / name).unlink()


def unused(segments: Path = _SEGMENTS, processes: Path = Path("/proc"), age_seconds: float = 600.0) -> list[Path]:
    """Return this user's segments that no process here has mapped, and that are older than `age_seconds`.

    A container that shares the folder and not the processes may still use them, so they are only reported.
    """
    cutoff = time.time() - age_seconds
    found: dict[str, Path] = {}
    with contextlib.suppress(OSError):
        for path in segments.iterdir():
            with contextlib.suppress(OSError):
                status = path.lstat()
                is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
                if is_own and status.st_mtime < cutoff and _NAME.fullmatch(path.name):
                    found[path.name] = path
        for maps in processes.glob("[0-9]*/maps") if found else ():
            with contextlib.suppress(OSError):  # it has ended, or is another user's
                for name in _MAPPED.findall(maps.read_text(errors="replace")):
                    found.pop(name, None)
    return sorted(found.values())
