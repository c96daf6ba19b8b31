"""Regrade stored traces with the current version of their grader: `python -m grading.regrade RUN…`.

Grades from older versions are kept, and changed verdicts can be listed. No GPU and no engine are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from harness.cli.command import GRADER, TRUST, OneLineErrors

SHOWN = 50
"""Number of samples listed without --all; the counts always cover all samples."""


@click.command(cls=OneLineErrors)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option("--database", type=click.Path(path_type=Path), help="Database to load the graded runs into.")
@click.option("--diff", "is_diff", is_flag=True, help="List the verdicts that differ between two grader versions.")
@click.option(
    "--old", metavar="VERSION", help="With --diff, the version to compare from.  [default: the previous version]"
)
@click.option("--new", metavar="VERSION", help="With --diff, the version to compare to; nothing is graded.")
@click.option("--versions", "is_listing", is_flag=True, help="List the grader versions of each run and grade nothing.")
@click.option("--all", "is_all", is_flag=True, help=f"List all changed samples instead of the first {SHOWN}.")
@click.option(
    "--workers", type=click.IntRange(1), help="Number of grader processes.  [default: one per processor, at most 16]"
)
@GRADER
@TRUST
def main(runs: Sequence[str], is_all: bool, **asked: Any) -> int:
    """Grade each run again with the current version of its grader, and keep the grades from other versions.

    RUN is a run folder, a run id, a unique prefix, or a folder of run folders.

    VERSION is the name of a grader version, its first word, or a prefix of the name. Exit code 1: a run was skipped
    because it could not be read, or samples could not be graded. Exit code 2: an option is wrong or no run was found.
    """
    from jobs.finished.regrading import regrade

    if (asked["old"] or asked["new"]) and not asked["is_diff"]:
        raise click.UsageError("--old and --new require --diff")
    return int(not regrade(runs, num_shown=None if is_all else SHOWN, **asked))


if __name__ == "__main__":
    main(prog_name="python -m grading.regrade")
