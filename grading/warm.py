"""Loads the grader and its libraries on import; the parent of the grader processes preloads this module."""

from __future__ import annotations

import os
import sys
from types import TracebackType

import grading.grade  # noqa: F401
from grading.reading.symbolic import load


def _without_traceback_of_forks() -> None:
    """Print no traceback if this process cannot fork; the process that requested the fork reports the failure."""
    parent, usual = os.getpid(), sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.getpid() != parent or not issubclass(kind, OSError):
            usual(kind, error, trace)

    sys.excepthook = hook


load()
_without_traceback_of_forks()
