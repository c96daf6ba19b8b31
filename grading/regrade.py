"""`python -m grading.regrade RUN…`: grade stored traces with this grader, keep every older version's grades, and say
what moved. Needs no GPU and no engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.command import OneLineErrors

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder
    from jobs.run.grades import Change, GradeFile

SHOWN = 50
"""Samples that are listed unless --all is given; the counts are always over all of them."""
UNREADABLE = (OSError, ValueError, TypeError, KeyError)
"""What reading a damaged run folder raises, or one of another version of the harness."""
_COLUMNS = ("problem", "sample", "verdicts", "gold", "answers", "reasons")


@click.command(cls=OneLineErrors)
@click.argument("paths", metavar="RUN…", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--database", type=click.Path(path_type=Path), help="Load the runs into this warehouse afterwards.")
@click.option("--diff", "is_diff", is_flag=True, help="Show what moved: by default to the newest version.")
@click.option("--old", metavar="VERSION", help="With --diff: from this version.  [default: the one before]")
@click.option("--new", metavar="VERSION", help="With --diff: to this version, and grade nothing.")
@click.option(
    "--versions", "--version", "is_listing", is_flag=True, help="List the grader versions there are, and stop."
)
@click.option(
    "--second-grader", "is_second", is_flag=True, help="Also grade with the independent grader; list disagreements."
)
@click.option("--all", "is_all", is_flag=True, help=f"List all samples that moved or are in dispute, not {SHOWN}.")
@click.option("--workers", type=click.IntRange(1), help="Grader processes.  [default: one per processor, at most 16]")
def main(
    paths: Sequence[Path],
    database: Path | None,
    is_diff: bool,
    old: str | None,
    new: str | None,
    is_listing: bool,
    is_second: bool,
    is_all: bool,
    workers: int | None,
) -> int:
    """Grade run folders (or folders of them) with this grader version; grades of other versions stay.

    VERSION is a version's name, its first word or its beginning. Exit code 1: a run was left out and named; 2: a
    mistake, or nothing could be done.
    """
    from jobs.run.folder import run_folders
    from jobs.run.grades import GradesError

    if (old or new) and not is_diff:
        raise click.UsageError("--old and --new go with --diff")
    folders = run_folders(path for path in paths if path.is_dir())
    if not folders:
        raise click.UsageError(f"no run folder in {', '.join(map(str, paths))}")
    shown = None if is_all else SHOWN
    whole: list[RunFolder] = []
    for run in folders:
        try:
            if is_listing:
                _print_versions(run)
            elif new is None:
                _regrade(run, workers)
            if is_diff and not is_listing:
                _print_diff(run, old, new, shown)
            if is_second and not is_listing:
                _second(run, workers, shown)
            whole.append(run)
        except GradesError as error:
            raise click.UsageError(f"{run.path.name}: {error}") from error
        except UNREADABLE as error:  # a run of another version of the harness, or damaged: the others are graded
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            click.echo(f"WARNING: {run.path.name} cannot be read and is LEFT OUT: {reason}", err=True)
    if database is not None and not is_listing:
        _load(whole, database)
    return int(len(whole) < len(folders))


def _regrade(run: RunFolder, workers: int | None) -> None:
    from grading import grader_version
    from jobs.after.grading import finish
    from jobs.run.grades import find, grade_files, read_grades

    graded = finish(run, workers)
    files = grade_files(run.grades_dir)
    if not files:
        click.echo(f"{run.path.name}: no finished sample to grade")
        return
    here = find(files, grader_version())
    total = sum(len(shard) for shard in run.shards())
    verdicts = _counts(read_grades(here), total)
    click.echo(f"{run.path.name}: {graded} graded now by {here.version}; {verdicts}")
    if files[-1] is not here:
        click.echo(f"{run.path.name}: the newest version, which the warehouse counts, is {files[-1].version}")


def _counts(grades: Mapping[str, Mapping[str, Any]], total: int) -> str:
    """The verdicts of a run in one line; what has no grade counts as not run, so they sum to problems × samples."""
    from grading import VERDICTS

    found = Counter(str(row["verdict"]) for row in grades.values())
    found["not_run"] += total - found.total()
    parts = [f"{verdict} {found[verdict]}" for verdict in VERDICTS if found[verdict]]
    return ", ".join([*parts, f"sum {found.total()}"])


def _print_versions(run: RunFolder) -> None:
    from jobs.run.grades import grade_files

    for folder, note in ((run.grades_dir, "newest: counts"), (run.second_grades_dir, "newest second grader")):
        files = grade_files(folder)
        for file in reversed(files):
            at = datetime.fromtimestamp(file.changed_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
            mark = f"  ({note})" if file is files[-1] else ""
            click.echo(f"{run.path.name}: {file.version}: {file.num_grades} grades, {at}{mark}")
        if not files and folder == run.grades_dir:
            click.echo(f"{run.path.name}: not graded yet")


def _print_diff(run: RunFolder, old: str | None, new: str | None, shown: int | None) -> None:
    from jobs.run.grades import changes, read_grades

    before, after = _two_versions(run, old, new)
    if before is None or after is None:
        click.echo(f"{run.path.name}: one grader version only, nothing to compare")
        return
    moved = changes(run, read_grades(before), read_grades(after))
    total = sum(len(shard) for shard in run.shards())
    click.echo(f"\n{run.path.name}: {len(moved)} of {total} verdicts moved")
    click.echo(f"  from {before.version}\n  to   {after.version}")
    _print_changes(moved, shown, ("old verdict", "new verdict"))


def _two_versions(run: RunFolder, old: str | None, new: str | None) -> tuple[GradeFile | None, GradeFile | None]:
    """The files to compare: the newest, and the newest of the others, unless they are named."""
    from grading import grader_version
    from jobs.run.grades import find, grade_files

    files = grade_files(run.grades_dir)
    if not files:
        return None, None
    current = [file for file in files if file.version == grader_version()]
    after = find(files, new) if new else (current or files)[-1]
    others = [file for file in files if file is not after]
    before = find(files, old) if old else (others[-1] if others else None)
    return before, after


def _second(run: RunFolder, workers: int | None, shown: int | None) -> None:
    from grading.second import second_grade, second_grader_version
    from jobs.after.grading import grade_into
    from jobs.run.grades import changes, find, grade_files, read_grades

    with run.compaction_lock():
        graded = grade_into(run.second_grades_dir, run, second_grader_version(), second_grade, workers)
    _, first = _two_versions(run, None, None)
    seconds = grade_files(run.second_grades_dir)
    if first is None or not seconds:
        click.echo(f"{run.path.name}: no finished sample to compare")
        return
    second = find(seconds, second_grader_version())
    found = changes(run, read_grades(first), read_grades(second))
    undecided = [c for c in found if c.verdicts[1] in UNDECIDED]
    disputed = [c for c in found if c not in undecided and "correct" in c.verdicts]
    others = len(found) - len(undecided) - len(disputed)
    click.echo(f"\n{run.path.name}: {graded} graded now by the second grader {second.version}")
    click.echo(
        f"  against {first.version}\n  {len(disputed)} disagreements that move the score, {others} about the way of "
        f"not being correct, {len(undecided)} that the second grader cannot decide, of {len(read_grades(second))}"
    )
    ordered = [*disputed, *(c for c in found if c not in disputed)]
    _print_changes(ordered, shown, ("first grader", "second grader"))


UNDECIDED = frozenset({"unparsable", "grader_timeout", "bad_gold"})
"""Verdicts of the second grader that say nothing about the answer."""


def _print_changes(found: Sequence[Change], shown: int | None, graders: tuple[str, str]) -> None:
    """Counts by pair of verdicts, then the samples with both answers and both reasons."""
    if not found:
        return
    _print_table(
        (*graders, "samples"),
        ((*pair, str(number)) for pair, number in Counter(change.verdicts for change in found).most_common()),
    )
    _print_table(_COLUMNS, (_row(change) for change in found[:shown]))
    if shown is not None and len(found) > shown:
        click.echo(f"… and {len(found) - shown} more: --all lists them")


def _row(change: Change) -> tuple[str, ...]:
    old, new = change.old or {}, change.new or {}
    verdicts = " → ".join(change.verdicts)
    answers = [_short(row.get("extracted")) for row in (old, new)]
    reasons = [f"{row.get('rule') or 'no rule'}: {row.get('detail') or ''}" if row else "–" for row in (old, new)]
    return (
        change.problem_id,
        str(change.sample_index),
        verdicts,
        _short(change.gold),
        answers[0] if answers[0] == answers[1] else " → ".join(answers),
        _short(" → ".join(reasons), 200),
    )


def _short(text: str | None, characters: int = 60) -> str:
    if text is None:
        return "–"
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    import sys

    from rich import box
    from rich.table import Table

    from warehouse.display import plain, print_table

    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    print_table(table, sys.stdout)


def _load(folders: Iterable[RunFolder], database: Path) -> None:
    from warehouse.database import WarehouseError
    from warehouse.load import RunUnreadable, describe, load_run

    for run in folders:
        try:
            click.echo(describe(load_run(run, database)))
        except (RunUnreadable, WarehouseError) as error:
            raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m grading.regrade")
