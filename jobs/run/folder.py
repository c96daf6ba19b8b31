"""The run folder: its name, files, locks and plan; no other module writes the plan.

    runs/demo-speccot-demo-draft_demo-target-947bf651    dataset, method, draft, target (and reward model), hash

The hash identifies the specification. A launch finds its folder by dataset, method and hash, so only the part between
method and hash may be renamed. Users give a path, a name in `runs` or the working directory, or a unique prefix of the
name or the hash.

docs/formats.md lists the files. Journals and events are append-only. All other data files are written under a temporary
name and then renamed, so they are complete or absent. Damaged, edited and misplaced files are detected: lines of
journals and events have checksums, and the events contain the digests of plan, trace and derived files (events.py).
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from filelock import Timeout
from pydantic import TypeAdapter, ValidationError

from harness.cli import permissions
from harness.cli.messages import counted, place_and_problem
from harness.problems.problem import Problem
from jobs.run import events, trace_files
from jobs.run.files import FileDamaged, Lock, RunDamaged, WrongFormat, files_in, is_held, reading, write_atomically
from jobs.run.spec import RunSpec, Unit

_PROBLEMS = TypeAdapter(list[Problem])
_NO_NAMES = frozenset({"", ".", ".."})
_LONGEST_VERSION = 180
"""Maximum length of a version in a file name; most filesystems allow 255 bytes."""
LAG_SECONDS = 60.0
"""Maximum delay before another machine's writes become visible: NFS caches attributes for up to 60 s (acregmax,
acdirmax)."""
_LOOK_SECONDS = 3.0
_logger = logging.getLogger(__name__)


class RunForbidden(RunDamaged):
    """A file of the run's plan is not readable for this user."""


@contextlib.contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Convert errors from reading a plan file to RunDamaged."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunDamaged(f"{path} is missing") from error
    except PermissionError as error:
        raise RunForbidden(permissions.explained(error)) from error
    except FileDamaged as error:
        raise RunDamaged(str(error)) from error
    except ValidationError as error:
        raise RunDamaged(f"{path} is damaged: {place_and_problem(error.errors()[0])}") from error
    except (*trace_files.DAMAGED, ValueError, TypeError, LookupError, RecursionError) as error:
        problem = "cannot be read" if isinstance(error, OSError) and error.errno else "is damaged"
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RunDamaged(f"{path} {problem}: {reason}") from error


