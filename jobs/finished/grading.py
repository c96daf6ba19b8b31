"""After the workers: journals become trace files, and every finished sample is graded.

Where the machine fails, the sample stays ungraded, and the next grading grades it.
This needs no GPU and may be repeated at any time, even while workers still run.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from shlex import quote
from typing import TypedDict

from filelock import Timeout

from grading import Gold, GraderFailed, Submission, Ungraded, grade_many, grader_version
from grading.grader_pool import GradeOne
from harness import environment
from harness.cli.messages import counted
from harness.cli.program import typed
from harness.problems.problem import Problem
from harness.prompts import THINK_END
from harness.trace import StopReason
from jobs.run import derived
from jobs.run import timing as timings
from jobs.run.endings import Endings, by_shard, compact
from jobs.run.folder import RunFolder
from jobs.run.trace_files import FAILED, counting_records

_TEXT_COLUMNS = ["problem_id", "steps.list.element.text", "draft_prompt", "target_prompt"]


def finish(run: RunFolder, workers: int | None = None) -> int:
    """Compact journals, those of timing samples too, and grade.

    Returns how many samples were graded now, those graded earlier not included. Raises GraderFailed where samples are
    left ungraded, once the others have their grades.
    """
    compact(run)
    timed = timings.TimingFolder(run.path)
    if timed.journals():  # of a killed worker; one that is at work compacts its own when it ends
        with contextlib.suppress(Timeout), timed.lock("timing", 0):
            compact(timed)
    with run.lock("compaction"):
        return grade_by(run, grader_version(), None, workers)


def is_concluded(run: RunFolder) -> bool:
    """Return whether a run has grades, and a result newer than its samples beside a warehouse. Raises OSError.

    Samples that are timed count, too. Grades may be newer, as another grader's are: what grades again loads them, or
    was not to.
    """
    database = run.path.parent / "warehouse.duckdb"
    if not (run.results_path.exists() and run.derived("grades") and database.exists()):
        return False
    written_at, samples = run.results_path.stat().st_mtime_ns, (run, timings.TimingFolder(run.path))
    files = [path for folder in samples for path in (*folder.journals(), *folder.trace_files())]
    return all(path.stat().st_mtime_ns <= written_at for path in files)


def missing(run: RunFolder, endings: Endings) -> str:
    """Return in words what a run lacks whose samples are all finished; empty where nothing, or where some are not.

    That is so where the job or command that concludes it has died. What this user may not read is not judged.
    """
    try:
        if by_shard(run, endings).num_unfinished or is_concluded(run):
            return ""
    except OSError:
        return ""
    return "not loaded" if run.derived("grades") else "not graded"


def grade_by(run: RunFolder, version: str, grader: GradeOne | None, workers: int | None = None) -> int:
    """Grade the samples that the file of a grader version lacks; returns how many were graded.

    A grade that the file has is kept, unless it is that of a failed sample that a later try finished. Raises
    GraderFailed, once the grades of the others are written.
    """
    rows = {row["sample_id"]: row for row in derived.rows_to_extend(run, "grades", version)}
    problems = {p.id: p for p in run.problems()}
    spec = run.spec()
    answers_in_thought = spec.params.get("ends_at") == "boxed"
    asked_ids: list[str] = []
    reasons: list[str] = []

    def items() -> Iterator[tuple[Submission, Gold]]:
        for sample in finished_samples(run):
            grade_row = rows.get(sample["sample_id"])
            # A sample that failed may have been retried since.
            if grade_row is None or (grade_row["verdict"] == "error" and sample["stop_reason"] != FAILED):
                asked_ids.append(sample["sample_id"])
                yield _submission(sample, answers_in_thought), gold_of(problems[sample["problem_id"]])

    for number, result in enumerate(grade_many(items(), workers=workers, grade_one=grader)):
        if isinstance(result, Ungraded):
            reasons.append(result.reason)
            rows.pop(asked_ids[number], None)  # of the try before, which failed
        else:
            rows[asked_ids[number]] = {"sample_id": asked_ids[number], "grader_version": version, **asdict(result)}
    if len(reasons) < len(asked_ids):
        derived.write(run, "grades", version, list(rows.values()), {"versions": environment.versions()})
    if reasons:
        raise _ungraded(run, len(asked_ids) - len(reasons), reasons)
    return len(asked_ids)


def _ungraded(run: RunFolder, num_graded: int, reasons: list[str]) -> GraderFailed:
    reason, _ = Counter(reasons).most_common(1)[0]
    samples = f"{counted(len(reasons), 'sample is', 'samples are')} not graded, {num_graded} were graded now"
    return GraderFailed(
        f"{run.path.name}: {samples}: {reason}. To grade the rest:  {typed('jobs finalize')} {quote(str(run.path))}"
    )


class FinishedSample(TypedDict):
    """What a grader needs of a finished sample."""

    sample_id: str
    problem_id: str
    text: str
    draft_prompt: str
    target_prompt: str
    stop_reason: StopReason | None


def finished_samples(run: RunFolder) -> Iterator[FinishedSample]:
    """Yield each finished sample once, with what a grader needs."""
    for row in counting_records(run, _TEXT_COLUMNS):
        yield {
            "sample_id": row["sample_id"],
            "problem_id": row["problem_id"],
            "text": "".join(step["text"] for step in row["steps"]),
            "draft_prompt": row["draft_prompt"],
            "target_prompt": row["target_prompt"],
            "stop_reason": row["stop_reason"],
        }


def _submission(sample: FinishedSample, answers_in_thought: bool) -> Submission:
    """Return what is graded of a sample; `answers_in_thought`: a chain may end with an answer inside its thought.

    There the last step often closes the thought right behind its answer, which must not hide the answer.
    """
    prompts = (sample["draft_prompt"], sample["target_prompt"])
    starts_thinking = any(prompt.rstrip().endswith("<think>") for prompt in prompts)
    return Submission(
        text=sample["text"].replace(THINK_END, "") if answers_in_thought else sample["text"],
        stop_reason=sample["stop_reason"],
        thinks=starts_thinking and not answers_in_thought,
    )


def gold_of(problem: Problem) -> Gold:
    """Return what a grader needs to know of a problem."""
    return Gold(
        answer=problem.answer,
        kind=problem.kind,
        answers=problem.answers,
        alternatives=problem.alternatives,
        choices=problem.choices,
        unit=problem.unit,
        tolerance=problem.tolerance,
    )
