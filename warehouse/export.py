"""Export runs for other tools: `python -m warehouse.export RUN --format parquet|inspect`, and data frames.

parquet: the run's rows of every table, one file per table, in a new folder. inspect: a log for Inspect's viewer and
readers (inspect.aisi.org.uk; requires the extra `inspect`). A sample becomes an epoch of its problem, a step an event,
and the grade a score. Samples that have not run are not in the log, and ungraded samples have no score, but the totals
count both. Accuracy and standard error cover the graded samples, as in a comparison; the metadata contain the number of
missing samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import click

from harness.cli.messages import counted
from harness.engine import Role
from jobs.arguments import RunName
from warehouse.files import WarehouseError
from warehouse.options import (
    WarehouseCommand,
    choose_format,
    database_option,
    default_database,
    format_option,
    wait_option,
)
from warehouse.report.tables import json_value

if TYPE_CHECKING:
    import pandas
    import pyarrow as pa
    from inspect_ai.log import EvalResults, EvalSample, EvalSpec

    from warehouse.comparison.outcomes import Outcomes
    from warehouse.database import Connection

Row = dict[str, Any]
_ROWS_PER_BATCH = 50_000
SCORER = "grader"
MODELS = "speculative"
_RUN = """
SELECT run.*, score.* EXCLUDE (run_id, method, dataset, limited)
FROM run JOIN pass_at_1 AS score USING (run_id) WHERE run_id = $run_id
"""
_SAMPLES = """
SELECT sample.*, problem.text, problem.answer, problem.choices, problem.level, problem.subject, graded.verdict,
    graded.graded, graded.extracted, graded.detail, graded.grader_version
FROM sample JOIN problem USING (run_id, problem_id) JOIN sample_grade AS graded USING (run_id, sample_id)
WHERE run_id = $run_id AND sample.stop_reason IS NOT NULL ORDER BY problem.problem_index, sample.sample_index
"""
_STEPS = """
SELECT step.* EXCLUDE (run_id), list(candidate ORDER BY candidate_index) FILTER (candidate.sample_id IS NOT NULL)
    AS candidates
FROM step LEFT JOIN candidate USING (run_id, sample_id, step_index)
WHERE run_id = $run_id AND sample_id = $sample_id GROUP BY ALL ORDER BY step_index
"""
_USAGE = """
SELECT sample_id, model, sum(prompt_tokens)::BIGINT AS input_tokens, sum(output_tokens)::BIGINT AS output_tokens,
    sum(cached_tokens)::BIGINT AS cached_tokens
