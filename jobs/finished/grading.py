"""Compact journals to trace files and grade every finished sample.

A sample whose grading fails because of the machine stays ungraded and is graded next time. Grading needs no GPU and
may be repeated at any time, even while workers are running.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from shlex import quote
from typing import Any

import click
from filelock import Timeout

from grading import Gold, GraderFailed, Submission, Ungraded, grade_many, graded
from grading.grader_pool import GradeOne
from grading.own_grader import OwnGold, OwnGrader
from harness import environment
from harness.cli.messages import counted
from harness.cli.program import typed
from harness.problems import benchmarks, sources
from harness.problems.problem import Problem
from harness.prompts import THINK_END
from jobs import graders
from jobs.run import derived
from jobs.run import timing as timings
from jobs.run.endings import Endings, by_shard, compact
from jobs.run.folder import RunFolder
from jobs.run.trace_files import FAILED, SampleRow, counting_records

WHOLE_CHAINS = frozenset({"scot"})
"""Methods whose candidates are whole chains, which contain an answer."""
_TEXT_COLUMNS = ["problem_id", "steps.list.element.text", "draft_prompt", "target_prompt"]


def finish(run: RunFolder, workers: int | None = None) -> int:
    """Compact journals (including those of timing samples) and grade with the run's grader.

    Returns how many samples were graded now. Raises GraderFailed if samples are left ungraded, after writing the other
    grades, and for a custom grader also NotTrusted and BadMethod.
    """
    compact(run)
    timed = timings.TimingFolder(run.path)
    if timed.journals():  # of a killed worker; active workers compact their own journals at their end
        with contextlib.suppress(Timeout), timed.lock("timing", 0):
            compact(timed)
    version, grader = graders.recorded(run).version, graders.grader_of(run)
    with run.lock("compaction"):
        return grade_by(run, version, grader, workers)


def is_concluded(run: RunFolder) -> bool:
    """Return whether a run has grades, a database, and a result newer than its samples and timing samples.

    Grades newer than the result, e.g. from another grader, do not count: `grading.regrade` loads them only on request.
    Raises OSError.
    """
    database = run.path.parent / "warehouse.duckdb"
    if not (run.results_path.exists() and is_graded(run) and database.exists()):
        return False
    written_at, samples = run.results_path.stat().st_mtime_ns, (run, timings.TimingFolder(run.path))
    files = [path for folder in samples for path in (*folder.journals(), *folder.trace_files())]
    return all(path.stat().st_mtime_ns <= written_at for path in files)


def is_graded(run: RunFolder) -> bool:
    """Return whether a run has grades from its recorded grader or, if no grader is recorded, any grades."""
    if not run.events("grader"):
        return bool(run.derived("grades"))
    return run.derived_path("grades", graders.recorded(run).version).exists()


def missing(run: RunFolder, endings: Endings) -> str:
    """Return `not graded` or `not loaded` for a finished run whose last job or command died, otherwise an empty string.

    Also empty for a run that this user has no permission to read.
    """
    try:
        if by_shard(run, endings).num_unfinished or is_concluded(run):
            return ""
    except OSError:
        return ""
    return "not loaded" if is_graded(run) else "not graded"


def grade_by(run: RunFolder, version: str, grader: GradeOne | OwnGrader | None, workers: int | None = None) -> int:
    """Grade the samples without a grade from this grader version; return how many.

    Existing grades are kept, except for samples that failed and were later rerun successfully. The newest grades are
    the ones in use. If another version graded later and the run has a selected grader, this version's file is therefore
    rewritten even without new grades. Raises GraderFailed after writing the other grades.
    """
    rows = {row["sample_id"]: row for row in derived.rows_to_extend(run, "grades", version)}
    golds = _golds(run, grader)
    spec = run.spec()
    answers_in_thought = spec.params.get("ends_at") == "boxed"
    asked_ids: list[str] = []
    reasons: list[str] = []

    def items() -> Iterator[tuple[Submission, Gold]]:
        for sample, text in finished_samples(run):
            grade_row = rows.get(sample["sample_id"])
            # A failed sample may have been retried since.
            if grade_row is None or (grade_row["verdict"] == "error" and sample["stop_reason"] != FAILED):
                asked_ids.append(sample["sample_id"])
                yield _submission(sample, text, answers_in_thought), golds[sample["problem_id"]]

    for number, result in enumerate(grade_many(items(), workers=workers, grade_one=grader)):
        if isinstance(result, Ungraded):
            reasons.append(result.reason)
            rows.pop(asked_ids[number], None)  # the grade of an earlier, failed attempt
        else:
            rows[asked_ids[number]] = {"sample_id": asked_ids[number], "grader_version": version, **asdict(result)}
    if len(reasons) < len(asked_ids) or (rows and not asked_ids and not _counts(run, version)):
        derived.write(run, "grades", version, list(rows.values()), {"versions": environment.versions()})
    if reasons:
        raise _ungraded(run, len(asked_ids) - len(reasons), reasons)
    return len(asked_ids)


def _golds(run: RunFolder, grader: GradeOne | OwnGrader | None) -> dict[str, Gold]:
    """Return the reference answer of each problem, by problem id."""
    if isinstance(grader, OwnGrader):
        return {one.id: OwnGold(one.answer, problem=json.dumps(asdict(one))) for one in run.problems()}
    return {problem.id: gold_of(problem) for problem in run.problems()}


def _counts(run: RunFolder, version: str) -> bool:
    """Return whether a version's grades are the newest; also True if no grader was ever selected for the run."""
    return not run.events("grader") or derived.grade_files(run)[-1].version == version


