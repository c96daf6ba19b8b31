"""The run folder: every path in it, and the only writers of its files.

    runs/<run_id>/spec.json          the frozen specification
    runs/<run_id>/problems.parquet   the problems themselves: nodes need no internet
    runs/<run_id>/shards.parquet     which units each worker is given
    runs/<run_id>/journal/*.jsonl    append-only, one file per worker attempt
    runs/<run_id>/parts/*.parquet    finished samples, compacted from one journal each
    runs/<run_id>/grades/*.parquet   one file per grader version
    runs/<run_id>/second_grades/     likewise, of the independent second grader; these never count
    runs/<run_id>/candidate_grades/  likewise, of candidates that are whole chains
    runs/<run_id>/scores/*.parquet   quality of steps and candidates by a process reward model, one file per model
    runs/<run_id>/logs/              the workers', the engines' and Slurm's output
    runs/<run_id>/retries.jsonl      which failed samples may be run once more
    runs/<run_id>/submissions.jsonl  which task of which Slurm job was given which shards
    runs/<run_id>/code-*.zip         the code that was submitted

Files other than journals appear whole or not at all: written to a temporary name, then renamed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from harness.problem import Problem
from jobs.run import trace_files
from jobs.run.files import write_atomically
from jobs.run.spec import RunSpec, Unit


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
        return self.path / "shards.parquet"

    @property
    def journal_dir(self) -> Path:
        """Journals of all attempts."""
        return self.path / "journal"

    @property
    def trace_files_dir(self) -> Path:
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
    def retries_path(self) -> Path:
        """Which failed samples may be run once more."""
        return self.path / "retries.jsonl"

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

    def journals(self) -> list[Path]:
        """The journals that there are, in the order of their names, which begin with their time."""
        return sorted(self.journal_dir.glob("*.jsonl"))

    def trace_files(self) -> list[Path]:
        """The trace files that there are, in the order of their names, which begin with their time."""
        return sorted(self.trace_files_dir.glob("*.parquet"))

    def trace_file_of(self, journal: Path) -> Path:
        """The trace file that a journal is compacted into, whether or not it exists."""
        return self.trace_files_dir / f"{journal.stem}.parquet"

    def exists(self) -> bool:
        """Whether a complete plan lies here: shards.parquet is written last."""
        return self.shards_path.exists()

    def create(self, spec: RunSpec, problems: list[Problem], shards: list[list[Unit]]) -> None:
        """Write the plan of a new run; the last file is the mark that it is whole."""
        for folder in (self.journal_dir, self.trace_files_dir, self.grades_dir, self.logs_dir, self.locks_dir):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.spec_path, spec.to_json().encode())
        write_problems(self.problems_path, problems)
        self.write_shards(shards)

    def write_shards(self, shards: list[list[Unit]], assignment: int = 0) -> None:
        """Write which units each shard holds; `assignment` counts how often they were assigned before."""
        columns = {name: [getattr(unit, name) for shard in shards for unit in shard] for name in Unit.__annotations__}
        columns["shard"] = [number for number, shard in enumerate(shards) for _ in shard]
        trace_files.write_columns(
            self.shards_path, trace_files.SHARDS, columns, {"shards": str(len(shards)), "deal": str(assignment)}
        )

    def assign_again(self, shards: list[list[Unit]]) -> None:
        """Change which units each shard holds. Raises RunBusyError while a worker is at one of the old shards."""
        with contextlib.ExitStack() as held:
            try:
                for shard in range(self.num_shards()):
                    held.enter_context(self.shard_lock(shard))
            except Timeout as busy:
                raise RunBusyError(
                    f"--shards {len(shards)}: workers are at {self.path.name} in {self.num_shards()} shards; "
                    "wait for them or cancel them first, or leave the number of shards as it is"
                ) from busy
            self.write_shards(shards, self.assignment() + 1)

    def spec(self) -> RunSpec:
        """The run's specification."""
        return RunSpec.read(self.spec_path)

    def problems(self) -> list[Problem]:
        """The run's problems in order."""
        return read_problems(self.problems_path)

    def shards(self) -> list[list[Unit]]:
        """The units of each shard."""
        shards: list[list[Unit]] = [[] for _ in range(self.num_shards())]
        for row in trace_files.read_rows(self.shards_path):
            shards[row.pop("shard")].append(Unit(**row))
        return shards

    def shard(self, number: int) -> list[Unit]:
        """The units of one shard, without reading the others."""
        rows = trace_files.read_rows(self.shards_path, list(Unit.__annotations__), [("shard", "=", number)])
        return [Unit(**row) for row in rows]

    def units_by_shard(self) -> pa.Table:
        """Columns `shard` and `sample_id` of all units: what is counted, without an object per unit."""
        return trace_files.read_columns(self.shards_path, ["shard", "sample_id"])

    def num_shards(self) -> int:
        """How many shards the plan has."""
        return int(self._shards_metadata()["shards"])

    def assignment(self) -> int:
        """How often the units were assigned to shards before this plan.

        Trace files of another assignment may hold samples of any shard.
        """
        return int(self._shards_metadata()["deal"])

    def _shards_metadata(self) -> dict[str, str]:
        return trace_files.read_metadata(self.shards_path)


def run_folders(paths: Iterable[Path]) -> list[RunFolder]:
    """Run folders among the given paths and directly below them; a plan that is not yet whole is left out."""
    found = [RunFolder(p) for path in paths for p in (path, *sorted(path.iterdir())) if RunFolder(p).exists()]
    return list({run.path.resolve(): RunFolder(run.path.resolve()) for run in found}.values())


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write problems as Parquet."""
    trace_files.write_table(path, trace_files.PROBLEMS, [asdict(p) for p in problems])


def read_problems(path: Path) -> list[Problem]:
    """Read what `write_problems` wrote."""
    many = ("answers", "alternatives", "choices")
    rows: list[dict[str, Any]] = trace_files.read_rows(path)
    return [Problem(**{**row, **{name: tuple(row[name]) for name in many}}) for row in rows]
