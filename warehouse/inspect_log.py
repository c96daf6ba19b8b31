"""Write one run as a log of Inspect (inspect.aisi.org.uk); the only module that imports inspect_ai.

A sample becomes an epoch of its problem, a step an event, and the grade a score. Samples that have not been run are not
in the log, and those without a grade have no score. The totals count both; accuracy and standard error are over the
graded samples, as in a comparison, and the metadata say how many are missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, get_args

from harness.engine import Role
from warehouse.comparison.outcomes import read_outcomes
from warehouse.database import Connection, WarehouseError, rows
from warehouse.sql.model_columns import column_of
from warehouse.statistics.intervals import Interval, mean

Row = dict[str, Any]
SCORER = "grader"
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


class ExportImpossible(WarehouseError):
    """Something is missing or in the way; the message is one line that says what to do."""


def export_inspect(connection: Connection, run_id: str, path: Path) -> int:
    """Write a run's finished samples as an Inspect log (.eval or .json) and return their number.

    Raises ExportImpossible where inspect-ai is not installed, the file exists or its ending is another.
    """
    try:
        from inspect_ai import log
    except ImportError as error:
        raise ExportImpossible(
            "an Inspect log needs inspect-ai: pip install 'speculative-reasoning-harness[inspect]'"
        ) from error
    if path.suffix not in {".eval", ".json"}:
        raise ExportImpossible(f"{path}: an Inspect log ends in .eval or .json")
    if path.exists():
        raise ExportImpossible(f"{path} exists already: name another with -o")
    [run] = rows(connection, _RUN, {"run_id": run_id})
    samples = list(_samples(connection, run))
    present = read_outcomes(connection, run_id).present()
    is_complete = not run["num_not_run"]
    log.write_eval_log(
        log.EvalLog(
            status="success" if is_complete else "started",
            eval=_spec(run),
            results=_results(run, len(samples), mean(present.scores, present.family) if present.problems else None),
            stats=log.EvalStats(
                started_at=min((sample.started_at or "" for sample in samples), default=""),
                completed_at=max((sample.completed_at or "" for sample in samples), default=""),
            ),
            samples=samples,
        ),
        str(path),
    )
    return len(samples)


def _spec(run: Row) -> Any:
    from inspect_ai import log

    models = {role: run[column_of(role, "path")] for role in get_args(Role) if run[column_of(role, "model")]}
    run_columns = {name: _plain(value) for name, value in run.items() if name != "params"}
    return log.EvalSpec(
        eval_id=run["spec_id"],
        run_id=run["run_id"],
        created=_time(run["created_at"]),
        task=f"{run['dataset']}-{run['method']}",
        task_id=run["spec_id"],
        task_args=json.loads(run["params"]),
        solver=run["method"],
        dataset=log.EvalDataset(name=run["dataset"], samples=run["num_problems"]),
        model=models.get("target") or models["draft"],
        config=log.EvalConfig(epochs=run["samples"], epochs_reducer=["mean"]),
        metadata={"models": models, "limited": run["limited"], "run": run_columns},
    )


def num_missing(connection: Connection, run_id: str) -> tuple[int, int]:
    """Return how many of a run's planned samples are not finished or not graded, and how many are planned."""
    outcomes = read_outcomes(connection, run_id)
    return outcomes.num_missing, outcomes.num_samples


def _results(run: Row, num_samples: int, result: Interval | None) -> Any:
    """Return the log's results; `result` is pass@1 over the samples that are there, None if none is."""
    from inspect_ai import log

    metrics = {}
    if result is not None:
        metrics["accuracy"] = log.EvalMetric(name="accuracy", value=result.estimate)
    if result is not None and result.standard_error is not None:
        metrics["stderr"] = log.EvalMetric(name="stderr", value=result.standard_error)
    metadata = {name: run[name] for name in ("n", "k", "num_not_run", "num_ungraded", "grader_version", "limited")}
    if run["num_not_run"] or run["num_ungraded"]:
        metadata["missing"] = "samples that were not run or not graded are left out of accuracy and stderr"
    return log.EvalResults(
        total_samples=run["num_samples"],
        completed_samples=num_samples,
        scores=[log.EvalScore(name=SCORER, scorer=SCORER, metrics=metrics, metadata=metadata)],
    )


def _samples(connection: Connection, run: Row) -> Iterator[Any]:
    key: Row = {"run_id": run["run_id"]}
    usage = {
        sample_id: list(usage_rows)
        for sample_id, usage_rows in groupby(rows(connection, _USAGE, key), key=lambda row: str(row["sample_id"]))
    }
    for sample in rows(connection, _SAMPLES, key):
        steps = rows(connection, _STEPS, {**key, "sample_id": sample["sample_id"]})
        yield _sample(sample, steps, usage.get(str(sample["sample_id"]), []))


def _sample(sample: Row, steps: list[Row], usage: list[Row]) -> Any:
    from inspect_ai import log, model, scorer
    from inspect_ai.event import InfoEvent

    text = "".join(step["text"] for step in steps)
    started = sample["started_at"].replace(tzinfo=UTC) if sample["started_at"] else None
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
        messages=[model.ChatMessageUser(content=sample["text"]), model.ChatMessageAssistant(content=text)],
        output=model.ModelOutput.from_content(model="speculative", content=text),
        scores={SCORER: score} if sample["graded"] else None,
        metadata={
            name: _plain(sample[name])
            for name in ("sample_id", "stop_reason", "num_attempts", "seed", "shard", "attempt_id", "level", "subject")
        },
        events=[
            InfoEvent(
                source=f"step {step['step_index']}",
                data={name: _plain(value) for name, value in step.items() if name != "sample_id"},
                timestamp=started or datetime.fromtimestamp(0, UTC),
                working_start=step["elapsed_seconds"] or 0.0,
            )
            for step in steps
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


def _time(moment: datetime) -> str:
    return moment.replace(tzinfo=UTC).isoformat()


def _plain(value: Any) -> Any:
    """Return a value that JSON can hold; an infinite log-probability becomes null."""
    if isinstance(value, datetime):
        return _time(value)
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value if value is None or isinstance(value, bool | int | str) else str(value)