@dataclass(frozen=True)
class Below:
    """Descriptor for a path inside the run folder."""

    name: str

    def __get__(self, run: RunFolder, _: type) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class RunFolder:
    """Paths, locks and files of one run; the run need not exist.

    Reading the plan (`spec`, `problems`, `shards` and their counts) raises RunDamaged if it is missing or damaged.
    """

    path: Path

    spec_path = Below("spec.json")
    """The frozen specification."""
    problems_path = Below("problems.parquet")
    """The problems, copied at plan time."""
    plan_path = Below("plan.parquet")
    """The plan: the units of each shard."""
    events_path = Below(events.NAME)
    """The events: what happened to the run as a whole."""
    journal_dir = Below("journal")
    """Folder of the journals of all attempts."""
    trace_files_dir = Below("traces")
    """Folder of the trace files."""
    logs_dir = Below("logs")
    """Folder of the output of workers, engines and Slurm."""
    locks_dir = Below("locks")
    """Folder of the locks, which prevent two workers from running the same shard."""
    results_path = Below("results.json")
    """Result of the finished run, for programs."""

    def derived_path(self, kind: str, version: str) -> Path:
        """Return the path of the derived file of one kind and version, e.g. of a grader version or a scorer."""
        plain = "".join(c if c.isalnum() or c in ".-" else "_" for c in version)
        return self.path / "derived" / f"{kind}-{plain[:_LONGEST_VERSION]}.parquet"

    def derived(self, kind: str) -> list[Path]:
        """Return the run's derived files of one kind, sorted by name."""
        return [path for path in files_in(self.path / "derived", ".parquet") if path.name.partition("-")[0] == kind]

    def append(self, event: str, **fields: Any) -> None:
        """Durably append an event."""
        with damage_named(self.events_path):
            events.append(self.path, event, fields)

    def events(self, event: str) -> list[Mapping[str, Any]]:
        """Return the events of a kind, in order; empty if the run does not exist."""
        with damage_named(self.events_path), contextlib.suppress(FileNotFoundError):
            return [record for record in events.read(self.path).records if record["event"] == event]
        return []

    def lock(self, name: str, wait_seconds: float = -1) -> Lock:
        """Return a lock; acquiring it waits, or raises filelock.Timeout after `wait_seconds`.

        `submission` is held while shards are chosen and submitted, `compaction` while journals are compacted or grades
        are written, `code` while a process checks and records its code, `timing` by the worker that times samples.
        Acquiring a lock raises LocksRefused if the filesystem has no locks.
        """
        return Lock(self.locks_dir / f"{name}.lock", timeout=wait_seconds)

    def shard_lock(self, shard: int, wait_seconds: float = 0.0) -> Lock:
        """Return the lock of a shard, held by its worker."""
        return self.lock(f"shard-{shard}", wait_seconds)

    def are_held(self, shards: Iterable[int]) -> bool:
        """Return whether a worker holds one of these shards."""
        return any(is_held(self.locks_dir / f"shard-{shard}.lock") for shard in shards)

    def journals(self) -> list[Path]:
        """Return the existing journals, sorted by name, i.e. by the time of their attempt."""
        return files_in(self.journal_dir, ".jsonl")

    def trace_files(self) -> list[Path]:
        """Return the existing trace files, sorted by name, i.e. by the time of their attempt."""
        return files_in(self.trace_files_dir, ".parquet")

    def lost_trace_files(self) -> list[Path]:
        """Return announced trace files that are missing and have no journal of the same name, sorted.

        A worker that was killed between announcing and writing its trace file leaves its journal.
        """
        with damage_named(self.events_path):
            written = {self.path / name for name in events.read(self.path).digests}
        lost = {path for path in written if path.parent == self.trace_files_dir}.difference(self.trace_files())
        journals = {path.stem for path in self.journals()} if lost else set()  # removed only after the file exists
        return sorted(path for path in lost if path.stem not in journals and not path.exists())

    def trace_file_of(self, journal: Path) -> Path:
        """Return the path of a journal's trace file, which need not exist."""
        return self.trace_files_dir / f"{journal.stem}.parquet"

    def exists(self) -> bool:
        """Return True if the folder holds a complete plan; its events are written after the plan.

        Raises WrongFormat if the folder's name is not allowed.
        """
        if self.events_path.exists():
            for path in (self.path, self.path.resolve()):
                if path.name and path.name != ".." and not is_name(path.name):
                    raise WrongFormat(f"{str(path)!r}: rename it; quotes and control characters are not allowed")
            return True
        return False

    def create(self, spec: RunSpec, problems: list[Problem], shards: list[list[Unit]]) -> None:
        """Write the plan of a new run unless another process has; the first events mark it as complete."""
        for folder in (self.journal_dir, self.trace_files_dir, self.logs_dir, self.locks_dir):
            folder.mkdir(parents=True, exist_ok=True)
        with self.lock("submission"):
            if self.exists():
                return
            files = {
                self.spec_path: spec.to_json().encode(),
                self.problems_path: problems_content(problems),
                self.plan_path: _plan_content(shards, 0),
            }
            for path, content in files.items():
                write_atomically(path, content)
            events.begin(self.path, spec.run_id, files)

    def assign_again(self, shards: list[list[Unit]]) -> None:
        """Reassign units to shards. Raises ValueError while a worker holds one of the old shards."""
        with contextlib.ExitStack() as locks:
            try:
                for shard in range(self.num_shards()):
                    locks.enter_context(self.shard_lock(shard))
            except Timeout as timeout:
                raise ValueError(
                    f"--shards {len(shards)}: workers are running {self.path.name} with "
                    f"{counted(self.num_shards(), 'shard')}; "
                    "wait for them, cancel them, or keep the number of shards"
                ) from timeout
            events.write_announced(self.plan_path, _plan_content(shards, self.assignment() + 1))

    def spec(self) -> RunSpec:
        """Read the run's specification; raises RunDamaged if it was changed."""
        with damage_named(self.spec_path), reading(self.spec_path) as file:
            spec = RunSpec.from_json(file.read().decode("utf-8"), self.spec_path)
        if self.exists():
            try:
                events.check(self.spec_path)
            except FileDamaged as error:
                raise RunDamaged(
                    f"{self.spec_path} was changed after the run was created: restore it, or launch a new run with the "
                    "changed settings"
                ) from error
        return spec

    def check(self) -> None:
        """Raise RunDamaged if specification, problems or plan were changed."""
        self.spec()
        for path in (self.problems_path, self.plan_path):
            with damage_named(path):
                events.check(path)

    def ids(self) -> frozenset[str]:
        """Return the ids that the run's files may use: its folder's name and the id in its first event."""
        with damage_named(self.events_path):
            return frozenset({self.path.name, events.run_id(self.path)})

    def problems(self) -> list[Problem]:
        """Read all problems of the plan, in order."""
        with damage_named(self.problems_path):
            problems = _PROBLEMS.validate_python(trace_files.read_rows(self.problems_path))
        with damage_named(self.plan_path):
            planned = trace_files.read_columns(self.plan_path, ["problem_id"])["problem_id"].unique().to_pylist()
        if not {*planned} <= {problem.id for problem in problems}:
            raise RunDamaged(f"{self.problems_path} lacks problems of the plan: restore it")
        return problems

    def shards(self) -> list[list[Unit]]:
        """Read the units of each shard, in shard order."""
        shards: list[list[Unit]] = [[] for _ in range(self.num_shards())]
        with damage_named(self.plan_path):
            for row in trace_files.read_rows(self.plan_path):
                shards[row.pop("shard")].append(Unit(**row))
        return shards

    def shard(self, number: int) -> list[Unit]:
        """Read one shard's units without creating objects for other shards."""
        with damage_named(self.plan_path):
            plan = trace_files.read_columns(self.plan_path)
            return [Unit(**row) for row in plan.filter(pc.equal(plan["shard"], number)).drop("shard").to_pylist()]

    def units_by_shard(self) -> pa.Table:
        """Read the columns `shard` and `sample_id` of all units, for counting without an object per unit."""
        number = self.num_shards()
        with damage_named(self.plan_path):
            units = trace_files.read_columns(self.plan_path, ["shard", "sample_id"])
            if not {*units["shard"].unique().to_pylist()} <= {*range(number)}:
                raise ValueError(f"it has shard numbers outside 0 to {number - 1}")
        return units

    def num_planned(self) -> int:
        """Return the number of units."""
        return int(self.units_by_shard().num_rows)

    def num_shards(self) -> int:
        """Return the number of shards; every shard has a unit."""
        with damage_named(self.plan_path), trace_files.opened(self.plan_path) as plan:
            number = int(trace_files.metadata_of(plan)["shards"])
            if number > (samples := plan.metadata.num_rows):
                raise ValueError(f"{counted(samples, 'sample')} in {counted(number, 'shard')}")
            return number

    def assignment(self) -> int:
        """Return how many times the units were reassigned before this plan.

        Trace files from another assignment may hold samples of any shard.
        """
        with damage_named(self.plan_path):
            return int(trace_files.read_metadata(self.plan_path)["deal"])


