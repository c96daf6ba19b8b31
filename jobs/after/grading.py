"""After the workers: journals become trace files, and every finished sample gets its grade. Any CPU, any time, again
at will."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grading import Gold, Submission, grade_many, grader_version
from grading import grade as grade_one
from grading.pool import GradeOne
from harness import environment
from harness.problem import Problem
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.grades import file_name
from jobs.run.records import counting_records
from jobs.run.state import compact

_TEXT_COLUMNS = ["problem_id", "steps.list.element.text", "draft_prompt", "target_prompt"]


def finish(run: RunFolder, workers: int | None = None) -> int:
    """Compact and grade; returns how many samples were graded now. Grades of this grader version are not made again."""
    compact(run)
    with run.compaction_lock():
        return grade(run, workers)


def grade(run: RunFolder, workers: int | None = None) -> int:
    """Grade what this grader version has not graded yet; grades of other versions stay beside it."""
    return grade_into(run.grades_dir, run, grader_version(), grade_one, workers)


def grade_into(folder: Path, run: RunFolder, version: str, grader: GradeOne, workers: int | None = None) -> int:
    """Write the file of one grader version in `folder`, or add what it lacks; returns how many samples were graded.

    A grade that the file holds already is left as it is, unless it says that the sample failed and a later
    try did not. The file's metadata says what graded last and where.
    """
    path = folder / file_name(version)
    rows = {row["sample_id"]: row for row in (trace_files.read_rows(path) if path.exists() else [])}
    problems = {p.id: p for p in run.problems()}
    taken: list[str] = []

    def items() -> Iterator[tuple[Submission, Gold]]:
        for sample in finished_samples(run):
            known = rows.get(sample["sample_id"])
            # A sample that failed may have been run once more since.
            if known is None or (known["verdict"] == "error" and sample["stop_reason"] != "error"):
                taken.append(sample["sample_id"])
                yield _submission(sample), gold_of(problems[sample["problem_id"]])

    for number, result in enumerate(grade_many(items(), workers=workers, grade_one=grader)):
        rows[taken[number]] = {"sample_id": taken[number], "grader_version": version, **asdict(result)}
    if taken:
        manifest = {
            "grader_version": version,
            "graded_at": time.time(),
            "git_commit": environment.git_commit(),
            "versions": environment.versions(),
        }
        trace_files.write_table(path, trace_files.GRADES, list(rows.values()), {"grader": json.dumps(manifest)})
    return len(taken)


def finished_samples(run: RunFolder) -> Iterator[dict[str, Any]]:
    """Each finished sample once, with what a grader needs: its text, its prompts and why it stopped."""
    for row in counting_records(run, _TEXT_COLUMNS):
        row["text"] = "".join(step["text"] for step in row.pop("steps"))
        yield row


def _submission(sample: dict[str, Any]) -> Submission:
    prompts = (sample["draft_prompt"], sample["target_prompt"])
    thinks = any(prompt.rstrip().endswith("<think>") for prompt in prompts)
    return Submission(text=sample["text"], stop_reason=sample["stop_reason"], thinks=thinks)


def gold_of(problem: Problem) -> Gold:
    """What a grader is told of a problem."""
    return Gold(
        answer=problem.answer,
        kind=problem.kind,
        answers=problem.answers,
        alternatives=problem.alternatives,
        choices=problem.choices,
        unit=problem.unit,
        tolerance=problem.tolerance,
    )
