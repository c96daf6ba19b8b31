"""Shared parts of the warehouse's commands: options, default database, output format, and one-line errors.

Without `--database`, a command uses the `warehouse.duckdb` next to the runs: next to the first run folder on the
command line, otherwise in the folder `runs`, otherwise in the working directory; see `default_database`. Commands for
nightly runs try `runs/nightly` first. Runs are given as a folder, a run id or a unique prefix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Literal, Protocol, TypeVar

import click

from grading import GraderFailed
from harness.cli.command import OneLineErrors
from jobs.arguments import RunName
from warehouse.files import DATABASE_NAME, RUNS_FOLDER, WAIT_SECONDS, WarehouseError, database_beside

NIGHTLY_FOLDER = RUNS_FOLDER / "nightly"
"""Default output folder of `jobs nightly`."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Format = TypeVar("Format", bound=str)
ComparisonFormat = Literal["table", "json", "csv", "markdown", "latex"]
QueryFormat = Literal["table", "csv", "json", "parquet"]
TableFormat = Literal["table", "csv", "markdown", "latex"]
VerdictFormat = Literal["table", "json", "markdown", "junit"]
ReportFormat = Literal["html", "md", "latex"]


class Option(Protocol):
    """Decorator that adds an option to a command's function."""

    def __call__(self, function: Decorated, /) -> Decorated: ...


class WarehouseCommand(OneLineErrors):
    """A command that ends with one line and exit code 2 if the database or a file cannot be used.

    The exit code is 1 if comparing answers failed because of the machine (GraderFailed).
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with usage_errors():
                return super().invoke(ctx)
        except GraderFailed as error:
            raise click.ClickException(str(error)) from error


@contextmanager
def usage_errors() -> Iterator[None]:
    """Convert errors of the warehouse, of DuckDB and of files to a one-line click.UsageError."""
    try:
        yield
    except BrokenPipeError:  # the reader of our output closed the pipe, as `head` does; click ends the command
        raise
    except _foreseen() as error:
        from harness.cli.screen import printable
        from warehouse.files import one_line

        raise click.UsageError(printable(one_line(error))) from error


def _foreseen() -> tuple[type[Exception], ...]:
    """Return the exceptions for invalid input. This imports DuckDB, so it is called only after an error."""
    from warehouse.database import DatabaseError

    return (WarehouseError, DatabaseError, OSError, UnicodeError, OverflowError)


def default_database(run: str | Path | None = None) -> Path:
    """Return the default database to read: the first existing one next to the runs.

    Candidates in order: next to the run folder of `run` (a path, a run id or a prefix), in `runs`, and in the working
    directory. If none exists, the first candidate is returned. If there is no database next to `run` but both of the
    other candidates exist, a line on standard error shows which one is read.
    """
    beside = [] if run is None else _beside(str(run))
    places = [*beside, RUNS_FOLDER / DATABASE_NAME, Path(DATABASE_NAME)]
    existing = list(dict.fromkeys(place for place in places if place.is_file()))
    if len(existing) > 1 and existing[0] not in beside:
        click.echo(f"Reading {existing[0]}; to read {existing[1]} instead, use --database", err=True)
    return existing[0] if existing else places[0]


def default_nightly_database() -> Path:
    """Return the default database for the nightly verdict: the database of nightly runs if it exists.

    Otherwise `default_database`, because a suite that sets an output folder may store nightly runs with other runs. If
    neither exists, the path of the database of nightly runs is returned.
    """
    nightly = NIGHTLY_FOLDER / DATABASE_NAME
    other = nightly if nightly.is_file() else default_database()
    return other if other.is_file() else nightly


def _beside(run: str) -> list[Path]:
    """Return the database next to the run's folder, or next to the first of several matching folders."""
    if "/" in run or Path(run).is_dir():
        path = Path(run)
        return [database_beside(path if path.name not in ("", "..") else path.resolve())]
    from jobs.run.folder import run_paths

    return [database_beside(path) for path in run_paths(run)[:1]]


