"""`python -m grading.regrade RUN…`: grade stored traces with this grader, keep the grades of every older version, and
list the verdicts that changed. This needs no GPU and no engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.command import OneLineErrors

if TYPE_CHECKING:
    from jobs.run.derived import Change, GradeFile
    from jobs.run.folder import RunFolder

SHOWN = 50
"""Samples that are listed without --all; the counts always cover all samples."""
UNREADABLE = (OSError, ValueError, TypeError, KeyError)
"""Exceptions from reading a run folder that is damaged or of another version of the harness."""
_COLUMNS = ("problem", "sample", "verdicts", "gold", "answers", "reasons")


def _paths(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[Path, ...]:
    """Return the folders that are meant by paths and by names of runs."""
    from jobs.arguments import RunPath

    convert = RunPath().convert
    return tuple(convert(value, parameter, context) for value in values)


@click.command(cls=OneLineErrors)
@click.argument("paths", metavar="RUN…", nargs=-1, required=True, callback=_paths)
@click.option("--database", type=click.Path(path_type=Path), help="Database to load the graded runs into.")
@click.option("--diff", "is_diff", is_flag=True, help="List the verdicts that differ between two grader versions.")
@click.option("--old", metavar="VERSION", help="With --diff, compare from this version.  [default: the one before]")
@click.option("--new", metavar="VERSION", help="With --diff, compare to this version and grade nothing.")
@click.option("--versions", "is_listing", is_flag=True, help="List the grader versions of each run and grade nothing.")
@click.option("--all", "is_all", is_flag=True, help=f"List all changed samples instead of the first {SHOWN}.")
@click.option(
    "--workers", type=click.IntRange(1), help="Number of grader processes.  [default: one per processor, at most 16]"
)
def main(
    paths: Sequence[Path],
    database: Path | None,
    is_diff: bool,
    old: str | None,
    new: str | None,
    is_listing: bool,
    is_all: bool,
    workers: int | None,
) -> int:
    """Grade runs, or folders of runs, with this grader version and keep the grades of other versions.

    RUN is a run folder, a run id, a unique beginning of one, or a folder of run folders.

    VERSION is the name of a grader version, its first word or its beginning. The exit code is 1 if a run could not be
    read and was skipped or the machine left samples ungraded, and 2 if an option is wrong or no run was found.
    """
    from grading import GraderFailed
    from jobs.run.derived import GradesError
    from jobs.run.folder import run_folders

    if (old or new) and not is_diff:
        raise click.UsageError("--old and --new need --diff")
    folders = run_folders(path for path in paths if path.is_dir())
    if not folders:
        raise click.UsageError(f"no run folder in {', '.join(map(str, paths))}")
    num_shown = None if is_all else SHOWN

    def process(run: RunFolder) -> None:
        if is_listing:
            _print_versions(run)
        elif new is None:
            _regrade(run, workers)
        if is_diff and not is_listing:
            _print_diff(run, old, new, num_shown)

    readable, is_whole = [], True
    for run in folders:
        try:
            process(run)
        except GraderFailed as error:
            click.echo(f"Error: {error}", err=True)
            is_whole = False
        except GradesError as error:
            raise click.UsageError(f"{run.path.name}: {error}") from error
        except UNREADABLE as error:  # the other runs are graded
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            click.echo(f"WARNING: {run.path.name} cannot be read and is LEFT OUT: {reason}", err=True)
            continue
        readable.append(run)
    if database is not None and not is_listing:
        _load(readable, database)
    return int(len(readable) < len(folders) or not is_whole)


def _regrade(run: RunFolder, workers: int | None) -> None:
    from grading import grader_version
    from jobs.finished.grading import finish
    from jobs.run.derived import find, grade_files, read_grades

    graded = finish(run, workers)
    files = grade_files(run)
    if not files:
        click.echo(f"{run.path.name}: no finished sample to grade")
        return
    current = find(files, grader_version())
    total = sum(len(shard) for shard in run.shards())
    verdicts = _counts(read_grades(current), total)
    click.echo(f"{run.path.name}: {graded} graded now by {current.version}; {verdicts}")
    if files[-1] is not current:
        click.echo(f"{run.path.name}: the newest version, which the warehouse counts, is {files[-1].version}")


def _counts(grades: Mapping[str, Mapping[str, Any]], total: int) -> str:
    """Return the counts of verdicts in one line. Samples without a grade count as not run, so the sum is `total`."""
    from grading import VERDICTS

    counts = Counter(str(row["verdict"]) for row in grades.values())
    counts["not_run"] += total - counts.total()
    nonzero = [f"{verdict} {counts[verdict]}" for verdict in VERDICTS if counts[verdict]]
    return ", ".join([*nonzero, f"sum {counts.total()}"])


def _print_versions(run: RunFolder) -> None:
    from jobs.run.derived import grade_files

    files = grade_files(run)
    for file in reversed(files):
        at = datetime.fromtimestamp(file.changed_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        mark = "  (newest: counts)" if file is files[-1] else ""
        click.echo(f"{run.path.name}: {file.version}: {file.num_grades} grades, {at}{mark}")
    if not files:
        click.echo(f"{run.path.name}: not graded yet")


def _print_diff(run: RunFolder, old: str | None, new: str | None, num_shown: int | None) -> None:
    from jobs.run.derived import changes, read_grades

    before, after = _two_versions(run, old, new)
    if before is None or after is None:
        click.echo(f"{run.path.name}: only one grader version, nothing to compare")
        return
    changed = changes(run, read_grades(before), read_grades(after))
    total = sum(len(shard) for shard in run.shards())
    click.echo(f"\n{run.path.name}: {len(changed)} of {total} verdicts changed")
    click.echo(f"  from {before.version}\n  to   {after.version}")
    _print_changes(changed, num_shown)


def _two_versions(run: RunFolder, old: str | None, new: str | None) -> tuple[GradeFile | None, GradeFile | None]:
    """Return the older and the newer file to compare: by default this version, or the newest, and the newest other."""
    from grading import grader_version
    from jobs.run.derived import find, grade_files

    files = grade_files(run)
    if not files:
        return None, None
    current = [file for file in files if file.version == grader_version()]
    after = find(files, new) if new else (current or files)[-1]
    others = [file for file in files if file is not after]
    before = find(files, old) if old else (others[-1] if others else None)
    return before, after


def _print_changes(changed: Sequence[Change], num_shown: int | None) -> None:
    """Print the counts by pair of verdicts, then the samples with both answers and both reasons."""
    if not changed:
        return
    print_rows(
        ("old verdict", "new verdict", "samples"),
        ((*pair, str(number)) for pair, number in Counter(change.verdicts for change in changed).most_common()),
    )
    print_rows(_COLUMNS, (_row(change) for change in changed[:num_shown]))
    if num_shown is not None and len(changed) > num_shown:
        click.echo(f"… and {len(changed) - num_shown} more: --all lists them")


def _row(change: Change) -> tuple[str, ...]:
    old, new = change.old or {}, change.new or {}
    verdicts = " → ".join(change.verdicts)
    answers = [_short(row.get("extracted")) for row in (old, new)]
    reasons = [f"{row.get('rule') or 'no rule'}: {row.get('detail') or ''}" if row else "–" for row in (old, new)]
    shown = answers[0] if answers[0] == answers[1] else " → ".join(answers)
    reason = _short(" → ".join(reasons), 200)
    return change.problem_id, str(change.sample_index), verdicts, _short(change.gold), shown, reason


def _short(text: str | None, characters: int = 60) -> str:
    if text is None:
        return "–"
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    import sys

    from harness.cli.screen import Column, Screen, Table

    Screen(sys.stdout).table(Table([Column(name) for name in columns], list(rows)))


def _load(folders: Iterable[RunFolder], database: Path) -> None:
    from jobs import after
    from warehouse.database import WarehouseError
    from warehouse.loading.runs import RunUnreadable, describe, load_run

    for run in folders:
        try:
            click.echo(describe(load_run(run, database)))
            if database.resolve() == after.database_of(run).resolve():
                after.write_results(run, database)
        except (RunUnreadable, WarehouseError, after.WarehouseFailed) as error:
            raise click.UsageError(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m grading.regrade")
