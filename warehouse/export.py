"""One run for other tools: `python -m warehouse.export RUN --format parquet|inspect`.

parquet: every table's rows of the run, one file a table, in a new folder. inspect: a log for Inspect's viewer and its
readers (needs the extra `inspect`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

import click
import pyarrow as pa
import pyarrow.parquet as pq

from harness.command import OneLineErrors
from warehouse.comparison.outcomes import resolve
from warehouse.database import (
    WAIT_SECONDS,
    Connection,
    DatabaseError,
    WarehouseError,
    one_line,
    reader,
)
from warehouse.display import printable

_ROWS_AT_ONCE = 50_000
_TABLES = """
SELECT table_name FROM duckdb_columns() WHERE column_name = 'run_id' AND NOT internal
    AND table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY table_name
"""


class ExportImpossible(RuntimeError):
    """Something is missing or in the way; the message is one line that says what to do."""


def export_parquet(connection: Connection, run_id: str, folder: Path) -> list[Path]:
    """Write every table's rows of one run into a new folder; returns the files. Raises ExportImpossible."""
    if folder.exists():
        raise ExportImpossible(f"{folder} exists already: give another with -o")
    folder.mkdir(parents=True)
    connection.execute("SET VARIABLE exported_run = $run_id", {"run_id": run_id})
    written = []
    for (table,) in connection.execute(_TABLES).fetchall():
        path = folder / f"{table}.parquet"
        found = connection.sql(f"FROM {table} WHERE run_id = getvariable('exported_run')")
        batches: pa.RecordBatchReader = found.to_arrow_reader(_ROWS_AT_ONCE)
        with pq.ParquetWriter(path, batches.schema, compression="zstd") as out:
            for batch in batches:
                out.write_batch(batch)
        written.append(path)
    return written


@click.command(cls=OneLineErrors)
@click.argument("run_id", metavar="RUN")
@click.option("--format", "shape", type=click.Choice(["parquet", "inspect"]), default="parquet", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="[default: RUN-parquet/ or RUN.eval, here]")
@click.option(
    "--database",
    type=click.Path(path_type=Path),
    default=Path("warehouse.duckdb"),
    show_default=True,
    help="Warehouse.",
)
@click.option("--wait", "wait_seconds", default=WAIT_SECONDS, show_default=True, help="Seconds to wait if it is busy.")
def main(
    run_id: str, shape: Literal["parquet", "inspect"], output: Path | None, database: Path, wait_seconds: float
) -> None:
    """Write one run of the warehouse as Parquet files or as an Inspect log."""
    try:
        with reader(database, wait_seconds) as connection:
            run_id = resolve(connection, run_id)
            if shape == "parquet":
                output = output or Path(f"{run_id}-parquet")
                click.echo(f"{output}: {len(export_parquet(connection, run_id, output))} files")
            else:
                from warehouse.inspect_log import export_inspect

                output = output or Path(f"{run_id}.eval")
                click.echo(f"{output}: {export_inspect(connection, run_id, output)} samples")
    except (DatabaseError, WarehouseError, ExportImpossible, OSError) as error:
        click.echo(printable(f"error: {one_line(error)}"), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.export")
