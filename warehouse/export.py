"""Export one run for other tools: `python -m warehouse.export RUN --format parquet|inspect`.

parquet: the run's rows of every table, one file per table, in a new folder. inspect: a log for Inspect's viewer and
readers (needs the extra `inspect`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.cli.messages import counted
from jobs.arguments import RunName
from warehouse.options import (
    WarehouseCommand,
    choose_format,
    database_option,
    default_database,
    format_option,
    wait_option,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from warehouse.database import Connection

_ROWS_PER_BATCH = 50_000


def export_parquet(connection: Connection, run_id: str, folder: Path) -> list[Path]:
    """Write one run's rows of every table into a new folder, one Parquet file per table, and return the files.

    Raises ExportImpossible where the folder exists.
    """
    import pyarrow.parquet as pq

    from warehouse.database import run_tables
    from warehouse.inspect_log import ExportImpossible

    if folder.exists():
        raise ExportImpossible(f"{folder} exists already: name another with -o")
    folder.mkdir(parents=True)
    connection.execute("SET VARIABLE exported_run = $run_id", {"run_id": run_id})
    written = []
    for table in run_tables(connection):
        path = folder / f"{table}.parquet"
        relation = connection.sql(f"FROM {table} WHERE run_id = getvariable('exported_run')")
        batches: pa.RecordBatchReader = relation.to_arrow_reader(_ROWS_PER_BATCH)
        with pq.ParquetWriter(path, batches.schema, compression="zstd") as out:
            for batch in batches:
                out.write_batch(batch)
        written.append(path)
    return written


@click.command(cls=WarehouseCommand)
@click.argument("run", metavar="RUN", type=RunName())
@format_option(["parquet", "inspect"], "parquet")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder or file to write.  [default: RUN-parquet/ or RUN.eval]",
)
@database_option()
@wait_option()
def main(
    run: str,
    output_format: Literal["parquet", "inspect"] | None,
    output: Path | None,
    database: Path | None,
    wait_seconds: float,
) -> None:
    """Write one run of the warehouse as Parquet files or as an Inspect log.

    RUN is a run id, a prefix of one, or a run folder.
    """
    from warehouse.comparison.outcomes import resolve
    from warehouse.database import reader
    from warehouse.inspect_log import export_inspect, num_missing

    kinds: dict[str, Literal["parquet", "inspect"]] = {".eval": "inspect"}
    output_format = choose_format(output_format, output, kinds, "parquet")
    with reader(database or default_database(run), wait_seconds) as connection:
        run_id = resolve(connection, run)
        if output_format == "inspect":
            output = output or Path(f"{run_id}.eval")
            click.echo(f"{output}: {counted(export_inspect(connection, run_id, output), 'sample')}")
            missing, planned = num_missing(connection, run_id)
            if missing:
                are = "is" if missing == 1 else "are"
                note = "not counted as wrong: the log's accuracy is over the others"
                click.echo(f"INCOMPLETE RUN: {missing} of {planned} samples {are} missing and {note}.")
        else:
            output = output or Path(f"{run_id}-parquet")
            click.echo(f"{output}: {counted(len(export_parquet(connection, run_id, output)), 'file')}")


if __name__ == "__main__":
    main(prog_name="python -m warehouse.export")
