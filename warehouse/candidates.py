"""Grade drafts that are whole chains: `python -m warehouse.candidates RUN…`.

SCoT's selection can be judged only where it is known which drafts were right (SCoT, section 4.4). Every draft chain is
graded as if it were the answer, by the same grader as samples. The grades go into the run folder's `derived/`;
load the run afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.command import OneLineErrors
from jobs.arguments import RunPath

if TYPE_CHECKING:
    from grading import Gold, Submission
    from jobs.run.folder import RunFolder

WHOLE_CHAINS = frozenset({"scot"})
"""Methods whose candidates hold an answer of their own."""


def grade_candidates(run: RunFolder, workers: int | None = None) -> int:
    """Grade the drafts of a run that this grader version has not graded yet, and return how many it graded now.

    Raises GraderFailed where the machine left drafts ungraded, once those of all other samples are written.
    """
    from grading import Submission, Ungraded, grade_many, graded, grader_version
    from harness.prompts import THINK_END
    from jobs.finished.grading import gold_of
    from jobs.run import derived

    spec = run.spec()
    if spec.method not in WHOLE_CHAINS:
        return 0
    version = grader_version()
    rows = derived.rows_to_extend(run, "candidate_grades", version)
    graded_samples = {row["sample_id"] for row in rows}
    golds = {problem.id: gold_of(problem) for problem in run.problems()}
    keys: list[dict[str, Any]] = []

    def items() -> Iterator[tuple[Submission, Gold]]:
        for key, text, problem_id in _drafts(run, graded_samples):
            keys.append(key)
            # The chain of thought itself is graded: nothing follows its closing tag yet.
            yield Submission(text.replace(THINK_END, ""), "answered", thinks=False), golds[problem_id]

    ungraded: dict[str, Ungraded] = {}
    for number, grade in enumerate(grade_many(items(), workers=workers)):
        if isinstance(grade, Ungraded):
            ungraded[keys[number]["sample_id"]] = grade
            continue
        columns = {"verdict": grade.verdict, "extracted": grade.extracted, "detail": grade.detail}
        rows.append({**keys[number], "grader_version": version, **columns})
    rows = [row for row in rows if row["sample_id"] not in ungraded]  # a sample's drafts are graded all or none
    if keys:
        derived.write(run, "candidate_grades", version, rows)
    graded(ungraded.values())
    return len(keys)


def _drafts(run: RunFolder, graded_samples: set[str]) -> Iterator[tuple[dict[str, Any], str, str]]:
    """Yield the key, the text and the problem id of each draft of samples that are not yet graded.

    Drafts of failed samples are left out: such a sample may be run again, with other drafts under the same keys.
    """
    from jobs.run.trace_files import counting_records

    for sample in counting_records(run, ["problem_id", "steps"], failed=False):
        if sample["sample_id"] in graded_samples:
            continue
        for step_index, step in enumerate(sample["steps"]):
            for index, candidate in enumerate(step["candidates"]):
                key = {"sample_id": sample["sample_id"], "step_index": step_index, "candidate_index": index}
                yield key, candidate["text"], sample["problem_id"]


@click.command(cls=OneLineErrors)
@click.argument("paths", metavar="RUN…", nargs=-1, required=True, type=RunPath())
@click.option("--workers", type=click.IntRange(1), help="Grader processes.  [default: one per processor, at most 16]")
def main(paths: tuple[Path, ...], workers: int | None) -> None:
    """Grade the drafts of SCoT runs, which the view draft_selection_accuracy is based on.

    The exit code is 1 where the machine failed, so that drafts have no grade; the same command grades them.
    """
    from grading import GraderFailed
    from harness.cli.screen import printable
    from jobs.run import trace_files
    from jobs.run.folder import run_folders

    folders = run_folders(path for path in paths if path.is_dir())
    if not folders:
        raise click.UsageError(f"no run folder in {', '.join(map(str, paths))}")
    try:
        for run in folders:
            if run.spec().method in WHOLE_CHAINS:
                click.echo(printable(f"{run.path.name}: {grade_candidates(run, workers)} drafts graded now"))
            else:
                click.echo(printable(f"{run.path.name}: its drafts are not whole chains; nothing to grade"))
    except GraderFailed as error:
        raise click.ClickException(printable(f"{run.path.name}: {error}; the same command grades the rest")) from error
    except (*trace_files.DAMAGED, ValueError, TypeError, KeyError) as error:
        raise click.UsageError(printable(f"{run.path.name} cannot be read: {str(error).splitlines()[0]}")) from error


if __name__ == "__main__":
    main(prog_name="python -m warehouse.candidates")
