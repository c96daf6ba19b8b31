"""A hash of the code that determines results, to detect whether a run is continued by the code that started it.

It covers the modules that a worker uses from reading a problem to recording its steps, the grader, and the files that
both read. It omits code that cannot change a recorded result, or whose effect is recorded in the run's specification:
commands and their flags, benchmarks (problems are stored in the run folder), presets of papers, training, checks, speed
benchmarks, submission, status, the warehouse, pages and tests.

Only the standard library is imported.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import cast

ROOT: Traversable = cast(Path, resources.files("harness")).parent
"""Import location of the project: a checkout, an installation, or a job's zip."""

_HASHED = (
    "harness",
    "grading",
    "jobs/work",
    "jobs/finished/grading.py",
    *(f"jobs/run/{name}.py" for name in (
        "derived", "endings", "journal", "retries", "spec", "trace_files",
    )),
)  # fmt: skip
"""Hashed folders and files of the project, except for those in `_LEFT_OUT`."""
_LEFT_OUT = (
    *(f"harness/{name}" for name in (
        "checks", "cli", "papers", "settings", "training",
    )),
    "harness/data",  # weights have fingerprints, and problems have their own hash
    *(f"harness/problems/{name}.py" for name in ("benchmarks", "columns", "hub", "sources")),
    *(f"harness/{name}.py" for name in (
        "__init__", "__main__", "api", "code_hash", "doctor", "environment", "installation",
        "launch", "reproduce", "train",
    )),
    # Finds and loads custom methods, whose code is hashed separately.
    *(f"harness/methods/{name}.py" for name in ("plugins", "references")),
    "harness/sizing/__main__.py",
    "jobs/work/attempt.py",
    *(f"grading/{name}" for name in ("check.py", "regrade.py")),
)  # fmt: skip
_BUILT_IN_PROMPTS = "harness/data/prompts.toml"
_SUFFIXES = {".py", ".toml", ".json", ".jsonl", ".jinja", ".txt"}
_DIGITS = 16
_MAX_NAMES = 3


@dataclass(frozen=True)
class Code:
    """The code that determines results, by file."""

    digests: Mapping[str, str]
    """Hash of each file (16 hex digits), by its path in the project."""

    @cached_property
    def hash(self) -> str:
        """Hash of all files (16 hex digits)."""
        return digest_of("".join(f"{path} {digest}\n" for path, digest in sorted(self.digests.items())).encode())


@lru_cache(maxsize=1)
def running_code() -> Code:
    """Return the code of this process, as read by the first call."""
    return read(ROOT)


def read(root: Traversable) -> Code:
    """Return the code in a folder or zip."""
    digests, ahead = {}, [(top, root / top) for top in ("harness", "grading", "jobs")]
    while ahead:
        name, entry = ahead.pop()
        if entry.is_dir():
            ahead += [(f"{name}/{inner.name}", inner) for inner in entry.iterdir()]
        elif is_hashed(name) and entry.is_file():
            digests[name] = digest_of(entry.read_bytes())
    return Code(dict(sorted(digests.items())))


def changed_files(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the names of the files that differ, as `a.py, b.py and 2 more files`; empty if there are none."""
    names = sorted(path for path in {*before, *now} if before.get(path) != now.get(path))
    more = len(names) - _MAX_NAMES
    shown = ", ".join(names[:_MAX_NAMES])
    return f"{shown} and {more} more file{'s' if more > 1 else ''}" if more > 0 else shown


def is_hashed(path: str) -> bool:
    """Return whether a file, given by its path in the project, is part of the hash."""
    if path == _BUILT_IN_PROMPTS:
        return True
    is_in, is_out = (
        any(path == name or path.startswith(f"{name}/") for name in names) for names in (_HASHED, _LEFT_OUT)
    )
    parts = path.split("/")
    return (
        is_in and not is_out and Path(path).suffix in _SUFFIXES and not any(p.startswith((".", "__py")) for p in parts)
    )


def digest_of(content: bytes) -> str:
    """Return a hash of a file's content: the first 16 hex digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