FROM call WHERE run_id = $run_id GROUP BY ALL ORDER BY sample_id, model
"""
_RUN_ROWS = """(
    SELECT score.run_id, score.method, score.dataset, run.draft_name AS draft, run.target_name AS target,
        run.reward_name AS reward, run.params, run.temperature, run.concurrency, score.n, score.k, score.pass_at_1,
        score.standard_error, score.low_95, score.high_95, score.num_not_run, score.num_ungraded, score.limited,
        number.fallback_rate, fallback.num_verdicts, number.emitted_tokens AS emitted_tokens_per_sample,
        number.spent_tokens AS spent_tokens_per_sample, number.critical_path_tokens AS critical_path_tokens_per_sample,
        number.draft_share AS emitted_by_draft, number.latency_seconds AS mean_latency_seconds,
        latency.median_seconds AS median_latency_seconds, run_conditions.regime, score.grader_version
    FROM pass_at_1 AS score
    JOIN run USING (run_id)
    JOIN run_conditions USING (run_id)
    LEFT JOIN fallback_rate AS fallback USING (run_id)
    LEFT JOIN latency USING (run_id)
    LEFT JOIN (
        PIVOT (SELECT run_id, metric, estimate FROM counted_estimate
            WHERE coalesce(role, group_kind, baseline_run_id) IS NULL AND k IS NULL)
        ON metric IN (
            'fallback_rate', 'emitted_tokens', 'spent_tokens', 'critical_path_tokens', 'draft_share', 'latency_seconds'
        ) USING any_value(estimate)
    ) AS number USING (run_id)
)"""
LEVELS: Mapping[str, tuple[str, str]] = {
    "run": (_RUN_ROWS, "run_id"),
    "problem": ("problem_score", "problem_id"),
    "sample": ("wide_sample", "problem_id, sample_index"),
    "step": ("wide_step", "problem_id, sample_index, step_index"),
    "candidate": ("wide_candidate", "problem_id, sample_index, step_index, candidate_index"),
    "call": ("wide_call", "problem_id, sample_index, call_index"),
}
"""View or query of each row type of data frames, and the columns that order the rows of a run."""


def data_frame(database: Path, runs: Sequence[str], level: str) -> pandas.DataFrame:
    """Return the rows of runs, in the order of `runs`; of all runs in the database if `runs` is empty.

    runs: run ids, unique prefixes, or run folders. level: one of LEVELS. `python -m warehouse.query --describe VIEW`
    lists the meanings of a view's columns. Shares and rates are from 0 to 1, times in seconds. Raises WarehouseError.
    """
    if level not in LEVELS:
        raise WarehouseError(f"level {level!r}: unknown; valid: {', '.join(LEVELS)}")
    rows, order = LEVELS[level]
    from warehouse.comparison.outcomes import resolve
    from warehouse.database import reader

    with reader(database) as connection:
        ids = list(dict.fromkeys(resolve(connection, name) for name in runs))
        of_runs = "WHERE run_id IN (SELECT unnest($runs))" if ids else ""
        by_run = "list_position($runs, run_id)" if ids else "run_id"
        sql = f"SELECT * FROM {rows} AS every {of_runs} ORDER BY {by_run}, {order}"
        return connection.execute(sql, {"runs": ids} if ids else None).df()


def export_parquet(connection: Connection, run_id: str, folder: Path) -> int:
    """Write one run's rows of every table to a new folder, and return the number of files.

    Raises WarehouseError if the folder exists.
    """
    import pyarrow.parquet as pq

    from warehouse.database import run_tables

    _check_is_new(folder)
    folder.mkdir(parents=True)
    connection.execute("SET VARIABLE exported_run = $run_id", {"run_id": run_id})
    tables = run_tables(connection)
    for table in tables:
        relation = connection.sql(f"FROM {table} WHERE run_id = getvariable('exported_run')")
        batches: pa.RecordBatchReader = relation.to_arrow_reader(_ROWS_PER_BATCH)
        with pq.ParquetWriter(folder / f"{table}.parquet", batches.schema, compression="zstd") as out:
            for batch in batches:
                out.write_batch(batch)
    return len(tables)


def _check_is_new(path: Path) -> None:
    if path.exists():
        raise WarehouseError(f"{path} already exists: choose another path with -o")


def export_inspect(connection: Connection, run_id: str, outcomes: Outcomes, path: Path) -> int:
    """Write a run's finished samples as an Inspect log (.eval or .json) and return their number.

    Raises WarehouseError if inspect-ai is not installed, if the file exists, or for another file extension.
    """
    from warehouse.database import rows

    try:
        from inspect_ai import log
    except ImportError as error:
        remedy = "pip install 'speculative-reasoning-harness[inspect]'"
        raise WarehouseError(f"Inspect logs require inspect-ai: {remedy}") from error
    if path.suffix not in {".eval", ".json"}:
        raise WarehouseError(f"{path}: Inspect logs must have the extension .eval or .json")
    _check_is_new(path)
    [run] = rows(connection, _RUN, {"run_id": run_id})
    samples = list(_samples(connection, run_id))
    log.write_eval_log(
        log.EvalLog(
            status="started" if run["num_not_run"] else "success",
            eval=_spec(run),
            results=_results(run, len(samples), outcomes.present()),
            stats=log.EvalStats(
                started_at=min((sample.started_at or "" for sample in samples), default=""),
                completed_at=max((sample.completed_at or "" for sample in samples), default=""),
            ),
            samples=samples,
        ),
        str(path),
    )
    return len(samples)


def _spec(run: Row) -> EvalSpec:
    from inspect_ai import log

    from warehouse.sql.model_columns import column_of

    models = {role: run[column_of(role, "path")] for role in get_args(Role) if run[column_of(role, "model")]}
    return log.EvalSpec(
        eval_id=run["spec_id"],
        run_id=run["run_id"],
        created=run["created_at"].replace(tzinfo=UTC).isoformat(),
        task=f"{run['dataset']}-{run['method']}",
        task_id=run["spec_id"],
        task_args=json.loads(run["params"]),
        solver=run["method"],
        dataset=log.EvalDataset(name=run["dataset"], samples=run["num_problems"]),
        model=models.get("target") or models["draft"],
        config=log.EvalConfig(epochs=run["samples"], epochs_reducer=["mean"]),
        metadata={"models": models, "limited": run["limited"], "run": json_value(run)},
    )


def _results(run: Row, num_samples: int, present: Outcomes) -> EvalResults:
    """Return the log's results: pass@1 over the available samples."""
    from inspect_ai import log

    from warehouse.statistics.intervals import mean

    found = mean(present.scores, present.family) if present.problems else None
    numbers = {"accuracy": found.estimate, "stderr": found.standard_error} if found else {}
    metadata = {name: run[name] for name in ("n", "k", "num_not_run", "num_ungraded", "grader_version", "limited")}
    if run["num_not_run"] or run["num_ungraded"]:
        metadata["missing"] = "samples that were not run or not graded are left out of accuracy and stderr"
    metrics = {name: log.EvalMetric(name=name, value=value) for name, value in numbers.items() if value is not None}
    return log.EvalResults(
        total_samples=run["num_samples"],
        completed_samples=num_samples,
        scores=[log.EvalScore(name=SCORER, scorer=SCORER, metrics=metrics, metadata=metadata)],
    )


