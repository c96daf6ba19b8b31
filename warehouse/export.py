"""Export one run for other tools: `python -m warehouse.export RUN --format parquet|inspect`.

parquet: the run's rows of every table, one file per table, in a new folder. inspect: a log for Inspect's viewer and
readers (needs the extra `inspect`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from harness.plural import counted
from jobs.arguments import RunName
from warehouse.comparison.outcomes import resolve
from warehouse.database import WAIT_SECONDS, WarehouseError, reader
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


if TYPE_CHECKING:
    import pandas

_RUN = """(
    SELECT score.run_id, score.method, score.dataset, run.draft_name AS draft, run.target_name AS target,
        run.reward_name AS reward, run.params, run.temperature, run.concurrency, score.n, score.k, score.pass_at_1,
        score.standard_error, score.low_95, score.high_95, score.num_not_run, score.num_ungraded, score.limited,
        fallback.fallback_rate, fallback.num_verdicts, tokens.* EXCLUDE (run_id), tokens_by_draft.emitted_by_draft,
        latency.mean_seconds AS mean_latency_seconds, latency.median_seconds AS median_latency_seconds,
        run_conditions.regime, score.grader_version
    FROM pass_at_1 AS score
    JOIN run USING (run_id)
    JOIN run_conditions USING (run_id)
    LEFT JOIN fallback_rate AS fallback USING (run_id)
    LEFT JOIN latency USING (run_id)
    LEFT JOIN (
        SELECT run_id, sum(emitted_tokens_per_sample) AS emitted_tokens_per_sample,
            sum(spent_tokens_per_sample) AS spent_tokens_per_sample,
            sum(critical_path_tokens_per_sample) AS critical_path_tokens_per_sample
        FROM token_split GROUP BY run_id
    ) AS tokens USING (run_id)
    LEFT JOIN (
        SELECT run_id, emitted_share AS emitted_by_draft FROM token_split WHERE model = 'draft'
    ) AS tokens_by_draft USING (run_id)
)"""
LEVELS: Mapping[str, tuple[str, str]] = {
    "run": (_RUN, "run_id"),
    "problem": ("problem_score", "problem_id"),
    "sample": ("wide_sample", "problem_id, sample_index"),
    "step": ("wide_step", "problem_id, sample_index, step_index"),
    "candidate": ("wide_candidate", "problem_id, sample_index, step_index, candidate_index"),
    "call": ("wide_call", "problem_id, sample_index, call_index"),
}
"""What a row can be: the view, or the query, that the rows come from, and the columns that order them within a run."""


def data_frame(
    database: Path, runs: Sequence[str] = (), level: str = "run", wait_seconds: float = WAIT_SECONDS
) -> pandas.DataFrame:
    """Return the rows of runs, in the order of `runs`; without any, those of all runs of the database.

    runs: run ids, beginnings of them, or run folders. level: one of LEVELS. `python -m warehouse.query --describe VIEW`
    says what the columns of a view mean; shares and rates are from 0 to 1 and times in seconds. Raises WarehouseError.
    """
    if level not in LEVELS:
        raise WarehouseError(f"level {level!r}: unknown; valid: {', '.join(LEVELS)}")
    rows, order = LEVELS[level]
    with reader(database, wait_seconds) as connection:
        ids = list(dict.fromkeys(resolve(connection, name) for name in runs))
        of_runs = "WHERE run_id IN (SELECT unnest($runs))" if ids else ""
        by_run = "list_position($runs, run_id)" if ids else "run_id"
        sql = f"SELECT * FROM {rows} AS every {of_runs} ORDER BY {by_run}, {order}"
        return connection.execute(sql, {"runs": ids} if ids else None).df()