def is_name(name: object) -> bool:
    """Return whether a run folder may have this name, which is used in paths, batch scripts and output."""
    return isinstance(name, str) and name.isprintable() and not set(name) & set("/'\"`$\\") and name not in _NO_NAMES


def run_folders(paths: Iterable[Path]) -> list[RunFolder]:
    """Return the run folders among the given paths and directly below them.

    Incomplete plans are left out; unreadable folders too, with a warning.
    """
    folders = [RunFolder(p) for path in paths for p in (path, *sorted(path.iterdir())) if is_readable_run(p)]
    return list({run.path.resolve(): RunFolder(run.path.resolve()) for run in folders}.values())


def is_readable_run(path: Path) -> bool:
    """Return whether there is a run folder at a path; warns if it is unreadable for this version or user."""
    try:
        return RunFolder(path).exists()
    except WrongFormat as error:
        _logger.warning("skipped: %s", error)
    except PermissionError as error:  # e.g. a private folder in a shared one
        _logger.warning("skipped: %s", permissions.explained(error))
    return False


def problems_content(problems: Iterable[Problem]) -> bytes:
    """Return the Parquet content of problems."""
    rows = [asdict(problem) for problem in problems]
    return trace_files.content_of(pa.Table.from_pylist(rows, schema=trace_files.PROBLEMS), {})


def _plan_content(shards: list[list[Unit]], assignment: int) -> bytes:
    """Return the Parquet content of a plan; `assignment` counts earlier assignments."""
    columns = {name: [getattr(unit, name) for shard in shards for unit in shard] for name in Unit.__annotations__}
    columns["shard"] = [number for number, shard in enumerate(shards) for _ in shard]
    table = pa.Table.from_pydict(columns, schema=trace_files.SHARDS)
    return trace_files.content_of(table, {"shards": str(len(shards)), "deal": str(assignment)})


def until_seen(run: RunFolder, holds: Callable[[], bool]) -> None:
    """On a shared filesystem, wait until `holds` is true, but no longer than LAG_SECONDS; elsewhere return at once.

    Decisions that need current data must use operations performed by the server instead: locks, links.
    """
    from harness.checks.machine import is_shared  # only needed to wait

    deadline = time.monotonic() + (LAG_SECONDS if is_shared(run.path.absolute()) else 0.0)
    while not holds() and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)


def wait_for_plan(run: RunFolder) -> None:
    """On a shared filesystem, wait until a run's plan is visible and complete, but no longer than LAG_SECONDS."""

    def has_plan() -> bool:
        try:
            run.spec(), run.problems(), run.num_shards()
        except RunDamaged as error:
            return isinstance(error, RunForbidden)  # waiting does not help
        return True

    until_seen(run, has_plan)


