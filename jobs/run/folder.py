"""The run folder: the plan in it, with the only functions that write it. Where everything lies: jobs.run.paths."""

from __future__ import annotations

import contextlib
import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from filelock import Timeout
from pydantic import TypeAdapter

from harness.cli import permissions
from harness.plural import counted
from harness.problems.problem import Problem
from jobs.run import trace_files
from jobs.run.files import write_atomically
from jobs.run.paths import RunPaths
from jobs.run.plan_damage import RunDamaged, RunForbidden, damage_named
from jobs.run.spec import RunSpec, Unit

_PROBLEMS = TypeAdapter(list[Problem])
_RECORDED_DIGESTS = ("spec_sha256", "problems_sha256")
"""Metadata of shards.parquet: digests of the two files that were written before it."""
_logger = logging.getLogger(__name__)
__all__ = [
    "RunBusyError",
    "RunDamaged",
    "RunFolder",
    "RunForbidden",
    "is_readable_run",
    "read_problems",
    "run_folders",
    "write_problems",
]


class RunBusyError(ValueError):
    """The plan of a run cannot change because workers hold its shards."""


@dataclass(frozen=True)
class RunFolder(RunPaths):
    """Paths and files of one run.

    Reading the plan (`spec`, `problems`, `shards` and what counts them) raises RunDamaged.
    """

    def exists(self) -> bool:
        """True if the folder holds a complete plan; shards.parquet is written last."""
        return self.shards_path.exists()

    def create(self, spec: RunSpec, problems: list[Problem], shards: list[list[Unit]]) -> None:
        """Write the plan of a new run; its last file marks it as complete."""
        for folder in (self.journal_dir, self.trace_files_dir, self.grades_dir, self.logs_dir, self.locks_dir):
            folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.spec_path, spec.to_json().encode())
        write_problems(self.problems_path, problems)
        digests = map(_sha256, (self.spec_path, self.problems_path))
        self.write_shards(shards, 0, dict(zip(_RECORDED_DIGESTS, digests, strict=True)))

    def write_shards(
        self, shards: list[list[Unit]], assignment: int = 0, digests: Mapping[str, str] | None = None
    ) -> None:
        """Write which units each shard holds; `assignment` counts how often they were assigned before.

        `digests` are those of the specification and the problems; None: as the plan before had them.
        """
        digests = digests or {key: self._recorded_digest(key) for key in _RECORDED_DIGESTS}
        columns = {name: [getattr(unit, name) for shard in shards for unit in shard] for name in Unit.__annotations__}
        columns["shard"] = [number for number, shard in enumerate(shards) for _ in shard]
        metadata = {"shards": str(len(shards)), "deal": str(assignment), **digests}
        trace_files.write_columns(self.shards_path, trace_files.SHARDS, columns, metadata)

    def assign_again(self, shards: list[list[Unit]]) -> None:
        """Change which units each shard holds. Raises RunBusyError while a worker holds one of the old shards."""
        with contextlib.ExitStack() as locks:
            try:
                for shard in range(self.num_shards()):
                    locks.enter_context(self.shard_lock(shard))
            except Timeout as timeout:
                raise RunBusyError(
                    f"--shards {len(shards)}: workers are running {self.path.name} with "
                    f"{counted(self.num_shards(), 'shard')}; "
                    "wait for them or cancel them first, or leave the number of shards as it is"
                ) from timeout
            self.write_shards(shards, self.assignment() + 1)

    def spec(self) -> RunSpec:
        """Read the run's specification, which nobody may have changed since the run was made."""
        with damage_named(self.spec_path):
            spec = RunSpec.read(self.spec_path)
        if self.exists() and self._recorded_digest("spec_sha256") != _sha256(self.spec_path):
            raise RunDamaged(
                f"{self.spec_path} was changed after the run was made: restore it, or launch a new run with what you "
                "want to change"
            )
        return spec

    def spec_id(self) -> str | None:
        """Return the run id that follows from the specification; None where that cannot be read."""
        try:
            return self.spec().run_id
        except RunDamaged:
            return None

    def _recorded_digest(self, key: str) -> str:
        with damage_named(self.shards_path):
            return trace_files.read_metadata(self.shards_path)[key]

    def problems(self) -> list[Problem]:
        """Read the run's problems, in order."""
        with damage_named(self.problems_path):
            problems = read_problems(self.problems_path)
        if self.exists() and self._recorded_digest("problems_sha256") != _sha256(self.problems_path):
            raise RunDamaged(f"{self.problems_path} is not the file that the run was made with: restore it")
        return problems

    def shards(self) -> list[list[Unit]]:
        """Read the units of each shard, in shard order."""
        shards: list[list[Unit]] = [[] for _ in range(self.num_shards())]
        with damage_named(self.shards_path):
            for row in trace_files.read_rows(self.shards_path):
                shards[row.pop("shard")].append(Unit(**row))
        return shards

    def shard(self, number: int) -> list[Unit]:
        """Read the units of one shard, without reading the others."""
        with damage_named(self.shards_path):
            rows = trace_files.read_rows(self.shards_path, list(Unit.__annotations__), [("shard", "=", number)])
            return [Unit(**row) for row in rows]

    def units_by_shard(self) -> pa.Table:
        """Read the columns `shard` and `sample_id` of all units, for counting without an object per unit."""
        with damage_named(self.shards_path):
            return trace_files.read_columns(self.shards_path, ["shard", "sample_id"])

    def num_planned(self) -> int:
        """Return how many units the plan has."""
        with damage_named(self.shards_path), trace_files.opened(self.shards_path, whole=False) as file:
            return int(file.metadata.num_rows)

    def num_shards(self) -> int:
        """Return how many shards the plan has."""
        return self._shards_number("shards")

    def assignment(self) -> int:
        """Return how often the units were assigned to shards before this plan.

        Trace files of another assignment may hold samples of any shard.
        """
        return self._shards_number("deal")

    def _shards_number(self, key: str) -> int:
        with damage_named(self.shards_path):
            return int(trace_files.read_metadata(self.shards_path)[key])


def run_folders(paths: Iterable[Path]) -> list[RunFolder]:
    """Return the run folders among the given paths and directly below them.

    Incomplete plans are left out, and with a warning the folders that this user may not enter.
    """
    folders = [RunFolder(p) for path in paths for p in (path, *sorted(path.iterdir())) if is_readable_run(p)]
    return list({run.path.resolve(): RunFolder(run.path.resolve()) for run in folders}.values())


def is_readable_run(path: Path) -> bool:
    """Return whether there is a run folder at a path; warns where this user may not enter it."""
    try:
        return RunFolder(path).exists()
    except PermissionError as error:  # a private folder among those of a group
        _logger.warning("left out: %s", permissions.explained(error))
        return False


def write_problems(path: Path, problems: Iterable[Problem]) -> None:
    """Write problems as Parquet."""
    trace_files.write_table(path, trace_files.PROBLEMS, [asdict(problem) for problem in problems])


def read_problems(path: Path) -> list[Problem]:
    """Read the problems that `write_problems` wrote; raises ValueError where the file has an unknown column."""
    return _PROBLEMS.validate_python(trace_files.read_rows(path))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
