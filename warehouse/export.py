"""One run for other tools: `python -m warehouse.export RUN --format parquet|inspect`.

parquet: every table's rows of the run, one file a table, in a new folder. inspect: a log for Inspect's viewer and its
readers (needs the extra `inspect`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click
import pyarrow as pa
import pyarrow.parquet as pq

from warehouse.comparison.outcomes import resolve
from warehouse.database import Connection, reader
from warehouse.inspect_log import ExportImpossible, export_inspect
from warehouse.options import WarehouseCommand, database_option, format_option, wait_option

_ROWS_AT_ONCE = 50_000
_TABLES = """
SELECT table_name FROM duckdb_columns() WHERE column_name = 'run_id' AND NOT internal
    AND table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY table_name
"""


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


@click.command(cls=WarehouseCommand)
@click.argument("run_id", metavar="RUN")
@format_option(["parquet", "inspect"], "parquet")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="[default: RUN-parquet/ or RUN.eval, here]")
@database_option()
@wait_option()
def main(
    run_id: str,
    output_format: Literal["parquet", "inspect"] | None,
    output: Path | None,
    database: Path,
    wait_seconds: float,
) -> None:
    """Write one run of the warehouse as Parquet files or as an Inspect log."""
    with reader(database, wait_seconds) as connection:
        run_id = resolve(connection, run_id)
        if output_format == "inspect":
            output = output or Path(f"{run_id}.eval")
            click.echo(f"{output}: {export_inspect(connection, run_id, output)} samples")
        else:
            output = output or Path(f"{run_id}-parquet")
            click.echo(f"{output}: {len(export_parquet(connection, run_id, output))} files")


if __name__ == "__main__":
    main(prog_name="python -m warehouse.export")
