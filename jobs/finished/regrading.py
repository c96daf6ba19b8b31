"""Grade stored traces again, keep the grades from older versions, and compare two versions."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from grading import VERDICTS, GraderFailed
from harness.cli.screen import Column, Screen, Table
from harness.methods.plugins import BadMethod
from jobs import after, graders
from jobs.arguments import RunPath
from jobs.finished.grading import finish
from jobs.run.derived import Change, GradesError, changes, find, grade_files, read_grades
from jobs.run.folder import RunFolder, run_folders
from jobs.run.trust import NotTrusted

_UNREADABLE = (OSError, ValueError, TypeError, KeyError)
"""Exceptions from reading a run folder that is damaged or was written by another harness version."""
_COLUMNS = ("problem", "sample", "verdicts", "gold", "answers", "reasons")


def regrade(
    names: Sequence[str],
    *,
    database: Path | None,
    is_listing: bool,
    is_diff: bool,
    old: str | None,
    new: str | None,
    num_shown: int | None,
    workers: int | None,
    grader: str | None,
    trust: bool,
) -> bool:
    """Carry out `grading.regrade` for runs and folders of runs; return whether all were read and graded.

    Unreadable runs are reported and skipped. Raises click.UsageError.
    """
    paths: list[Path] = [RunPath().convert(name, None, None) for name in names]
    runs = run_folders(path for path in paths if path.is_dir())
    if not runs:
        raise click.UsageError(f"no run folders in {', '.join(map(str, paths))}")
    readable, is_whole = [], True
    for run in runs:
        try:
            if is_listing:
                _print_versions(run)
            elif new is None:
                _grade(run, workers, grader, accept=trust)
            if is_diff and not is_listing:
                _print_diff(run, old, new, num_shown)
        except GraderFailed as error:
            click.echo(f"Error: {error}", err=True)
            is_whole = False
        except GradesError as error:
            raise click.UsageError(f"{run.path.name}: {error}") from error
        except _UNREADABLE as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            click.echo(f"WARNING: {run.path.name} was SKIPPED because it cannot be read: {reason}", err=True)
            continue
        readable.append(run)
    if database is not None and not is_listing:
        for run in readable:
            try:
                click.echo(after.load_again(run, database))
            except after.WarehouseError as error:
                raise click.UsageError(str(error)) from error
    return is_whole and len(readable) == len(runs)


def _grade(run: RunFolder, workers: int | None, grader: str | None, *, accept: bool) -> None:
    try:
        graders.settle(run, grader, accept=accept)
    except (BadMethod, NotTrusted) as error:
        raise click.UsageError(str(error)) from error
    num_graded, files = finish(run, workers), grade_files(run)
    if not files:
        click.echo(f"{run.path.name}: no finished samples to grade")
        return
    current = find(files, graders.recorded(run).version)
    verdicts = counts(read_grades(current), run.num_planned())
    click.echo(f"{run.path.name}: {num_graded} graded now by {current.version}; {verdicts}")
    if files[-1] is not current:
        click.echo(f"{run.path.name}: the newest grades, which the database uses, are by {files[-1].version}")


def counts(grades: Mapping[str, Mapping[str, Any]], total: int) -> str:
    """Format the counts of verdicts in one line. Samples without a grade count as not run, so the sum is `total`."""
    found = Counter(str(row["verdict"]) for row in grades.values())
    found["not_run"] += total - found.total()
    nonzero = [f"{verdict} {found[verdict]}" for verdict in VERDICTS if found[verdict]]
    return ", ".join([*nonzero, f"sum {found.total()}"])


def _print_versions(run: RunFolder) -> None:
    files = grade_files(run)
    for file in reversed(files):
        at = datetime.fromtimestamp(file.changed_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
        mark = "  (newest, used)" if file is files[-1] else ""
        click.echo(f"{run.path.name}: {file.version}: {file.num_grades} grades, {at}{mark}")
    if not files:
        click.echo(f"{run.path.name}: not graded yet")


def _print_diff(run: RunFolder, old: str | None, new: str | None, num_shown: int | None) -> None:
    """Print how many verdicts changed from which to which, then the changed samples with both answers and reasons."""
    files, version = grade_files(run), graders.recorded(run).version
    # By default, the newer grades are those from the run's own version or, without them, the newest.
    # The older grades are the newest of the others.
    current = [file for file in files if file.version == version]
    after_it = find(files, new) if files and new else next(reversed(current or files), None)
    others = [file for file in files if file is not after_it]
    before = find(files, old) if files and old else next(reversed(others), None)
    if before is None or after_it is None:
        click.echo(f"{run.path.name}: nothing to compare: graded by fewer than two grader versions")
        return
    changed = changes(run, read_grades(before), read_grades(after_it))
    click.echo(f"\n{run.path.name}: {len(changed)} of {run.num_planned()} verdicts changed")
    click.echo(f"  from {before.version}\n  to   {after_it.version}")
    if not changed:
        return
    pairs = Counter(change.verdicts for change in changed).most_common()
    print_rows(("old verdict", "new verdict", "samples"), ((*pair, str(number)) for pair, number in pairs))
    print_rows(_COLUMNS, map(row_of, changed[:num_shown]))
    if num_shown is not None and len(changed) > num_shown:
        click.echo(f"… and {len(changed) - num_shown} more; list them with --all")


def row_of(change: Change) -> tuple[str, ...]:
    """Return a changed sample as a table row."""
    old, new = change.old or {}, change.new or {}
    answers = dict.fromkeys(_short(row.get("extracted")) for row in (old, new))
    reasons = [f"{row.get('rule') or 'no rule'}: {row.get('detail') or ''}" if row else "–" for row in (old, new)]
    shown = " → ".join(answers), _short(" → ".join(reasons), 200)
    return change.problem_id, str(change.sample_index), " → ".join(change.verdicts), _short(change.gold), *shown


def _short(text: str | None, characters: int = 60) -> str:
    if text is None:
        return "–"
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def print_rows(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    Screen(sys.stdout).table(Table([Column(name) for name in columns], list(rows)))