def _samples(connection: Connection, run_id: str) -> Iterator[EvalSample]:
    from warehouse.database import rows

    key = {"run_id": run_id}
    of_calls = groupby(rows(connection, _USAGE, key), key=lambda row: str(row["sample_id"]))
    usage = {sample_id: list(usage_rows) for sample_id, usage_rows in of_calls}
    for sample in rows(connection, _SAMPLES, key):
        steps = rows(connection, _STEPS, {**key, "sample_id": sample["sample_id"]})
        yield _sample(sample, steps, usage.get(str(sample["sample_id"]), []))


def _sample(sample: Row, steps: list[Row], usage: list[Row]) -> EvalSample:
    from inspect_ai import log, model, scorer
    from inspect_ai.event import InfoEvent, ModelEvent

    text = "".join(step["text"] for step in steps)
    question, output = model.ChatMessageUser(content=sample["text"]), model.ModelOutput.from_content(MODELS, text)
    started = sample["started_at"].replace(tzinfo=UTC) if sample["started_at"] else None
    began = started or datetime.fromtimestamp(0, UTC)
    ended = started and datetime.fromtimestamp(started.timestamp() + (sample["latency_seconds"] or 0), UTC)
    value = scorer.CORRECT if sample["verdict"] == "correct" else scorer.INCORRECT
    score = scorer.Score(
        value=value,
        answer=sample["extracted"],
        explanation=f"{sample['verdict']}: {sample['detail'] or ''}",
        metadata={"verdict": sample["verdict"], "grader_version": sample["grader_version"]},
    )
    error = log.EvalError(message=sample["error"], traceback="", traceback_ansi="") if sample["error"] else None
    return log.EvalSample(
        id=sample["problem_id"],
        epoch=sample["sample_index"] + 1,
        input=sample["text"],
        choices=sample["choices"] or None,
        target=sample["answer"],
        uuid=sample["sample_id"],
        messages=[question, output.message],
        output=output,
        scores={SCORER: score} if sample["graded"] else None,
        metadata={
            name: sample[name]
            for name in ("sample_id", "stop_reason", "num_attempts", "seed", "shard", "attempt_id", "level", "subject")
        },
        events=[
            InfoEvent(
                source=f"step {step['step_index']}",
                data=json_value({name: value for name, value in step.items() if name != "sample_id"}),
                timestamp=began,
                working_start=step["elapsed_seconds"] or 0.0,
            )
            for step in steps
        ]
        # Inspect reads a sample's messages from the calls of models.
        + [
            ModelEvent(
                model=MODELS,
                input=[question],
                tools=[],
                tool_choice="none",
                config=model.GenerateConfig(),
                output=output,
                timestamp=began,
            )
        ],
        model_usage={
            row["model"]: model.ModelUsage(
                input_tokens=row["input_tokens"],
                output_tokens=row["output_tokens"],
                total_tokens=row["input_tokens"] + row["output_tokens"],
                input_tokens_cache_read=row["cached_tokens"],
            )
            for row in usage
        },
        started_at=started.isoformat() if started else None,
        completed_at=ended.isoformat() if ended else None,
        total_time=sample["latency_seconds"],
        error=error,
    )


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
    """Write one run as Parquet files or as an Inspect log.

    RUN: a run id, a unique prefix, or a run folder.
    """
    from warehouse.comparison.outcomes import read_outcomes, resolve
    from warehouse.database import reader

    kinds: dict[str, Literal["parquet", "inspect"]] = {".eval": "inspect"}
    output_format = choose_format(output_format, output, kinds, "parquet")
    with reader(database or default_database(run), wait_seconds) as connection:
        run_id = resolve(connection, run)
        if output_format == "parquet":
            output = output or Path(f"{run_id}-parquet")
            click.echo(f"{output}: {counted(export_parquet(connection, run_id, output), 'file')}")
            return
        output, outcomes = output or Path(f"{run_id}.eval"), read_outcomes(connection, run_id)
        click.echo(f"{output}: {counted(export_inspect(connection, run_id, outcomes, output), 'sample')}")
        if missing := outcomes.num_missing:
            are = "is" if missing == 1 else "are"
            note = "excluded, not counted as wrong: the log's accuracy covers only the remaining samples"
            click.echo(f"INCOMPLETE RUN: {missing} of {outcomes.num_samples} samples {are} missing and {note}.")


if __name__ == "__main__":
    main(prog_name="python -m warehouse.export")
