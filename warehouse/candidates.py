"""Grade whole-chain drafts: `python -m warehouse.candidates RUN…`.

SCoT's selection can be evaluated only if the correctness of each draft is known (SCoT, section 4.4). Every draft chain
is graded as an answer, by the same grader as samples. The grades are written to the run folder's `derived/`; load the
run afterwards.
"""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.command import OneLineErrors
from jobs.arguments import RunPath


@click.command(cls=OneLineErrors)
@click.argument("paths", metavar="RUN…", nargs=-1, required=True, type=RunPath())
@click.option("--workers", type=click.IntRange(1), help="Grader processes.  [default: one per processor, at most 16]")
def main(paths: tuple[Path, ...], workers: int | None) -> None:
    """Grade the drafts of SCoT runs, as required by the view draft_selection_accuracy.

    Exit code 1: some drafts could not be graded; repeat the command to grade them.
    """
    from grading import GraderFailed
    from harness.cli.screen import printable
    from jobs.finished.grading import WHOLE_CHAINS, grade_candidates
    from jobs.run import trace_files
    from jobs.run.folder import run_folders

    folders = run_folders(path for path in paths if path.is_dir())
    if not folders:
        raise click.UsageError(f"no run folder in {', '.join(map(str, paths))}")
    try:
        for run in folders:
            if run.spec().method in WHOLE_CHAINS:
                click.echo(printable(f"{run.path.name}: {grade_candidates(run, workers)} drafts graded"))
            else:
                click.echo(printable(f"{run.path.name}: nothing to grade, because drafts are not whole chains"))
    except GraderFailed as error:
        raise click.ClickException(
            printable(f"{run.path.name}: {error}; repeat the command to grade the rest")
        ) from error
    except (*trace_files.DAMAGED, ValueError, TypeError, KeyError) as error:
        raise click.UsageError(printable(f"{run.path.name} cannot be read: {str(error).splitlines()[0]}")) from error


if __name__ == "__main__":
    main(prog_name="python -m warehouse.candidates")
