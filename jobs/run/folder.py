"""The run folder: what lies where in it, its locks, and its plan with the only functions that write it.

    runs/<run_id>/spec.json          the frozen specification
    runs/<run_id>/problems.parquet   the problems themselves: nodes need no internet
    runs/<run_id>/shards.parquet     which units each worker is assigned
    runs/<run_id>/journal/*.jsonl    append-only, one file per worker attempt
    runs/<run_id>/parts/*.parquet    trace files: finished samples, compacted from one journal each
    runs/<run_id>/grades/*.parquet   one file per grader version
    runs/<run_id>/candidate_grades/  grades of candidates that are whole chains
    runs/<run_id>/scores/*.parquet   quality of steps and candidates by a process reward model, one file per model
    runs/<run_id>/probe/points.parquet  the steps of another run that this one probes (jobs.probe)
    runs/<run_id>/target_logprobs/   the target's log-probability of each step, where it was asked for
    runs/<run_id>/logs/              the workers', the engines' and Slurm's output
    runs/<run_id>/retries.jsonl      which failed samples may be retried
    runs/<run_id>/submissions.jsonl  which shards each task of each Slurm job was assigned
    runs/<run_id>/results.json       the result of a finished run, for programs (jobs.after)
    runs/<run_id>/codes.jsonl        which code may work on the run (jobs.run.codes)
    runs/<run_id>/servers.jsonl      where the servers of its models listen (jobs.run.served)
    runs/<run_id>/code-*.zip         the code that was submitted
    runs/<run_id>/method-*.zip       the code of a method that is not part of this package (jobs.run.codes)

Journals and the .jsonl files are appended to. All other files are written under a temporary name and then renamed,
so that they are complete or absent. Each has a digest, those of spec.json and problems.parquet stand in shards.parquet,
and each line of the others has a checksum: what is damaged, edited or put into the wrong place is named (files.py).
Only results.json has none: nothing here reads it, and `jobs finalize` writes it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from filelock import Timeout
from pydantic import TypeAdapter, ValidationError

from harness.checks.machine import is_shared
from harness.cli import permissions
from harness.cli.messages import counted
from harness.problems.problem import Problem
from jobs.run import trace_files
from jobs.run.files import FileDamaged, files_in, write_atomically
from jobs.run.locks import Lock, is_held
from jobs.run.spec import RunSpec, Unit

_PROBLEMS = TypeAdapter(list[Problem])
_RECORDED_DIGESTS = ("spec_sha256", "problems_sha256")
"""Metadata of shards.parquet: digests of the two files that were written before it."""
LAG_SECONDS = 60.0
"""How long a machine may not see what another one wrote: NFS keeps what it knows of a file or folder for up to 60 s
(acregmax, acdirmax)."""
_LOOK_SECONDS = 3.0
_logger = logging.getLogger(__name__)


class RunDamaged(FileDamaged):
    """A file of a run's plan cannot be read; the message is one line that names the file."""


class RunForbidden(RunDamaged):
    """The user may not read a file of a run's plan."""


@contextlib.contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Turn what reading a file of the plan raises into RunDamaged."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunDamaged(f"{path} is missing") from error
    except PermissionError as error:
        raise RunForbidden(permissions.explained(error)) from error
    except FileDamaged as error:
        raise RunDamaged(str(error)) from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(key) for key in first["loc"])
        raise RunDamaged(f"{path} is damaged: {place}{': ' if place else ''}{first['msg']}") from error
    except (*trace_files.DAMAGED, ValueError, TypeError, LookupError, RecursionError) as error:
        problem = "cannot be read" if isinstance(error, OSError) and error.errno else "is damaged"
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RunDamaged(f"{path} {problem}: {reason}") from error


class RunBusyError(ValueError):
    """The plan of a run cannot change because workers hold its shards."""


