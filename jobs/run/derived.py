"""What is derived of a run: `derived/KIND-VERSION.parquet` in its folder, with one header.

    grades-VERSION              the verdict on each sample, by a version of the grader
    candidate_grades-VERSION    the same of candidates that are whole chains
    scores-SCORER               quality of steps and candidates by a process reward model
    target_logprobs-WRITE       the target's log-probability of each step; every write is a file of its own
    probe_points-1              the steps of another run that this one probes (jobs.continuations.probe)
    budget_cuts-1               where this run cuts the chains of another one (jobs.continuations.budget_sweep)
    timing_draw-1               which samples are timed (jobs.run.timing)

Versions never overwrite each other's files. Of grades, the version that graded last counts, here and in the warehouse.
Workers that write log-probabilities never wait for each other, and what exists never changes: a sample that two files
have counts once, and the warehouse takes the file that was written first.
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
"""The columns of each kind."""
ContinuationKind = Literal["probe_points", "budget_cuts"]
"""Kinds that say where a run's problems begin inside the chains of another one (jobs.continuations.continuation)."""
_HEADER_KEY = "derived"
"""Metadata of a file: the JSON of its header."""


def write(
    run: RunFolder, kind: str, version: str, rows: Sequence[Mapping[str, Any]], about: Mapping[str, Any] | None = None
) -> Path:
    """Write a file with a header that says what made it and when; `about` is added to that. Returns its path."""
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
    """Return the header of a file. Raises FileDamaged, KeyError where it has none, and OSError."""
    return dict(json.loads(trace_files.read_metadata(path)[_HEADER_KEY]))


def written_at(path: Path) -> float:
    """Return when a file was written, in seconds since the epoch: by its header, also in a copy of the run's folder."""
    try:
        return float(header(path)["written_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return path.stat().st_mtime


def continuation(run: RunFolder) -> ContinuationKind | None:
    """Return how a run goes on from another one; None: its problems are of no other run."""
    return next((kind for kind in get_args(ContinuationKind) if run.derived(kind)), None)


def source_of(run: RunFolder, kind: ContinuationKind) -> str:
    """Return the folder's name of the run that this one goes on from; empty where its file is damaged."""
    return Path(next(iter(rows_to_extend(run, kind, "1")), {"source_run_id": ""})["source_run_id"]).name


def name_damaged(run: RunFolder) -> None:
    """Name the files that are damaged, or that are not this run's: they count as not made."""
    for path in (path for kind in SCHEMAS for path in run.derived(kind)):
        try:
            events.check(path)
        except FileDamaged as error:
            say_once(f"{error}; what it held counts as not made")


def rows_to_extend(run: RunFolder, kind: str, version: str) -> list[dict[str, Any]]:
    """Return the rows of a file that is going to be replaced by one with more rows.

    One that is damaged or of another run is named, and has no rows. Raises RunDamaged where it has another format.
    """
    path = run.derived_path(kind, version)
    try:
        return trace_files.read_rows(path)
    except FileNotFoundError:
        return []
    except WrongFormat as error:
        raise RunDamaged(str(error)) from error
    except FileDamaged as error:
        say_once(f"{error}; what it held is made again")
    return []


class GradesError(LookupError):
    """There are no grades of a version, or of several; the message is one line."""


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


def grade_files(run: RunFolder) -> list[GradeFile]:
    """Return the files of grades of a run, the one that was graded first coming first."""
    read = ((path, trace_files.read_rows(path, ["grader_version"])) for path in run.derived("grades"))
    files = [GradeFile(rows[0]["grader_version"], path, len(rows), written_at(path)) for path, rows in read if rows]
    return sorted(files, key=lambda file: file.changed_at)


def find(files: list[GradeFile], name: str) -> GradeFile:
    """Return the file of the version with this name, first word or beginning. Raises GradesError."""
    named = [file for file in files if name in (file.version, file.version.partition(" ")[0])]
    matches = named or [file for file in files if file.version.startswith(name)]
    if len(matches) != 1:
        problem = "several are" if matches else "no grades of"
        known = "; ".join(file.version for file in matches or files) or "none"
        raise GradesError(f"{problem} grader version {name!r}; there are: {known}")
    return matches[0]


def read_grades(file: GradeFile) -> dict[str, GradeRow]:
    """Read rows of trace_files.GRADES by sample id."""
    return {row["sample_id"]: cast(GradeRow, row) for row in trace_files.read_rows(file.path)}


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


class OtherTarget(ValueError):
    """The run has log-probabilities of another target, or by another definition; one line."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """What the log-probabilities of a file are of."""

    target: str
    """Name of the model."""
    fingerprint: str
    """Content hash, or hub id and revision, of the model."""
    engine: str
    """The engine that read the chains; numbers of two engines differ by rounding."""
    dtype: str
    version: int = chain_scores.LIKELIHOOD_VERSION
    temperature: float = 1.0
    """The distribution is the model's own, before any truncation, whatever the run's samples were drawn by."""


def scorer_of(target: ModelSpec, spec: RunSpec) -> Scorer:
    """Return the scorer that a target is with a run's engine."""
    return Scorer(target.name, target.fingerprint, spec.engine.kind, target.dtype)


def write_logprobs(run: RunFolder, scorer: Scorer, rows: Sequence[Mapping[str, str | int | float | None]]) -> None:
    """Write a file of rows with the columns of TARGET_LOGPROBS."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
    write(run, "target_logprobs", f"{stamp}-{socket.gethostname()}-{os.getpid()}", rows, {"scorer": asdict(scorer)})


def ask_for_logprobs(run: RunFolder) -> None:
    """Ask the workers of a run to score the samples that they finish."""
    if not are_logprobs_asked(run):
        run.append("target_logprobs")


def are_logprobs_asked(run: RunFolder) -> bool:
    """Return whether the workers of a run score what they finish: it was asked for, or has been done before."""
    return bool(run.events("target_logprobs") or run.derived("target_logprobs"))


def scored_ids(run: RunFolder, scorer: Scorer | None) -> set[str]:
    """Return the ids of the samples that are scored, by this scorer; None: by any, of a run without a target.

    A file that is damaged is named, and its samples are not. Raises OtherTarget where the run was scored by another
    target, or by another version of the definition.
    """
    sample_ids = set[str]()
    for path in run.derived("target_logprobs"):
        try:
            rows = trace_files.read_rows(path, ["sample_id"])
            other = header(path)["scorer"]
            theirs, name, version = other["fingerprint"], str(other["target"]), other["version"]
        except FileDamaged as error:
            say_once(f"{error}; what it held is scored again")
            continue
        if scorer is not None and (theirs, version) != (scorer.fingerprint, scorer.version):
            raise OtherTarget(
                f"{run.path.name} has log-probabilities of {name} (version {version}), not of {scorer.target} "
                f"(version {scorer.version}): move {run.derived_path('target_logprobs', '*')} away to score it anew"
            )
        sample_ids.update(row["sample_id"] for row in rows)
    return sample_ids
