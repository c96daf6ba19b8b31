"""Compare runs with a baseline: `python -m warehouse.compare RUN RUN…`.

The output starts with the differences between the manifests. Accuracy and latency follow, paired by problem.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, get_args

import click
from rich import box
from rich.console import Console
from rich.table import Table

from warehouse.comparison import show, show_brief, show_stopwatches, show_warnings
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.manifests import read_manifests
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import check_details, read_folders, read_outcomes, resolve
from warehouse.comparison.stopwatches import read_definitions, read_times
from warehouse.comparison.votes import read_votes
from warehouse.database import WAIT_SECONDS, Connection, WarehouseError
from warehouse.display import fits, plain, print_item, print_table, printable
from warehouse.graders import reader_for_grader
from warehouse.markup import aligned, markdown
from warehouse.options import (
    WarehouseCommand,
    choose_format,
    database_option,
    default_database,
    format_option,
    grader_option,
    open_output,
    output_option,
    wait_option,
)
from warehouse.repeated_runs import run_factors
from warehouse.summary import summaries

_BY_ENDING: dict[str, show.Format] = {
    ".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex", ".txt": "table",
}  # fmt: skip
_LEAST_NAME_WIDTH = 8
"""Characters to which the names of runs are wrapped so that their numbers fit on a terminal."""


def compare_runs(
    runs: Sequence[str],
    database: Path,
    settings: Settings | None = None,
    *,
    baseline: str | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
    stopwatches: bool = False,
) -> Comparison:
    """Compare runs of a database, paired by problem.

    runs: run ids, prefixes of run ids, or paths of run folders. baseline: likewise; default: the target alone, by
    dataset. stopwatches: whether to rank the runs by every paper's definition of latency. Raises WarehouseError, also
    for fewer than two runs, and DatabaseError.
    """
    settings = settings or Settings()
    names = [*([baseline] if baseline else []), *runs]
    with reader_for_grader(database, grader, wait_seconds) as connection:
        settings = replace(settings, stopwatches=read_definitions(connection) if stopwatches else ())
        records = read_runs(connection, names, votes=settings.majority, times=stopwatches)
        baseline_id = resolve(connection, baseline) if baseline else None
    if len(records) < 2 <= len(names):
        raise WarehouseError(f"two different runs are needed; all arguments name {records[0].run_id}")
    if len(records) < 2:
        raise WarehouseError("at least two runs are needed")
    return compare(records, settings, baseline_id)


def read_runs(connection: Connection, names: Sequence[str], *, votes: bool, times: bool = False) -> list[Run]:
    """Read everything that a comparison needs of the named runs, in their order. Raises WarehouseError."""
    ids = list(dict.fromkeys(resolve(connection, name) for name in names))
    if times:
        check_details(connection, ids)
    manifests, folders = read_manifests(connection, ids), read_folders(connection, ids)
    factors = run_factors(connection, ids)
    [(named_grader,)] = connection.execute("SELECT getvariable('grader_version')").fetchall()
    return [
        Run(
            summary,
            manifests[run_id],
            folders[run_id],
            read_outcomes(connection, run_id),
            read_votes(connection, run_id) if votes else None,
            named_grader,
            read_times(connection, run_id) if times else None,
            factors.get(run_id),
        )
        for run_id, summary in zip(ids, summaries(connection, ids), strict=True)
    ]


def write(comparison: Comparison, out: IO[str], shape: show.Format, *, is_brief: bool = False) -> None:
    """Write a comparison; every format but CSV, which has only the rows, starts with the warnings.

    is_brief: a table has only the columns that a person reads first; the other formats are always complete.
    """
    warnings = list(show_warnings.warnings(comparison))
    if shape == "table":
        _write_table(comparison, warnings, out, is_brief)
    elif shape == "csv":
        text = io.StringIO()
        records = [show.record(row) for row in comparison.rows]
        writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
        out.write(printable(text.getvalue(), keep="\n") if out.isatty() else text.getvalue())
    elif shape == "json":
        differing = [{"name": d.name, "matter": d.matter, "values": dict(d.values)} for d in comparison.differences]
        records = [show.record(row) for row in comparison.rows]
        baselines = [{"dataset": b.dataset, "run_id": b.run.run_id, "why": b.why} for b in comparison.baselines]
        document = {"warnings": warnings, "baselines": baselines, "differences": differing, "rows": records}
        if comparison.settings.stopwatches:
            document["stopwatches"] = [show_stopwatches.record(ranking) for ranking in comparison.rankings]
        out.write(json.dumps(document, indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
    else:
        _write_document(comparison, warnings, out, shape)


def _write_table(comparison: Comparison, warnings: Sequence[str], out: IO[str], is_brief: bool) -> None:
    console = Console(file=out)
    for line in warnings:
        console.print(plain(line, style="bold red"), soft_wrap=True)
    names = show.names(comparison)
    console.print(plain("Compared:", style="bold"))
    for run_id, name in names.items():
        console.print(plain(f"  {name}: {run_id}"), soft_wrap=True)
    for line in show.baseline_lines(comparison):
        console.print(plain(line), soft_wrap=True)
    console.print(plain("What differs:", style="bold"))
    for line in list(show.difference_lines(comparison)) or ["nothing"]:
        print_item(line, console)
    if is_brief:
        has_speed_interval = fits(_brief_table(comparison, names, has_speed_interval=True), out)
        print_table(_brief_table(comparison, names, has_speed_interval=has_speed_interval), out)
        if not has_speed_interval and any(row.speed and row.speed.ratio for row in comparison.rows):
            console.print(
                "Intervals of the speed-ups do not fit this terminal: --all.", soft_wrap=not console.is_terminal
            )
    else:
        print_table(_table(show.HEADERS, [show.cells(row, names[row.run.run_id]) for row in comparison.rows]), out)
    for line in (show_brief if is_brief else show).legend(comparison):
        console.print(plain(line), soft_wrap=not console.is_terminal)
    if comparison.settings.stopwatches:
        _write_rankings(comparison, names, console, out)


def _brief_table(comparison: Comparison, names: Mapping[str, str], *, has_speed_interval: bool) -> Table:
    """Return the table for a person."""
    headers = show_brief.headers(comparison)
    if not has_speed_interval:
        headers[-1] = "speed-up"
    rows = show_brief.cells(comparison, names, has_speed_interval=has_speed_interval)
    return _table(headers, rows, wrapped_name_width=_LEAST_NAME_WIDTH)


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], wrapped_name_width: int | None = None) -> Table:
    """Return a table for `print_table`. wrapped_name_width: the least width to which the first column is wrapped."""
    table = Table(box=box.SIMPLE_HEAD)
    for i, header in enumerate(headers):
        table.add_column(plain(header), overflow="fold", min_width=None if i else wrapped_name_width)
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _write_rankings(comparison: Comparison, names: Mapping[str, str], console: Console, out: IO[str]) -> None:
    console.print()
    if rows := show_stopwatches.cells(comparison, names):
        print_table(_table(show_stopwatches.HEADERS, rows), out)
        console.print(plain("Order of two runs against measured wall time:", style="bold"))
        for line in show_stopwatches.flip_lines(comparison, names):
            print_item(line, console)
    for line in show_stopwatches.legend(comparison, names):
        console.print(plain(line), soft_wrap=not console.is_terminal)


def _write_document(comparison: Comparison, warnings: Sequence[str], out: IO[str], shape: show.Format) -> None:
    names = show.names(comparison)
    table = [show.cells(row, names[row.run.run_id]) for row in comparison.rows]
    runs = [f"{name}: {run_id}" for run_id, name in names.items()]
    rankings, ranking_lines = _rankings(comparison, names)
    if shape == "latex":
        lines = [
            *warnings,
            *runs,
            *show.baseline_lines(comparison),
            *show.difference_lines(comparison),
            *show.legend(comparison),
            *ranking_lines,
        ]
        out.write("".join(f"% {printable(line)}\n" for line in lines))
        out.write(aligned(show.HEADERS, table, "latex") + "\n")
        out.write(aligned(show_stopwatches.HEADERS, rankings, "latex") + "\n" if rankings else "")
        return
    out.write("".join(f"**{markdown(line)}**\n\n" for line in warnings))
    out.write("Compared:\n\n" + "".join(f"- {markdown(line)}\n" for line in runs))
    out.write("".join(f"\n{markdown(line)}\n" for line in show.baseline_lines(comparison)) + "\nWhat differs:\n\n")
    out.write("".join(f"- {markdown(line)}\n" for line in show.difference_lines(comparison)) or "- nothing\n")
    out.write("\n" + aligned(show.HEADERS, table, "markdown") + "\n\n")
    out.write("".join(f"{markdown(line)}\n" for line in show.legend(comparison)))
    if rankings:
        out.write("\n" + aligned(show_stopwatches.HEADERS, rankings, "markdown") + "\n\n")
    out.write("".join(f"{markdown(line)}\n" for line in ranking_lines))


def _rankings(comparison: Comparison, names: Mapping[str, str]) -> tuple[list[list[str]], list[str]]:
    """Return the table of the rankings and the lines under it; both empty if they were not asked for."""
    if not comparison.settings.stopwatches:
        return [], []
    lines = [*show_stopwatches.flip_lines(comparison, names), *show_stopwatches.legend(comparison, names)]
    return show_stopwatches.cells(comparison, names), lines


def _ks(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    parts = value.split(",")
    if not all(part.strip().isdecimal() and int(part) >= 1 for part in parts):
        raise click.BadParameter(f"{value!r}: expected whole numbers from 1, as in 4,16")
    return tuple(sorted({int(part) for part in parts}))


@click.command(cls=WarehouseCommand)
@click.argument("runs", metavar="RUN RUN…", nargs=-1, required=True)
@click.option("--baseline", metavar="RUN", help="Baseline of the comparison.  [default: each dataset's target alone]")
@click.option(
    "--margin",
    "margin_points",
    type=click.FloatRange(min=0, min_open=True, max=100),
    default=2.0,
    show_default=True,
    help="Non-inferiority margin, in percentage points of accuracy.",
)
@click.option("--k", "ks", metavar="K,K…", callback=_ks, help="Add pass@K, and maj@K with --maj.")
@click.option("--maj", "majority", is_flag=True, help="Add the majority vote, maj@k.  [k: --k, else all samples]")
@click.option("--stopwatches", is_flag=True, help="Rank the runs by every paper's definition of latency.")
@click.option(
    "--all", "is_complete", is_flag=True, help="Every column, with tests, MDE and re-run SE, as files always have."
)
@click.option("--force", is_flag=True, help="Compare latency even if hardware or settings differ.")
@database_option(default="beside the first RUN, else in the working directory")
@format_option(get_args(show.Format))
@output_option()
@grader_option()
@wait_option()
def main(
    runs: tuple[str, ...],
    baseline: str | None,
    margin_points: float,
    ks: tuple[int, ...],
    majority: bool,
    stopwatches: bool,
    is_complete: bool,
    force: bool,
    database: Path | None,
    output_format: show.Format | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Compare runs, paired by problem. RUN: a run id, a prefix of one, or a run folder.

    A table on standard output has what a person reads first: accuracy, difference, whether the run is not worse, and
    speed-up. Files and the other formats are always complete.
    """
    shape = choose_format(output_format, output, _BY_ENDING, "table")
    if stopwatches and shape == "csv":
        raise click.UsageError("--stopwatches has no CSV form: --format is one of table, json, markdown, latex")
    settings = Settings(margin_points / 100, ks, majority, force)
    comparison = compare_runs(
        runs,
        database or default_database(runs[0]),
        settings,
        baseline=baseline,
        grader=grader,
        wait_seconds=wait_seconds,
        stopwatches=stopwatches,
    )
    with open_output(output) as out:
        write(comparison, out, shape, is_brief=output is None and not is_complete)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.compare")