@dataclass(frozen=True)
class RunFolder:
    """Paths, locks and files of one run, which need not exist.

    Reading the plan (`spec`, `problems`, `shards` and what counts them) raises RunDamaged.
    """

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
        """The plan: the units of each shard."""
        return self.path / "shards.parquet"

    @property
    def journal_dir(self) -> Path:
        """Folder of the journals of all attempts."""
        return self.path / "journal"

    @property
    def trace_files_dir(self) -> Path:
        """Folder of the trace files."""
        return self.path / "parts"

    @property
    def grades_dir(self) -> Path:
        """Folder of the grades, one file per grader version."""
        return self.path / "grades"

    @property
    def candidate_grades_dir(self) -> Path:
        """Folder of the grades of candidates that are whole chains, one file per grader version."""
        return self.path / "candidate_grades"

    @property
    def scores_dir(self) -> Path:
        """Folder of the scores of steps and candidates, one file per process reward model."""
        return self.path / "scores"

    @property
    def probe_dir(self) -> Path:
        """Folder of the points that the run probes; only a run that `jobs probe` made has it."""
        return self.path / "probe"

    @property
    def target_logprobs_dir(self) -> Path:
        """Folder of the target's log-probabilities of steps; a run that has it lets its workers add to it."""
        return self.path / "target_logprobs"

    @property
    def logs_dir(self) -> Path:
        """Folder of the output of workers, engines and Slurm."""
        return self.path / "logs"

    @property
    def locks_dir(self) -> Path:
        """Folder of the locks, which keep two workers from running the same shard."""
        return self.path / "locks"

    @property
    def retries_path(self) -> Path:
        """The list of failed samples that may be retried."""
        return self.path / "retries.jsonl"

    @property
    def submissions_path(self) -> Path:
        """The list of submissions to Slurm."""
        return self.path / "submissions.jsonl"

    @property
    def codes_path(self) -> Path:
        """The list of codes that may work on the run."""
        return self.path / "codes.jsonl"

    @property
    def results_path(self) -> Path:
        """The result of the finished run, for programs."""
        return self.path / "results.json"

    @property
    def servers_path(self) -> Path:
        """The list of addresses of the servers that run its models."""
        return self.path / "servers.jsonl"

    def submission_lock(self) -> Lock:
        """Return the lock that is held while shards are chosen and submitted; acquiring it waits.

        Acquiring this and the other locks raises LocksRefused where the filesystem has none.
        """
        return Lock(self.locks_dir / "submission.lock")

    def shard_lock(self, shard: int, wait_seconds: float = 0.0) -> Lock:
        """Return the lock of a shard, held by its worker.

        Acquiring it raises filelock.Timeout where another process holds it for longer than `wait_seconds`.
        """
        return Lock(self.shard_lock_path(shard), timeout=wait_seconds)

    def are_held(self, shards: Iterable[int]) -> bool:
        """Return whether a worker holds one of these shards."""
        return any(is_held(self.shard_lock_path(shard)) for shard in shards)

    def shard_lock_path(self, shard: int) -> Path:
        """Return the file that `shard_lock` locks; it stays when the lock is released."""
        return self.locks_dir / f"shard-{shard}.lock"

    def compaction_lock(self) -> Lock:
        """Return the lock that is held while journals are compacted or grades are written; acquiring it waits."""
        return Lock(self.locks_dir / "compaction.lock")

    def code_lock(self) -> Lock:
        """Return the lock that is held while it is decided which code may work on the run; acquiring it waits."""
        return Lock(self.locks_dir / "code.lock")

    def journals(self) -> list[Path]:
        """Return the journals that exist, sorted by name, that is by the time of their attempt."""
        return files_in(self.journal_dir, ".jsonl")

    def trace_files(self) -> list[Path]:
        """Return the trace files that exist, sorted by name, that is by the time of their attempt."""
        return files_in(self.trace_files_dir, ".parquet")

    def trace_file_of(self, journal: Path) -> Path:
        """Return the path of the trace file that a journal is compacted into, whether or not it exists."""
        return self.trace_files_dir / f"{journal.stem}.parquet"

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


def until_seen(run: RunFolder, holds: Callable[[], bool]) -> None:
    """Wait on a shared filesystem until `holds` is true, or for as long as a look may lag. Elsewhere nothing lags.

    What must not be decided by a look is decided by an operation that the server carries out: locks, links.
    """
    deadline = time.monotonic() + (LAG_SECONDS if is_shared(run.path.absolute()) else 0.0)
    while not holds() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def wait_for_plan(run: RunFolder) -> None:
    """Wait on a shared filesystem until the plan of a run is visible and whole."""
    until_seen(run, lambda: _has_plan(run))


def _has_plan(run: RunFolder) -> bool:
    try:
        run.spec(), run.problems(), run.num_shards()
    except RunForbidden:
        return True  # waiting does not change that
    except RunDamaged:
        return False
    return True