def _ungraded(run: RunFolder, num_graded: int, reasons: list[str]) -> GraderFailed:
    reason, _ = Counter(reasons).most_common(1)[0]
    samples = f"{counted(len(reasons), 'sample is', 'samples are')} not graded ({reason}); {num_graded} were graded now"
    again, reference = f"{typed('jobs finalize')} {quote(str(run.path))}", graders.recorded(run).reference
    if reference is not None:
        return GraderFailed(f"{run.path.name}: {samples}. After fixing the grader, run:  {again} --grader {reference}")
    return GraderFailed(f"{run.path.name}: {samples}. To grade the rest:  {again}")


def grade_candidates(run: RunFolder, workers: int | None = None) -> int:
    """Grade the drafts of a run that the run's grader has not graded yet; return how many.

    Applies to methods with whole chains as drafts (WHOLE_CHAINS); a draft is graded as an answer. If drafts are left
    ungraded, raises GraderFailed after writing the grades of all other samples.
    """
    spec = run.spec()
    if spec.method not in WHOLE_CHAINS:
        return 0
    version, grader = graders.recorded(run).version, graders.grader_of(run)
    rows = derived.rows_to_extend(run, "candidate_grades", version)
    graded_samples = {row["sample_id"] for row in rows}
    golds = _golds(run, grader)
    keys: list[dict[str, Any]] = []

    def items() -> Iterator[tuple[Submission, Gold]]:
        # Skip failed samples: a retry would have other drafts under the same keys.
        for sample in counting_records(run, ["problem_id", "steps"], failed=False):
            if sample["sample_id"] in graded_samples:
                continue
            for step_index, step in enumerate(sample["steps"]):
                for index, candidate in enumerate(step["candidates"]):
                    keys.append({"sample_id": sample["sample_id"], "step_index": step_index, "candidate_index": index})
                    # Grade the chain of thought itself: nothing follows its closing tag yet.
                    text = candidate["text"].replace(THINK_END, "")
                    yield Submission(text, "answered", thinks=False), golds[sample["problem_id"]]

    ungraded: dict[str, Ungraded] = {}
    for number, grade in enumerate(grade_many(items(), workers=workers, grade_one=grader)):
        if isinstance(grade, Ungraded):
            ungraded[keys[number]["sample_id"]] = grade
            continue
        columns = {"verdict": grade.verdict, "extracted": grade.extracted, "detail": grade.detail}
        rows.append({**keys[number], "grader_version": version, **columns})
    # Either all or none of a sample's drafts are graded.
    rows = [row for row in rows if row["sample_id"] not in ungraded]
    if keys:
        derived.write(run, "candidate_grades", version, rows)
    graded(ungraded.values())
    return len(keys)


def finished_samples(run: RunFolder) -> Iterator[tuple[SampleRow, str]]:
    """Yield each finished sample once, with its text."""
    for row in counting_records(run, _TEXT_COLUMNS):
        yield row, "".join(step["text"] for step in row["steps"])


def _submission(sample: SampleRow, text: str, answers_in_thought: bool) -> Submission:
    """Return the text to grade for a sample.

    If the answer may be inside the reasoning block (`answers_in_thought`), the last step often closes the block right
    after the answer, which must not hide the answer.
    """
    prompts = (sample["draft_prompt"], sample["target_prompt"])
    starts_thinking = any(prompt.rstrip().endswith("<think>") for prompt in prompts)
    return Submission(
        text=text.replace(THINK_END, "") if answers_in_thought else text,
        stop_reason=sample["stop_reason"],
        thinks=starts_thinking and not answers_in_thought,
    )


def golds_of(
    names: Sequence[str], data_dir: Path | None, split: str | None, columns: Sequence[str]
) -> dict[str, dict[str, Gold]]:
    """Return the reference answers of the given datasets, or of all locally available ones, by dataset and problem.

    Raises click.UsageError if a given dataset cannot be read.
    """
    golds = {}
    for name in names or benchmarks.DATASETS:
        try:
            sources.check(name, split, columns)
            dataset = sources.load(name, data_dir, split=split, columns=columns)
        except (benchmarks.DatasetNotFound, ValueError) as error:
            if names:
                raise click.UsageError(str(error)) from error
            click.echo(f"skipped: {error}", err=True)
        else:
            golds[name] = {problem.id: gold_of(problem) for problem in dataset.problems}
    return golds


def gold_of(problem: Problem) -> Gold:
    """Return a problem's reference answer, with the other fields that the grader needs."""
    return Gold(**{field.name: getattr(problem, field.name) for field in fields(Gold)})
