"""The files of a run folder: those that were loaded, and those that could not be read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file of a run folder that could not be read and was left out."""

    name: str
    """Path within the run folder."""
    reason: str
    """One line."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """The fingerprint of one file of a run folder and what was read from it; a row of `loaded_file`."""

    name: str
    size_bytes: int
    sha256: str
    load_order: int
    num_rows: int = 0
    error: str | None = None