_LONGEST_MODEL = 32
"""Maximum length of a model's name in a folder name."""
_LONGEST_NAME = 200
"""Maximum length of a folder name in bytes; 255 are possible, but archives and temporary files have longer names."""


def folder_name(spec: RunSpec) -> str:
    """Return the name of a new folder for a specification."""
    dataset_and_method = f"{spec.dataset}-{spec.method}"
    room = _LONGEST_NAME - len(f"{dataset_and_method}--{spec.digest}".encode())
    models = "_".join(readable(model.name) for model in spec.models.values() if model)[: max(0, room)].strip("-._")
    return "-".join(part for part in (dataset_and_method, models, spec.digest) if part)


def run_folder(output: Path, spec: RunSpec) -> RunFolder:
    """Return the folder in `output` for a specification: an existing one with its hash, otherwise a new one."""
    new = output / folder_name(spec)
    if os.path.lexists(new):
        return RunFolder(new)
    others: list[Path] = []
    with contextlib.suppress(OSError):  # not created yet, or unusable, which is reported on writing
        others = sorted(output.iterdir())
    for other in others:
        is_its = other.name.startswith(f"{spec.dataset}-{spec.method}-") and other.name.endswith(f"-{spec.digest}")
        if is_its and is_name(other.name) and RunFolder(other).exists():
            return RunFolder(other)
    return RunFolder(new)


def readable(model: str) -> str:
    """Return a model's name without its organization, in shell-safe characters."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", model.rstrip("/").rpartition("/")[2])
    return plain[:_LONGEST_MODEL].strip("-.") or "model"


PLACES = (Path("runs"), Path())
"""Folders in which run names are looked up."""
_MOST_NAMED = 8
_FEWEST_DIGITS = 4
"""Minimum length of a hash prefix."""


class NoSuchRun(ValueError):
    """No run matches, or several do; the message is one line."""


def run_path(text: str) -> Path:
    """Resolve a string to a run folder; names are looked up in PLACES.

    An existing path is returned unchanged, even if it is not a run folder; run folders take precedence over other
    folders of the same name. Raises NoSuchRun.
    """
    path = Path(text)
    if os.path.isdir(path) and _is_run(path):  # noqa: PTH112 os.path ignores permission errors
        return path
    found = [] if text.endswith(os.sep) or path.name in ("", "..") else run_paths(text)
    if len(found) == 1:
        return found[0]
    if os.path.exists(path):  # noqa: PTH110 as above
        return path
    if found:
        raise NoSuchRun(f"{text} matches {len(found)} runs: {_listed(found)}")
    known = [run for place in _places(text) for run in run_paths(f"{place}{os.sep}")]
    raise NoSuchRun(
        f"{text} is not a run folder: it does not exist, and it is not a prefix of a run in "
        f"{' and '.join(map(str, _places(text)))}; " + (f"runs: {_listed(known)}" if known else "there are no runs")
    )


def run_paths(beginning: str) -> list[Path]:
    """Return the run folders that match a path, or a name or hash in PLACES; of equal names, only the first."""
    name = os.path.basename(beginning)  # noqa: PTH119 empty after a slash
    found: dict[str, Path] = {}
    for folder in [] if name in (".", "..") else _places(beginning):
        with contextlib.suppress(OSError):
            for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
                found.setdefault(entry.name, folder / entry.name)
    return [found[other] for other in meant_by(name, found) if _is_run(found[other])]


def meant_by(text: str, names: Collection[str]) -> list[str]:
    """Return the run names that a string matches.

    Exact names take precedence, then name prefixes, then hash prefixes: `947b`, or `demo-speccot-947b`.
    """
    if text in names:
        return [text]
    if begun := [name for name in names if name.startswith(text)]:
        return begun
    readable, dash, digits = text.rpartition("-")
    if not re.fullmatch(rf"[0-9a-f]{{{_FEWEST_DIGITS},}}", digits):
        return []
    found = (re.fullmatch(r"(.*-)([0-9a-f]{8})", name) for name in names)
    return [own[0] for own in found if own and own[1].startswith(readable + dash) and own[2].startswith(digits)]


def _places(text: str) -> list[Path]:
    return list(PLACES) if os.sep not in text else [Path(os.path.dirname(text))]  # noqa: PTH120


def _is_run(path: Path) -> bool:
    """Return whether a folder is a run folder; True if unreadable, so that reading it reports the error."""
    try:
        return path.is_dir() and RunFolder(path).exists()
    except (PermissionError, WrongFormat):
        return True


def _listed(runs: list[Path]) -> str:
    more = f" and {len(runs) - _MOST_NAMED} more" if len(runs) > _MOST_NAMED else ""
    return ", ".join(str(run) for run in runs[:_MOST_NAMED]) + more
