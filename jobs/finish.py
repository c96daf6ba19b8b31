"""After the workers: journals become trace files, and every finished sample gets its grade. Any CPU, any time, again
at will."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from grading import Gold, Submission, grade_many, grader_version
from harness.problem import Problem
from jobs import parts
from jobs.state import compact
from jobs.store import RunFolder


def finish(run: RunFolder, workers: int | None = None) -> int:
    """Compact and grade; returns how many samples were graded now. Grades of this grader version are not made again."""
    compact(run)
    with run.compaction_lock():
        return grade(run, workers)


def grade(run: RunFolder, workers: int | None = None) -> int:
    """Grade what this grader version has not graded yet; grades of other versions stay beside it."""
    path = run.grades_dir / f"{_file_name(grader_version())}.parquet"
    rows = parts.read_rows(path) if path.exists() else []
    known = {row["sample_id"] for row in rows}
    problems = {p.id: p for p in run.problems()}
    todo = [sample for sample in finished_samples(run) if sample["sample_id"] not in known]
    items = ((_submission(sample), _gold(problems[sample["problem_id"]])) for sample in todo)
    for sample, result in zip(todo, grade_many(items, workers=workers), strict=True):
        rows.append({"sample_id": sample["sample_id"], "grader_version": grader_version(), **asdict(result)})
    if todo:
        parts.write_table(path, parts.GRADES, rows)
    return len(todo)


def finished_samples(run: RunFolder) -> Iterator[dict[str, Any]]:
    """Each finished sample once, with what a grader needs: its text, its prompts and why it stopped."""
    seen: set[str] = set()
    for part in sorted(run.parts_dir.glob("*.parquet")):
        yield from _unseen(part, seen)


def _unseen(part: Path, seen: set[str]) -> Iterator[dict[str, Any]]:
    columns = ["sample_id", "problem_id", "stop_reason", "steps", "draft_prompt", "target_prompt"]
    try:
        rows = parts.read_rows(part, columns)
    except parts.DAMAGED:
        return
    for row in rows:
        if row["sample_id"] in seen:
            continue
        seen.add(row["sample_id"])
        row["text"] = "".join(step["text"] for step in row.pop("steps"))
        yield row


def _submission(sample: dict[str, Any]) -> Submission:
    prompts = (sample["draft_prompt"], sample["target_prompt"])
    thinks = any(prompt.rstrip().endswith("<think>") for prompt in prompts)
    return Submission(text=sample["text"], stop_reason=sample["stop_reason"], thinks=thinks)


def _gold(problem: Problem) -> Gold:
    return Gold(
        answer=problem.answer,
        kind=problem.kind,
        answers=problem.answers,
        alternatives=problem.alternatives,
        choices=problem.choices,
        unit=problem.unit,
        tolerance=problem.tolerance,
    )


def _file_name(version: str) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in version)
