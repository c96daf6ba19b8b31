"""Runs against a baseline: `python -m warehouse.compare RUN RUN…`.

First what differs between their manifests, then how right and how fast they are, paired by problem.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, get_args

import click
from rich import box
from rich.console import Console
from rich.table import Table

from harness.command import OneLineErrors
from warehouse.comparison import show
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.manifests import read_manifests
from warehouse.comparison.metrics import Run
from warehouse.comparison.outcomes import read_folders, read_outcomes, resolve, warehouse_of
from warehouse.comparison.votes import read_votes
from warehouse.database import WAIT_SECONDS, Connection, DatabaseError, WarehouseError, one_line, reader
from warehouse.display import plain, print_table, printable
from warehouse.query import choose_grader
from warehouse.summary import summaries


def read_runs(connection: Connection, given: Sequence[str], *, votes: bool) -> list[Run]:
    """Everything that a comparison needs of runs, in the order given. Raises WarehouseError."""
    ids = list(dict.fromkeys(resolve(connection, name) for name in given))
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


def _shape(shape: show.Format | None, output: Path | None) -> show.Format:
    endings: dict[str, show.Format] = {".csv": "csv", ".json": "json", ".md": "markdown", ".tex": "latex"}
    return shape or endings.get(output.suffix if output else "", "table")


@click.command(cls=OneLineErrors)
@click.argument("given", metavar="RUN RUN…", nargs=-1, required=True)
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
@click.option("--database", type=click.Path(path_type=Path), help="Warehouse.  [default: beside RUN, else here]")
@click.option(
    "--format", "shape", type=click.Choice(get_args(show.Format)), help="[default: by FILE's ending, else table]"
)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write to FILE.")
@click.option("--grader", metavar="VERSION", help="Count this grader version's grades.  [default: each run's newest]")
@click.option("--wait", "wait_seconds", default=WAIT_SECONDS, show_default=True, help="Seconds to wait if it is busy.")
def main(
    given: tuple[str, ...],
    baseline: str | None,
    margin_points: float,
    ks: tuple[int, ...],
    majority: bool,
    force: bool,
    database: Path | None,
    shape: show.Format | None,
    output: Path | None,
    grader: str | None,
    wait_seconds: float,
) -> None:
    """Compare runs, paired by problem. RUN: a run id, the beginning of one, or a run folder."""
    try:
        with reader(database or warehouse_of(given), wait_seconds) as connection:
            if grader is not None:
                choose_grader(connection, grader)
            runs = read_runs(connection, [*([baseline] if baseline else []), *given], votes=majority)
            base = resolve(connection, baseline) if baseline else None
        if len(runs) < 2:
            raise click.UsageError("give two runs or more")
        found = compare(runs, Settings(margin_points / 100, ks, majority, force), base)
        with output.open("w", encoding="utf-8") if output else nullcontext(sys.stdout) as out:
            write(found, out, _shape(shape, output))
    except (DatabaseError, WarehouseError, OSError, UnicodeError) as error:
        click.echo(printable(f"error: {one_line(error)}"), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.compare")
