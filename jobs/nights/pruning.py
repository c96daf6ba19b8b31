"""Archive the run folders of old nights, and leave their results in the database.

A verdict needs the results of all earlier nights of its segment, which stay in the database: scores, verdicts, tokens,
times and conditions. What goes is what nothing but a look at single samples needs: steps, candidates, calls and
prompts. They stay in the archive.

Only what is certain goes: finished, graded and loaded runs of old nights, in this folder, without a job in Slurm.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from jobs.after import warehouse
from jobs.nights import archive
from jobs.run import endings, shared_jobs, submissions
from jobs.run.folder import RunDamaged, RunFolder, run_folders
from jobs.slurm import client

_NIGHT = re.compile(r"(\d{4}-\d{2}-\d{2})(\.confirm)?")
_NAMES_PER_QUERY = 500


@dataclass(frozen=True)
class Kept:
    """A run of an old night that stays, and why."""

    run: str
    why: str


@dataclass
class Pruning:
    """What is pruned of a folder of nights, and what stays."""

    output: Path
    archive: Path
    nights: dict[date, list[RunFolder]] = field(default_factory=dict)
    """The runs to archive, by night, oldest first."""
    kept: list[Kept] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    """Logs and code of verdict jobs of old nights."""
    without_details: list[str] = field(default_factory=list)
    """Runs that were archived before and whose details the database still holds."""

    @property
    def runs(self) -> list[RunFolder]:
        """All runs to archive."""
        return [run for runs in self.nights.values() for run in runs]

    @property
    def database(self) -> Path:
        """The database that keeps the results."""
        return self.output / "warehouse.duckdb"

    def size(self) -> tuple[int, int]:
        """Return the number of files of all runs to archive, and their bytes."""
        sizes = [file.stat().st_size for run in self.runs for file in run.path.rglob("*") if file.is_file()]
        return len(sizes), sum(sizes)


def plan(output: Path, keep_nights: int, archive_folder: Path) -> Pruning:
    """Decide what to prune, without writing anything.

    Raises WarehouseFailed where the database cannot be read, SlurmError where Slurm does not answer.
    """
    output = output.resolve()
    pruning = Pruning(output, archive_folder.resolve())
    dated = _nights(output)
    old = dict(sorted(dated.items())[: max(0, len(dated) - keep_nights)])
    candidates = [run for runs in old.values() for run in runs]
    known = warehouse.loaded(pruning.database, candidates)
    busy = _busy([run for run in candidates if submissions.read(run)])
    for night, runs in old.items():
        for run in runs:
            why = _why_kept(run, known, busy, pruning.archive)
            if why:
                pruning.kept.append(Kept(run.path.name, why))
            else:
                pruning.nights.setdefault(night, []).append(run)
    if old and len(dated) > keep_nights:
        newest_old = max(old)
        pruning.leftovers = list(_leftovers(output / "nights", newest_old))
    gone = [name for name in archive.archived(pruning.archive) if not (output / name).exists()]
    pruning.without_details = warehouse.with_details(pruning.database, gone) if gone else []
    return pruning


def prune(pruning: Pruning) -> int:
    """Archive, let the database forget the details, and remove the folders; returns how many runs were archived.

    In this order, so that killed anywhere nothing is lost and the same command goes on. Raises ArchiveFailed, OSError
    and WarehouseFailed.
    """
    for run in pruning.runs:
        archive.archive(run, pruning.archive)
    names = [run.path.name for run in pruning.runs] + pruning.without_details
    if names:
        warehouse.forget_details(pruning.database, names)
    for run in pruning.runs:
        archive.remove(run)
    for path in pruning.leftovers:
        path.unlink(missing_ok=True)
    return len(pruning.runs)


def _nights(output: Path) -> dict[date, list[RunFolder]]:
    """Return the run folders of nights by date: folders of this folder itself, tagged as `jobs nightly` does."""
    found: dict[date, list[RunFolder]] = {}
    for run in run_folders([output]) if output.is_dir() else []:
        if run.path.parent != output or (output / run.path.name).is_symlink():
            continue  # a link to elsewhere
        try:
            tagged = _NIGHT.fullmatch(run.spec().tag or "")
            if tagged:
                found.setdefault(date.fromisoformat(tagged[1]), []).append(run)
        except (RunDamaged, OSError, ValueError):
            continue
    return found


def _why_kept(run: RunFolder, known: Mapping[str, str], busy: set[str], archive_folder: Path) -> str:
    """Return why a run stays; empty where it is archived."""
    try:
        num_unfinished = endings.num_unfinished(run)
    except (RunDamaged, OSError) as error:
        return f"it cannot be read: {next(iter(str(error).splitlines()), '')}"
    if num_unfinished:
        return f"{num_unfinished} of its samples are not finished"
    if run.path.name in busy:
        return "Slurm has a job of it"
    state = known.get(run.path.name, "the database does not hold it")
    if state == warehouse.PRUNED and archive.archive_of(archive_folder, run.path.name).is_file():
        return ""
    return state


def _busy(runs: Sequence[RunFolder]) -> set[str]:
    """Return the names of the runs that Slurm has a job of. Raises SlurmError."""
    names = {
        name: run.path.name
        for run in runs
        for submission in submissions.read(run)
        for name in (submission.name, shared_jobs.finalizer_of(run, submission))
    }
    listed = list(names)
    busy: set[str] = set()
    for start in range(0, len(listed), _NAMES_PER_QUERY):
        busy |= {names[task.name] for task in client.queue(listed[start : start + _NAMES_PER_QUERY])}
    return busy


def _leftovers(nights: Path, until: date) -> Iterator[Path]:
    """Yield logs of verdict jobs that ended before a night's end, and code that no other verdict job was given."""
    before = datetime(until.year, until.month, until.day, tzinfo=UTC).timestamp()
    before = min(before, time.time() - 86400)
    logs = [path for path in sorted((nights / "logs" / "jobs").glob("*")) if path.is_file()]
    old = [path for path in logs if path.stat().st_mtime < before]
    yield from old
    scripts = "".join(
        p.read_text("utf-8", "replace") for p in set(logs) - set(old) if p.name.endswith("_submission.sh")
    )
    for code in sorted(nights.glob("code-*.zip")):
        if code.name not in scripts and code.stat().st_mtime < before:
            yield code
