"""Derived data of a run: `derived/KIND-VERSION.parquet` in its folder, each file with a header.

    grades-VERSION              verdict on each sample, by a grader version
    candidate_grades-VERSION    the same for candidates that are whole chains
    scores-SCORER               quality of steps and candidates, judged by a process reward model
    target_logprobs-WRITE       the target's log-probability of each step; every write is a separate file
    probe_points-1              steps of another run that this one probes (jobs.continuations.probe)
    budget_cuts-1               where the chains of another run are cut (jobs.continuations.budget_sweep)
    timing_draw-1               which samples are timed (jobs.run.timing)

Versions never overwrite each other. The grades of the most recent grader version are used, here and in the database.
Workers write log-probabilities without waiting for each other and never change existing files. If two files contain a
sample, it counts once; the database uses the file that was written first.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast, get_args

from harness import environment
from harness.chain import chain_scores
from harness.code_hash import running_code
from jobs.run import events, trace_files
from jobs.run.files import FileDamaged, RunDamaged, WrongFormat, say_once
from jobs.run.folder import RunFolder
from jobs.run.spec import ModelSpec, RunSpec
from jobs.run.trace_files import GradeRow

SCHEMAS = {
    "grades": trace_files.GRADES,
    "candidate_grades": trace_files.CANDIDATE_GRADES,
    "scores": trace_files.SCORES,
    "target_logprobs": trace_files.TARGET_LOGPROBS,
    "probe_points": trace_files.PROBE_POINTS,
    "budget_cuts": trace_files.BUDGET_CUTS,
    "timing_draw": trace_files.TIMING_DRAW,
}
"""Columns of each kind."""
ContinuationKind = Literal["probe_points", "budget_cuts"]
"""Kinds with the start positions of a run's problems in chains of another run (jobs.continuations.continuation)."""
_HEADER_KEY = "derived"
"""Key of the header (JSON) in a file's metadata."""


def write(
    run: RunFolder, kind: str, version: str, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None = None
) -> Path:
    """Write a file whose header records code and time, extended by `about`. Return its path."""
    header = {
        "kind": kind,
        "version": version,
        "written_at": time.time(),
        "git_commit": environment.git_commit(),
        "code_hash": running_code().hash,
        **(about or {}),
    }
    path = run.derived_path(kind, version)
    trace_files.write_table(path, SCHEMAS[kind], rows, {_HEADER_KEY: json.dumps(header)})
    return path


def header(path: Path) -> dict[str, Any]:
    """Return the header of a file. Raises FileDamaged, OSError, and KeyError if there is no header."""
    return dict(json.loads(trace_files.read_metadata(path)[_HEADER_KEY]))


