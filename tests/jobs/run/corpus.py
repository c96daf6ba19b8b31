"""A run folder with a file of every kind, to be damaged (tools.chaos.fuzz)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from grading import grader_version
from jobs.finished.grading import grade_by
from jobs.run import derived, submissions, trace_files
from jobs.run.folder import RunFolder
from jobs.run.journal import TRACE, JournalWriter
from jobs.run.spec import Attempt
from jobs.run.submissions import Submission
from jobs.work.worker import run_shard
from tests.jobs.runs import plan

KINDS = (
    "spec.json", "problems", "plan", "journal", "trace file", "grades", "candidate grades", "scores", "events",
)  # fmt: skip


@dataclass
class Corpus:
    """A run folder with a file of every kind, and another run's files of the same kinds."""

    run: RunFolder
    files: dict[str, Path]
    others: dict[str, bytes]
    """The other run's file of each kind; both runs have the same sample ids."""


def corpus(folder: Path) -> Corpus:
    """Make a run, half of it finished and half interrupted, and another one that differs in its engine alone."""
    run, other = (_made(folder / name, dtype) for name, dtype in (("a", "auto"), ("b", "float16")))
    files = _files(run)
    return Corpus(run, files, {kind: path.read_bytes() for kind, path in _files(other).items()})


def _made(folder: Path, dtype: str) -> RunFolder:
    run = plan(folder, samples=2, shards=2, dtype=dtype)
    for shard in (0, 1):
        run_shard(str(run.path), shard)
    _interrupt(run, run.trace_files()[1])
    grade_by(run, grader_version(), None, 1)
    [graded] = run.derived("grades")
    rows = trace_files.read_rows(graded)
    keys = [
        {**row, "step_index": 0, "candidate_index": 1, "scorer": "s", "score": 0.5, "missing": None} for row in rows
    ]
    for kind in ("candidate_grades", "scores"):
        derived.write(run, kind, "s", [{name: row[name] for name in derived.SCHEMAS[kind].names} for row in keys])
    for number in range(3):
        submissions.record(run, Submission(number, f"{run.path.name}.{number}", [[0], [1]], 1.0 * number))
        run.append("retries", samples=[rows[number]["sample_id"]])
    submissions.leave(run, "shared0")
    return run


def _interrupt(run: RunFolder, trace_file: Path) -> None:
    """Turn a trace file back into the journal of a worker that was killed: some samples ended, some have steps."""
    rows = trace_files.read_rows(trace_file)
    attempt = Attempt(trace_file.stem, run.path.name, 1, "node", 1, 0.0, None)
    trace_file.unlink()
    writer = JournalWriter(run.journal_dir / f"{attempt.attempt_id}.jsonl", attempt)
    for number, row in enumerate(rows):
        trace = TRACE.validate_python(row)
        steps, calls, trace.steps, trace.calls = trace.steps, trace.calls, [], []
        writer.start(replace(trace, stop_reason=None))
        for place, step in enumerate(steps):
            trace.steps.append(step)
            trace.calls += [call for call in calls if call.step == place]
            writer.step(trace, step)
        if number % 3:
            writer.end(trace)
    writer.close()


def _files(run: RunFolder) -> dict[str, Path]:
    derived_files = [run.derived(kind)[0] for kind in ("grades", "candidate_grades", "scores")]
    plan_files = [run.spec_path, run.problems_path, run.plan_path]
    files = [*plan_files, run.journals()[0], run.trace_files()[0], *derived_files, run.events_path]
    return dict(zip(KINDS, files, strict=True))