def database_option(text: str = "Database to read.", default: str | None = None) -> Option:
    """Add `--database`, None if not given. `default`: description of the default."""
    default = default or "warehouse.duckdb next to RUN, in runs, or in the current folder"
    return click.option("--database", type=click.Path(path_type=Path), help=f"{text}  [default: {default}]")


def runs_argument(metavar: str = "RUN…") -> Option:
    """Add an argument of one or more runs."""
    return click.argument("runs", metavar=metavar, nargs=-1, required=True, type=RunName(), callback=_without_files)


def _without_files(context: click.Context, _: click.Parameter, runs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the runs of an argument such as `runs/*`, without files next to the run folders."""
    found = tuple(run for run in runs if not Path(run).is_file())
    if runs and not found:
        raise click.UsageError(f"expected runs, not files: {', '.join(runs)}", context)
    return found


def baseline_option(text: str = "Baseline of the comparison.  [default: each dataset's target alone]") -> Option:
    return click.option("--baseline", metavar="RUN", type=RunName(), help=text)


def margin_option(text: str = "Non-inferiority margin, in percentage points of accuracy.") -> Option:
    """Add `--margin`, in points, as the parameter margin_points."""
    kind = click.FloatRange(0, 100, min_open=True)
    return click.option("--margin", "margin_points", type=kind, default=2.0, show_default=True, help=text)


def wait_option() -> Option:
    return click.option(
        "--wait",
        "wait_seconds",
        default=WAIT_SECONDS,
        show_default=True,
        help="Seconds to wait while another process has the database locked.",
    )


def grader_option() -> Option:
    """Add `--grader`, the grader version that `warehouse.database.reader` selects."""
    return click.option(
        "--grader",
        metavar="VERSION",
        help="Grader version whose grades are used: the whole version, its first word, or a prefix; see column "
        "grade_total.grader_version.  [default: each run's newest]",
    )


def format_option(formats: Sequence[str], default: str = "by FILE's extension, or table") -> Option:
    """Add `--format` as the parameter `output_format` (None if not given), and `--json` if JSON is a format."""
    named = click.option(
        "--format", "output_format", type=click.Choice(formats), help=f"Output format.  [default: {default}]"
    )
    short = click.option("--json", "output_format", flag_value="json", help="The same as --format json.")

    def add(function: Decorated, /) -> Decorated:
        return named(short(function)) if "json" in formats else named(function)

    return add


def check_output(_: click.Context, parameter: click.Parameter, output: Path | None) -> Path | None:
    """Return the file to write. Raises click.UsageError if its folder does not exist."""
    check_output_folder(parameter.opts[0], output)
    return output


def check_output_folder(option: str, output: Path | None) -> None:
    """Raise click.UsageError if the folder of an option's file does not exist."""
    if output is not None and not output.parent.is_dir():
        raise click.UsageError(f"{option} {output}: the folder {output.parent} does not exist")


def output_option() -> Option:
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        callback=check_output,
        help="Write to FILE.  [default: standard output]",
    )


def choose_format(
    output_format: Format | None,
    output: Path | None,
    by_ending: Mapping[str, Format],
    default: Format,
    *,
    file_only: Sequence[Format] = (),
    is_ending_required: bool = False,
) -> Format:
    """Return the output format: `output_format`, or by the file's extension (ignoring case), or `default`.

    file_only: formats that cannot go to standard output. is_ending_required: a file name without extension is an error,
    like an unknown extension. Raises click.UsageError.
    """
    ending = output.suffix.lower() if output else ""
    if output and output_format is None and ending not in by_ending and (ending or is_ending_required):
        raise click.UsageError(f"{output}: unknown extension; use {', '.join(by_ending)} or --format")
    chosen = output_format or by_ending.get(ending, default)
    if chosen in file_only and output is None:
        raise click.UsageError(f"--format {chosen} requires -o FILE")
    return chosen


@contextmanager
def complete_output(output: Path | None) -> Iterator[IO[str]]:
    """Open a text file for writing, or standard output. A file left incomplete by an error is removed."""
    try:
        with output.open("w", encoding="utf-8", newline="") if output else nullcontext(sys.stdout) as out:
            yield out
    except BaseException:
        if output is not None and output.is_file() and not output.is_symlink():
            output.unlink()
        raise
