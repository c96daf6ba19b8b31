"""What the warehouse's commands share: options, the default database, the output's format, and one-line errors.

The database of a command without `--database` is the `warehouse.duckdb` beside the runs: beside the run folder that the
command loads or names first, else in the folder `runs`, else in the working directory; see `default_database`. What
judges nights reads the one in `runs/nightly` before these. A run is named everywhere by its folder, its run id or a
unique beginning of that.
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
"""Folder into which `jobs nightly` writes unless the suite names another."""
Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Format = TypeVar("Format", bound=str)
ComparisonFormat = Literal["table", "json", "csv", "markdown", "latex"]
QueryFormat = Literal["table", "csv", "json", "parquet"]
TableFormat = Literal["table", "csv", "markdown", "latex"]
VerdictFormat = Literal["table", "json", "markdown", "junit"]
ReportFormat = Literal["html", "md", "latex"]


class Option(Protocol):
    """What adds an option to a command's function."""

    def __call__(self, function: Decorated, /) -> Decorated: ...


class WarehouseCommand(OneLineErrors):
    """A command that ends with one line and exit code 2 where the database or a file cannot be used.

    The exit code is 1 where the machine failed to compare answers (GraderFailed).
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; see `usage_errors`."""
        try:
            with usage_errors():
                return super().invoke(ctx)
        except GraderFailed as error:
            raise click.ClickException(str(error)) from error


@contextmanager
def usage_errors() -> Iterator[None]:
    """Raise click.UsageError with one line in place of an error of the warehouse, of DuckDB or of a file."""
    try:
        yield
    except BrokenPipeError:  # the reader of our output has what it wanted, as `head` does; click ends the command
        raise
    except _foreseen() as error:
        from harness.cli.screen import printable
        from warehouse.files import one_line

        raise click.UsageError(printable(one_line(error))) from error


def _foreseen() -> tuple[type[Exception], ...]:
    """Return the exceptions that are wrong inputs; DuckDB's need DuckDB, so this is asked once there is one."""
    from warehouse.database import DatabaseError

    return (WarehouseError, DatabaseError, OSError, UnicodeError, OverflowError)


def default_database(run: str | Path | None = None) -> Path:
    """Return the database to read where `--database` names none: the first that exists of those beside the runs.

    They are the one beside the run folder that `run`, a path, a run id or the beginning of one, means; the one in
    `runs`; and the one in the working directory. Where none exists it is the first of them. Where no run folder is
    meant and both of the others exist, a line on standard error says which one is read.
    """
    beside = [] if run is None else _beside(str(run))
    places = [*beside, RUNS_FOLDER / DATABASE_NAME, Path(DATABASE_NAME)]
    existing = list(dict.fromkeys(place for place in places if place.is_file()))
    if len(existing) > 1 and existing[0] not in beside:
        click.echo(f"Reading {existing[0]}; to read the other one: --database {existing[1]}", err=True)
    return existing[0] if existing else places[0]


def default_nightly_database() -> Path:
    """Return the database to judge a night by where `--database` names none: of nightly runs, if there is one.

    Otherwise the runs of the nights may be among others, as a suite with an output of its own has them, and the
    database is that of `default_database`. Where there is none at all, it is that of nightly runs.
    """
    nightly = NIGHTLY_FOLDER / DATABASE_NAME
    other = nightly if nightly.is_file() else default_database()
    return other if other.is_file() else nightly


def _beside(run: str) -> list[Path]:
    """Return the database beside the run folder that is meant; of several with the same beginning, beside the first."""
    if "/" in run or Path(run).is_dir():
        path = Path(run)
        return [database_beside(path if path.name not in ("", "..") else path.resolve())]
    from jobs.run.folder import run_paths

    return [database_beside(path) for path in run_paths(run)[:1]]


def database_option(text: str = "Database to read.", default: str | None = None) -> Option:
    """Add `--database`, None where it is not given; `default` describes another default than that of reading."""
    default = default or "warehouse.duckdb beside the runs: beside RUN, in runs, or here"
    return click.option("--database", type=click.Path(path_type=Path), help=f"{text}  [default: {default}]")


