"""The run folder: every path in it, and the only writers of its files.

    runs/<run_id>/spec.json          the frozen specification
    runs/<run_id>/problems.parquet   the problems themselves: nodes need no internet
    runs/<run_id>/shards.json        which units each worker is given
    runs/<run_id>/journal/*.jsonl    append-only, one file per worker attempt
    runs/<run_id>/parts/*.parquet    finished samples, compacted from one journal each
    runs/<run_id>/grades/*.parquet   one file per grader version
    runs/<run_id>/second_grades/     likewise, of the independent second grader; these never count
    runs/<run_id>/candidate_grades/  likewise, of candidates that are whole chains
    runs/<run_id>/scores/*.parquet   quality of steps and candidates by a process reward model, one file per model
    runs/<run_id>/logs/              the workers', the engines' and Slurm's output
    runs/<run_id>/submissions.jsonl  which task of which Slurm job was given which shards
    runs/<run_id>/code-*.zip         the code that was submitted

Files other than journals appear whole or not at all: written to a temporary name, then renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from harness.problem import Problem
from jobs.spec import RunSpec, Unit


class RunBusyError(ValueError):
    """Workers are at a run whose plan was to change."""


@dataclass(frozen=True)
class RunFolder:
    """Paths and files of one run."""

    path: Path

    @property
    def spec_path(self) -> Path:
        """The frozen specification."""
        return self.path / "spec.json"

    @property
    def problems_path(self) -> Path:
        """The problems, copied at plan time."""
        return self.path / "problems.parquet"

    @property
    def shards_path(self) -> Path:
        """The plan."""
        return self.path / "shards.json"

    @property
    def journal_dir(self) -> Path:
        """Journals of all attempts."""
        return self.path / "journal"

    @property
    def parts_dir(self) -> Path:
        """Trace files."""
        return self.path / "parts"

    @property
    def grades_dir(self) -> Path:
        """Grades by grader version."""
        return self.path / "grades"

    @property
    def second_grades_dir(self) -> Path:
        """Grades of the second grader by its version."""
        return self.path / "second_grades"

    @property
    def candidate_grades_dir(self) -> Path:
        """Grades of candidates that are whole chains, by grader version."""
        return self.path / "candidate_grades"

    @property
    def scores_dir(self) -> Path:
        """Scores of steps and candidates by process reward models."""
        return self.path / "scores"

    @property
    def logs_dir(self) -> Path:
        """Output of workers and engines."""
        return self.path / "logs"

    @property
    def locks_dir(self) -> Path:
        """Locks that keep two workers off one shard."""
        return self.path / "locks"

    @property
    def submissions_path(self) -> Path:
        """What was handed to Slurm."""
        return self.path / "submissions.jsonl"

    def submission_lock(self) -> FileLock:
        """Held while it is decided and done what is submitted; waits for its turn."""
        return FileLock(self.locks_dir / "submission.lock")

    def shard_lock(self, shard: int, wait_seconds: float = 0.0) -> FileLock:
        """Held by the one worker of a shard; raises filelock.Timeout where another holds it beyond the wait."""
        return FileLock(self.locks_dir / f"shard-{shard}.lock", timeout=wait_seconds)

    def compaction_lock(self) -> FileLock:
        """Held by whoever turns journals into trace files or writes grades; waits for its turn."""
        return FileLock(self.locks_dir / "compaction.lock")

    def exists(self) -> bool:
        """Whether a complete plan lies here: shards.json is written last."""
        return self.shards_path.exists()

    def create(self, spec: RunSpec, problems: list[Problem], shards: list[list[Unit]]) -> None:
        """Write the plan of a new run; the last file is the mark that it is whole."""
        for folder in (self.journal_dir, self.parts_dir, self.grades_dir, self.logs_dir, self.locks_dir):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.spec_path, spec.to_json().encode())
        write_problems(self.problems_path, problems)
        self.write_shards(shards)

    def write_shards(self, shards: list[list[Unit]]) -> None:
        """Write which units each shard holds."""
        payload = [[asdict(unit) for unit in shard] for shard in shards]
        write_atomically(self.shards_path, json.dumps(payload).encode())

    def deal_again(self, shards: list[list[Unit]]) -> None:
        """Change which units each shard holds. Raises RunBusyError while a worker is at one of the old shards."""
        with contextlib.ExitStack() as held:
            try:
                for shard in range(len(self.shards())):
                    held.enter_context(self.shard_lock(shard))
            except Timeout as busy:
                raise RunBusyError(
                    f"--shards {len(shards)}: workers are at {self.path.name} in {len(self.shards())} shards; "
                    "wait for them or cancel them first, or leave the number of shards as it is"
                ) from busy
            self.write_shards(shards)

    def spec(self) -> RunSpec:
        """The run's specification."""
        return RunSpec.read(self.spec_path)

    def problems(self) -> list[Problem]:
        """The run's problems in order."""
        return read_problems(self.problems_path)

    def shards(self) -> list[list[Unit]]:
        """The units of each shard."""
        return [[Unit(**unit) for unit in shard] for shard in json.loads(self.shards_path.read_bytes())]


def run_folders(paths: Iterable[Path]) -> list[RunFolder]:
    """Run folders among the given paths and directly below them; a plan that is not yet whole is left out."""
    found = [RunFolder(p) for path in paths for p in (path, *sorted(path.iterdir())) if RunFolder(p).exists()]
    return list({run.path.resolve(): RunFolder(run.path.resolve()) for run in found}.values())


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, whatever is killed and whenever."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    Path(name).replace(path)


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write problems as Parquet."""
    from jobs import parts

    parts.write_table(path, parts.PROBLEMS, [asdict(p) for p in problems])


def read_problems(path: Path) -> list[Problem]:
    """Read what `write_problems` wrote."""
    from jobs import parts

    many = ("answers", "alternatives", "choices")
    rows: list[dict[str, Any]] = parts.read_rows(path)
    return [Problem(**{**row, **{name: tuple(row[name]) for name in many}}) for row in rows]
