"""Runs against a baseline: `python -m warehouse.compare RUN RUN…`.

First what differs between their manifests, then how right and how fast they are, paired by problem.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, get_args

import click
from rich import box
from rich.console import Console
from rich.table import Table

from warehouse.comparison import show
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.manifests import read_manifests
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import read_folders, read_outcomes, resolve
from warehouse.comparison.votes import read_votes
from warehouse.database import WAIT_SECONDS, Connection, WarehouseError
from warehouse.display import plain, print_table, printable
from warehouse.graders import reader_for_grader
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
from warehouse.summary import summaries

_BY_ENDING: dict[str, show.Format] = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}


def compare_runs(
    runs: Sequence[str],
    database: Path,
    settings: Settings | None = None,
    *,
    baseline: str | None = None,
    grader: str | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> Comparison:
    """Compare runs of a database, paired by problem.

    runs: run ids, beginnings of run ids, or paths of run folders; baseline: likewise, by default the first run of each
    dataset. Raises WarehouseError, also where there are fewer than two runs, and DatabaseError.
    """
    settings = settings or Settings()
    names = [*([baseline] if baseline else []), *runs]
    with reader_for_grader(database, grader, wait_seconds) as connection:
        records = read_runs(connection, names, votes=settings.majority)
        baseline_id = resolve(connection, baseline) if baseline else None
    if len(records) < 2:
        raise WarehouseError("give two runs or more")
    return compare(records, settings, baseline_id)


def read_runs(connection: Connection, names: Sequence[str], *, votes: bool) -> list[Run]:
    """Read everything that a comparison needs of the named runs, in their order. Raises WarehouseError."""
    ids = list(dict.fromkeys(resolve(connection, name) for name in names))
    manifests, folders = read_manifests(connection, ids), read_folders(connection, ids)
    [(named_grader,)] = connection.execute("SELECT getvariable('grader_version')").fetchall()
    return [
        Run(
            summary,
            manifests[run_id],
            folders[run_id],
            read_outcomes(connection, run_id),
            read_votes(connection, run_id) if votes else None,
            named_grader,
        )
        for run_id, summary in zip(ids, summaries(connection, ids), strict=True)
    ]


def write(comparison: Comparison, out: IO[str], shape: show.Format) -> None:
    """Write a comparison; CSV holds the rows alone, every other format says first what has to be said."""
    said = list(show.loud(comparison))
    if shape == "table":
        _write_table(comparison, said, out)
    elif shape == "csv":
        text = io.StringIO()
        records = [show.record(row) for row in comparison.rows]
        lines = csv.DictWriter(text, list(records[0]), lineterminator="\n")
        lines.writeheader()
        lines.writerows(records)
        out.write(printable(text.getvalue(), keep="\n") if out.isatty() else text.getvalue())
    elif shape == "json":
        differing = [{"name": d.name, "matter": d.matter, "values": dict(d.values)} for d in comparison.differences]
        records = [show.record(row) for row in comparison.rows]
        found = {"warnings": said, "differences": differing, "rows": records}
        out.write(json.dumps(found, indent=2, ensure_ascii=out.isatty(), allow_nan=False) + "\n")
    else:
        _write_document(comparison, said, out, shape)


def _write_table(comparison: Comparison, said: Sequence[str], out: IO[str]) -> None:
    console = Console(file=out)
    for line in said:
        console.print(plain(line, style="bold red"), soft_wrap=True)
    names = show.names(comparison)
    console.print(plain("Compared:", style="bold"))
    for run_id, name in names.items():
        console.print(plain(f"  {name}: {run_id}"), soft_wrap=True)
    console.print(plain("What differs:", style="bold"))
    for line in list(show.difference_lines(comparison)) or ["nothing"]:
        console.print(plain(f"  {line}"), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD)
    for header in show.HEADERS:
        table.add_column(plain(header), overflow="fold")
    for row in comparison.rows:
        table.add_row(*(plain(cell) for cell in show.cells(row, names[row.run.run_id])))
    print_table(table, out)
    for line in show.legend(comparison):
        console.print(plain(line), soft_wrap=True)


def _write_document(comparison: Comparison, said: Sequence[str], out: IO[str], shape: show.Format) -> None:
    names = show.names(comparison)
    table = [show.cells(row, names[row.run.run_id]) for row in comparison.rows]
    runs = [f"{name}: {run_id}" for run_id, name in names.items()]
    if shape == "latex":
        lines = [*said, *runs, *show.difference_lines(comparison), *show.legend(comparison)]
        out.write("".join(f"% {printable(line)}\n" for line in lines))
        out.write(show.aligned(show.HEADERS, table, "latex") + "\n")
        return
    out.write("".join(f"**{show.markdown(line)}**\n\n" for line in said))
    out.write("Compared:\n\n" + "".join(f"- {show.markdown(line)}\n" for line in runs) + "\nWhat differs:\n\n")
    out.write("".join(f"- {show.markdown(line)}\n" for line in show.difference_lines(comparison)) or "- nothing\n")
    out.write("\n" + show.aligned(show.HEADERS, table, "markdown") + "\n\n")
    out.write("".join(f"{show.markdown(line)}\n" for line in show.legend(comparison)))


def _ks(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...]:
    if value is None:
        return ()
    parts = value.split(",")
    if not all(part.strip().isdecimal() and int(part) >= 1 for part in parts):
        raise click.BadParameter(f"{value!r}: expected whole numbers from 1, as in 4,16")
    return tuple(sorted({int(part) for part in parts}))


@click.command(cls=WarehouseCommand)
@click.argument("runs", metavar="RUN RUN…", nargs=-1, required=True)
@click.option("--baseline", metavar="RUN", help="What the others are compared with.  [default: each dataset's first]")
@click.option(
    "--margin",
    "margin_points",
    type=click.FloatRange(min=0, min_open=True, max=100),
    default=2.0,
    show_default=True,
    help="Points of accuracy that a run may lose and still count as not worse.",
)
@click.option("--k", "ks", metavar="K,K…", callback=_ks, help="Also pass@K, and maj@K with --maj.")
@click.option("--maj", "majority", is_flag=True, help="Also the majority vote (maj@k; k: --k, else all samples).")
@click.option("--force", is_flag=True, help="Compare latency although hardware or settings are unlike.")
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
    force: bool,
    database: Path | None,
    output_format: show.Format | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Compare runs, paired by problem. RUN: a run id, the beginning of one, or a run folder."""
    settings = Settings(margin_points / 100, ks, majority, force)
    comparison = compare_runs(
        runs,
        database or default_database(runs[0]),
        settings,
        baseline=baseline,
        grader=grader,
        wait_seconds=wait_seconds,
    )
    with open_output(output) as out:
        write(comparison, out, choose_format(output_format, output, _BY_ENDING, "table"))


if __name__ == "__main__":
    main(prog_name="python -m warehouse.compare")
