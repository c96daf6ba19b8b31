"""The grades in a run folder: one file per grader version, so that versions never overwrite each other's grades.

By default the version that graded last counts, here and in the warehouse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from harness.cli import permissions
from jobs.run import own_files, trace_files
from jobs.run.files import FileDamaged, files_in
from jobs.run.folder import RunFolder
from jobs.run.trace_files import GradeRow

MAX_NAME_CHARACTERS = 200
"""Longest name of a file without its extension; most filesystems allow 255 bytes."""


class GradesError(LookupError):
    """Grades are missing or cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class GradeFile:
    """The grades of one grader version."""

    version: str
    path: Path
    num_grades: int
    changed_at: float
    """UTC, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Change:
    """One sample that two grader versions grade differently. Rows have the columns of trace_files.GRADES."""

    sample_id: str
    problem_id: str
    sample_index: int
    gold: str
    old: Mapping[str, Any] | None
    """The grade of the old version; None where it has not graded the sample."""
    new: Mapping[str, Any] | None

    @property
    def verdicts(self) -> tuple[str, str]:
        """The old and the new verdict; `not graded` where there is none."""
        old, new = ("not graded" if row is None else str(row["verdict"]) for row in (self.old, self.new))
        return old, new


def file_name(version: str) -> str:
    """Return the name of a grader version's file."""
    plain = "".join(c if c.isalnum() or c in ".-" else "_" for c in version)
    return f"{plain[:MAX_NAME_CHARACTERS]}.parquet"


def grade_files(folder: Path) -> list[GradeFile]:
    """Return the grade files of a folder, the one that was graded first coming first. Raises GradesError."""
    files = []
    for path in files_in(folder, ".parquet"):
        rows = _rows(path, ["grader_version"])
        if rows:
            files.append(GradeFile(rows[0]["grader_version"], path, len(rows), graded_at(path)))
    return sorted(files, key=lambda file: file.changed_at)


def graded_at(path: Path) -> float:
    """Return when a file of grades was last written, in seconds since the epoch.

    The file's metadata says so, also in a copy; where it does not, the filesystem's modification time counts.
    """
    try:
        return float(json.loads(trace_files.read_metadata(path)["grader"])["graded_at"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return path.stat().st_mtime


def find(files: list[GradeFile], name: str) -> GradeFile:
    """Return the file of the version with this name, first word or beginning. Raises GradesError."""
    exact = [file for file in files if file.version == name]
    first_words = [file for file in files if file.version.partition(" ")[0] == name]
    beginnings = [file for file in files if file.version.startswith(name)]
    for matches in (exact, first_words, beginnings):
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise GradesError(f"grader version {name!r} is ambiguous: {_names(matches)}")
    raise GradesError(f"no grades of grader version {name!r}; there are: {_names(files)}")


def read_grades(file: GradeFile) -> dict[str, GradeRow]:
    """Read rows of trace_files.GRADES by sample id. Raises GradesError."""
    return {row["sample_id"]: cast(GradeRow, row) for row in _rows(file.path)}


def changes(run: RunFolder, old: Mapping[str, GradeRow], new: Mapping[str, GradeRow]) -> list[Change]:
    """Return the planned samples whose verdicts differ, in the order of problems and sample indexes.

    A sample that neither version has graded is not a change.
    """
    order = {problem.id: place for place, problem in enumerate(run.problems())}
    answers = {problem.id: problem.answer for problem in run.problems()}
    units = sorted(
        (unit for shard in run.shards() for unit in shard), key=lambda u: (order[u.problem_id], u.sample_index)
    )
    pairs = (
        Change(
            u.sample_id, u.problem_id, u.sample_index, answers[u.problem_id], old.get(u.sample_id), new.get(u.sample_id)
        )
        for u in units
    )
    return [change for change in pairs if change.verdicts[0] != change.verdicts[1]]


def _rows(path: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    try:
        return own_files.rows(path, own_files.run_ids(RunFolder(path.parent.parent)), columns)
    except PermissionError as error:
        raise GradesError(permissions.explained(error)) from error
    except FileDamaged as error:
        raise GradesError(str(error)) from error
    except (OSError, ValueError, KeyError) as error:
        raise GradesError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error


def _names(files: list[GradeFile]) -> str:
    return "; ".join(file.version for file in files) or "none"