def written_at(path: Path) -> float:
    """Return when a file was written (seconds since the epoch), from its header, so copies keep the time."""
    try:
        return float(header(path)["written_at"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return path.lstat().st_mtime


def continuation(run: RunFolder) -> ContinuationKind | None:
    """Return which kind of derived file marks a run as a continuation; None if it does not continue another run."""
    return next((kind for kind in get_args(ContinuationKind) if run.derived(kind)), None)


def source_of(run: RunFolder, kind: ContinuationKind) -> str:
    """Return the folder name of the run that this one continues; empty if the derived file is damaged."""
    return Path(next(iter(rows_to_extend(run, kind, "1")), {"source_run_id": ""})["source_run_id"]).name


def name_damaged(run: RunFolder) -> None:
    """Warn of files that are damaged or belong to another run; they are treated as missing."""
    for path in (path for kind in SCHEMAS for path in run.derived(kind)):
        try:
            events.check(path)
        except FileDamaged as error:
            say_once(f"{error}; the file is treated as missing")


def rows_to_extend(run: RunFolder, kind: str, version: str) -> list[dict[str, Any]]:
    """Return the rows of a file, which the caller replaces by a file with more rows.

    Warns and returns no rows if the file is damaged or belongs to another run. Raises RunDamaged for another format.
    """
    path = run.derived_path(kind, version)
    try:
        return trace_files.read_rows(path)
    except FileNotFoundError:
        return []
    except WrongFormat as error:
        raise RunDamaged(str(error)) from error
    except FileDamaged as error:
        say_once(f"{error}; its contents will be rebuilt")
    return []


class GradesError(LookupError):
    """No graded version matches a name, or several do; the message is one line."""


@dataclass(frozen=True, slots=True)
class GradeFile:
    """The grades from one grader version."""

    version: str
    path: Path
    num_grades: int
    changed_at: float
    """UTC, seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Change:
    """A sample graded differently by two grader versions. Grades have the columns of trace_files.GRADES."""

    sample_id: str
    problem_id: str
    sample_index: int
    gold: str
    old: Mapping[str, Any] | None
    """Grade from the old version; None if that version has not graded the sample."""
    new: Mapping[str, Any] | None

    @property
    def verdicts(self) -> tuple[str, str]:
        """The old and the new verdict; `not graded` if missing."""
        old, new = ("not graded" if row is None else str(row["verdict"]) for row in (self.old, self.new))
        return old, new


def grade_files(run: RunFolder) -> list[GradeFile]:
    """Return a run's files of grades, oldest first."""
    read = ((path, trace_files.read_rows(path, ["grader_version"])) for path in run.derived("grades"))
    files = [GradeFile(rows[0]["grader_version"], path, len(rows), written_at(path)) for path, rows in read if rows]
    return sorted(files, key=lambda file: file.changed_at)


def find(files: list[GradeFile], name: str) -> GradeFile:
    """Return the file of the version with this name, first word or prefix. Raises GradesError."""
    named = [file for file in files if name in (file.version, file.version.partition(" ")[0])]
    matches = named or [file for file in files if file.version.startswith(name)]
    if len(matches) != 1:
        problem = "more than one match for" if matches else "no grades from"
        known = "; ".join(file.version for file in matches or files) or "none"
        raise GradesError(f"{problem} grader version {name!r}; available: {known}")
    return matches[0]


def read_grades(file: GradeFile) -> dict[str, GradeRow]:
    """Return the grades in a file by sample id."""
    return {row["sample_id"]: cast(GradeRow, row) for row in trace_files.read_rows(file.path)}


def changes(run: RunFolder, old: Mapping[str, GradeRow], new: Mapping[str, GradeRow]) -> list[Change]:
    """Return the planned samples whose old and new verdicts differ, in the order of problems and sample indices."""
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


class OtherTarget(ValueError):
    """The run's log-probabilities come from another target or have another definition; the message is one line."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """What the log-probabilities in a file were computed with."""

    target: str
    """Name of the model."""
    fingerprint: str
    """Content hash, or hub id and revision, of the model."""
    engine: str
    """The engine that computed the log-probabilities; values from two engines differ by rounding."""
    dtype: str
    version: int = chain_scores.LIKELIHOOD_VERSION
    temperature: float = 1.0
    """The distribution is the model's own, without truncation, regardless of the run's sampling settings."""


def scorer_of(target: ModelSpec, spec: RunSpec) -> Scorer:
    """Return the record that identifies a target on a run's engine."""
    return Scorer(target.name, target.fingerprint, spec.engine.kind, target.dtype)


def write_logprobs(run: RunFolder, scorer: Scorer, rows: Sequence[Mapping[str, str | int | float | None]]) -> None:
    """Write a file of rows with the columns of TARGET_LOGPROBS."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    write(run, "target_logprobs", f"{stamp}-{socket.gethostname()}-{os.getpid()}", rows, {"scorer": asdict(scorer)})


def ask_for_logprobs(run: RunFolder) -> None:
    """Ask a run's workers to compute the target's log-probabilities for the samples that they finish."""
    if not are_logprobs_asked(run):
        run.append("target_logprobs")


def are_logprobs_asked(run: RunFolder) -> bool:
    """Return whether workers score finished samples: on request, or because earlier samples were scored."""
    return bool(run.events("target_logprobs") or run.derived("target_logprobs"))


def scored_ids(run: RunFolder, scorer: Scorer | None) -> set[str]:
    """Return the ids of samples scored by this scorer; None: by any scorer, for a run without a target.

    Warns of damaged files; their samples are not included. Raises OtherTarget if the run was scored by another target
    or with another definition.
    """
    sample_ids = set[str]()
    for path in run.derived("target_logprobs"):
        try:
            rows = trace_files.read_rows(path, ["sample_id"])
            other = header(path)["scorer"]
            theirs, name, version = other["fingerprint"], str(other["target"]), other["version"]
        except FileDamaged as error:
            say_once(f"{error}; its samples will be scored again")
            continue
        if scorer is not None and (theirs, version) != (scorer.fingerprint, scorer.version):
            raise OtherTarget(
                f"{run.path.name} has log-probabilities from {name} (version {version}), not from {scorer.target} "
                f"(version {scorer.version}): to score again, move {run.derived_path('target_logprobs', '*')} away"
            )
        sample_ids.update(row["sample_id"] for row in rows)
    return sample_ids