def runs_argument(metavar: str = "RUN…") -> Option:
    """Add the argument of several runs, of which there is at least one."""
    return click.argument("runs", metavar=metavar, nargs=-1, required=True, type=RunName(), callback=_without_files)


def _without_files(context: click.Context, _: click.Parameter, runs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the runs of an argument such as `runs/*`, which also has the files beside them: no run is a file."""
    found = tuple(run for run in runs if not Path(run).is_file())
    if runs and not found:
        raise click.UsageError(f"{', '.join(runs)}: no run, but a file", context)
    return found


def baseline_option(text: str = "Baseline of the comparison.  [default: each dataset's target alone]") -> Option:
    """Return the option --baseline."""
    return click.option("--baseline", metavar="RUN", type=RunName(), help=text)


def margin_option(text: str = "Non-inferiority margin, in percentage points of accuracy.") -> Option:
    """Return the option --margin, in points, by the name margin_points."""
    kind = click.FloatRange(0, 100, min_open=True)
    return click.option("--margin", "margin_points", type=kind, default=2.0, show_default=True, help=text)


def wait_option() -> Option:
    """Add `--wait`, the parameter `wait_seconds`."""
    return click.option(
        "--wait",
        "wait_seconds",
        default=WAIT_SECONDS,
        show_default=True,
        help="Seconds to wait while another process has the database locked.",
    )


def grader_option() -> Option:
    """Add `--grader`, a grader version for `warehouse.database.reader`."""
    return click.option(
        "--grader",
        metavar="VERSION",
        help="Count this grader version's grades: its name, first word or beginning (table grade_total).  "
        "[default: each run's newest]",
    )


def format_option(formats: Sequence[str], default: str = "by FILE's ending, else table") -> Option:
    """Add `--format`, the parameter `output_format`, None where it is not given; and `--json` where that is one."""
    named = click.option(
        "--format", "output_format", type=click.Choice(formats), help=f"Output format.  [default: {default}]"
    )
    short = click.option("--json", "output_format", flag_value="json", help="The same as --format json.")

    def add(function: Decorated, /) -> Decorated:
        return named(short(function)) if "json" in formats else named(function)

    return add


def check_output(_: click.Context, parameter: click.Parameter, output: Path | None) -> Path | None:
    """Return the file to write; raise click.UsageError where its folder does not exist."""
    check_output_folder(parameter.opts[0], output)
    return output


def check_output_folder(option: str, output: Path | None) -> None:
    """Raise click.UsageError where the folder of a file that an option names does not exist."""
    if output is not None and not output.parent.is_dir():
        raise click.UsageError(f"{option} {output}: the folder {output.parent} does not exist")


def output_option() -> Option:
    """Add `-o`/`--output`, a file to write."""
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
    """Return the format to write: the one named, else the one of the file's ending (in any case), else `default`.

    file_only: formats that are not written to standard output. is_ending_required: a file name without an ending is an
    error, as an unknown ending always is. Raises click.UsageError.
    """
    ending = output.suffix.lower() if output else ""
    if output and output_format is None and ending not in by_ending and (ending or is_ending_required):
        raise click.UsageError(f"{output} ends in none of {', '.join(by_ending)}: rename it or give --format")
    chosen = output_format or by_ending.get(ending, default)
    if chosen in file_only and output is None:
        raise click.UsageError(f"--format {chosen} needs -o FILE")
    return chosen


@contextmanager
def complete_output(output: Path | None) -> Iterator[IO[str]]:
    """Open a text file for writing, or standard output; a file that an error leaves incomplete is removed."""
    try:
        with output.open("w", encoding="utf-8", newline="") if output else nullcontext(sys.stdout) as out:
            yield out
    except BaseException:
        if output is not None and output.is_file() and not output.is_symlink():
            output.unlink()
        raise
