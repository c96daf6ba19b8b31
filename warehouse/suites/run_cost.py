"""Estimate the cost of a launch's samples, and compute the device hours of recorded runs.

Sources in order: recorded runs of the same settings in the database; the run's own progress; for a run of a published
suite, published values (warehouse.suites.costs).

With several recorded runs, the range of the estimate is from the cheapest to the most expensive. With a single one, it
is the 95 % interval of its mean over problems; a busy machine may take twice as long.

Samples timed one at a time are estimated from recorded runs with one sample in flight, otherwise from the timing
samples of batch runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from harness.cli.messages import counted
from harness.methods import build
from harness.settings.launch_settings import Launch
from jobs.forecast import Forecast
from jobs.run.spec import RunSpec
from warehouse.database import Connection, DatabaseError, Record, WarehouseError, reader, rows
from warehouse.statistics.ratios import mean_time
from warehouse.suites.measured import SHARED_COLUMNS, runs_like

_WAIT_SECONDS = 2.0
"""Maximum wait, in seconds, for a loader's lock."""
_SMALLEST = 0.01
"""Minimum low end of a range, as a fraction of the mean: an interval from few samples may extend below 0."""
_ALONE = "SELECT run_id, mean_seconds, low_95, high_95 FROM latency_at_one"
_BY_PROBLEM = """
SELECT avg(latency_seconds)::DOUBLE AS seconds FROM timed_sample
WHERE run_id = $run_id GROUP BY problem_id ORDER BY problem_id
"""


def forecast(
    launch: Launch, spec: RunSpec, num_samples: int, database: Path, own: Forecast | None = None, to_time: int = 0
) -> Forecast | None:
    """Estimate the cost of a launch's samples; None if it is unknown. `own`: estimate from the run's progress, if any.

    `to_time`: number of samples to time one at a time. If the cost of these samples is unknown, the estimate excludes
    it and says so.
    """
    timing = alone(launch, spec, to_time, database) if to_time else None
    if not num_samples:
        return timing
    batches = from_history(launch, same_cost(spec), num_samples, database) or own
    if batches is None or not to_time:
        return batches
    if timing is None or timing.has_gpu != batches.has_gpu:
        return replace(batches, not_timed=to_time)
    return _added(batches, timing)


def alone(launch: Launch, spec: RunSpec, num_samples: int, database: Path) -> Forecast | None:
    """Estimate the cost of samples run one at a time, without engine starts; None if it is unknown."""
    one, one_spec = launch.changed(concurrency=1, latency_sample=None), replace(spec, concurrency=1)
    if found := from_history(one, same_cost(one_spec), num_samples, database):
        return found
    return _read(database, lambda connection: _from_timings(connection, spec, num_samples))


def _added(batches: Forecast, timing: Forecast) -> Forecast:
    """Return the sum of two estimates, in hours of workers with the first estimate's number of GPUs."""
    source = "; one at a time: ".join(dict.fromkeys((batches.source, timing.source)))
    hours = batches.hours + timing.hours
    return Forecast(
        hours / max(1, batches.num_gpus), batches.low + timing.low, batches.high + timing.high, batches.num_gpus, source
    )


def same_cost(spec: RunSpec) -> Record:
    """Return the column values in the table `run` that identify runs of about the same cost."""
    return {
        **{name: getattr(spec, name) for name in SHARED_COLUMNS},
        "params": dict(spec.params),
        **{f"{role}_name": model and model.name for role, model in spec.models.items()},
        "engine_spec_decode": spec.engine.spec_decode,
        "engine_take_turns": spec.engine.take_turns,
    }


def _read(database: Path, ask: Callable[[Connection], Forecast | None]) -> Forecast | None:
    """Return the database's estimate; None if the database is missing, locked or from another version."""
    try:
        with reader(database, _WAIT_SECONDS) as connection:
            return ask(connection)
    except (WarehouseError, DatabaseError):
        return None


def from_history(launch: Launch, like: Record, num_samples: int, database: Path) -> Forecast | None:
    """Estimate the cost from recorded runs with the column values `like` in the table `run`; None if there are none.

    Only runs with times count. If the launch sets a model's tensor-parallel size, the runs must have the same size.
    """
    return _read(database, lambda connection: _from_history(connection, launch, like, num_samples))


def _from_history(connection: Connection, launch: Launch, like: Record, num_samples: int) -> Forecast | None:
    roles = build(launch.method, dict(launch.parameters)).roles
    found = [
        run
        for run in runs_like(connection, dict(like))
        if run["wall_seconds"]
        and run["num_finished"]
        and all(launch.roles[role].tensor_parallel in (None, run[f"engine_{role}_tensor_parallel"]) for role in roles)
    ]
    # Only runs on the devices of the run with the most samples: a mean over different machines is meaningless.
    alike = [run for run in found if run["devices"] == found[0]["devices"]]
    if not alike:
        return None
    weights = [int(str(run["num_finished"])) for run in alike]
    hours = [float(str(run["wall_seconds"])) / number / 3600 for run, number in zip(alike, weights, strict=True)]
    mean = float(np.average(hours, weights=weights))
    first = alike[0]
    name = str(first["run_id"]) + (f" and {counted(len(alike) - 1, 'more run')}" if len(alike) > 1 else "")
    if len(alike) > 1:
        low, high = min(hours) / mean, max(hours) / mean
    else:
        low, high = _range_of_run(connection, str(first["run_id"]))
    return _scaled(
        mean * num_samples, int(str(first["num_gpus"] or 0)), (low, high), f"history: {name} on {first['devices']}"
    )


def _from_timings(connection: Connection, spec: RunSpec, num_samples: int) -> Forecast | None:
    """Estimate the cost of samples run one at a time, from the timing samples of batch runs."""
    latencies = {str(row["run_id"]): row for row in rows(connection, _ALONE) if row["mean_seconds"]}
    for run in runs_like(connection, same_cost(spec)):
        if latency := latencies.get(str(run["run_id"])):
            mean = float(str(latency["mean_seconds"]))
            ends = [float(str(latency[end] or mean)) / mean for end in ("low_95", "high_95")]
            source = f"history: timing samples of {run['run_id']} on {run['devices']}"
            worker_hours = mean * num_samples / 3600
            return _scaled(worker_hours, int(str(run["num_gpus"] or 0)), (max(_SMALLEST, ends[0]), ends[1]), source)
    return None


def _range_of_run(connection: Connection, run_id: str) -> tuple[float, float]:
    """Return the ends of the interval of a run's mean, as multiples of the mean; 1 and 1 without an interval."""
    seconds = np.array([float(str(row["seconds"])) for row in rows(connection, _BY_PROBLEM, {"run_id": run_id})])
    found = mean_time([seconds])
    return (found.low or found.estimate) / found.estimate, (found.high or found.estimate) / found.estimate


def _scaled(worker_hours: float, num_gpus: int, relative: Sequence[float], source: str) -> Forecast:
    whole = worker_hours * max(1, num_gpus)
    return Forecast(worker_hours, whole * relative[0], whole * relative[1], num_gpus, source)


# An attempt is recorded once its engines are up, so work starts there. Runs of a suite share engine starts. Each start
# counts for the first attempt in the database that used it, so none is counted twice or lost.
_COST = """
WITH use AS (
    SELECT attempt_id, run_id, started_at, json_extract_string(engines, '$.' || role || '.engine_start') AS start_id,
        TRY_CAST(json_extract_string(engines, '$.' || role || '.engine_start_seconds') AS DOUBLE) AS seconds
    FROM attempt, (VALUES ('draft'), ('target'), ('reward')) AS used(role)
), startup AS (
    SELECT run_id, attempt_id, sum(CASE WHEN place = 1 THEN seconds ELSE 0 END) AS seconds FROM (
        SELECT *, row_number() OVER (PARTITION BY start_id ORDER BY started_at, run_id, attempt_id) AS place
        FROM use WHERE start_id IS NOT NULL
    ) GROUP BY ALL
), ended AS (
    SELECT sample.attempt_id,
        max(call.submitted_at + to_microseconds((call.end_seconds * 1e6)::BIGINT)) AS ended_at
    FROM call JOIN sample USING (run_id, sample_id) WHERE run_id = $run_id GROUP BY ALL
)
SELECT device, count(*) AS num_attempts, sum(num_devices * work_seconds) / 3600 AS work_hours,
    sum(num_devices * start_seconds) / 3600 AS start_hours
FROM (
    SELECT attempt.device, attempt.num_devices,
        greatest(0, epoch(ended.ended_at - attempt.started_at)) AS work_seconds,
        coalesce(startup.seconds,
            TRY_CAST(json_extract_string(attempt.engines, '$.startup_seconds') AS DOUBLE), 0) AS start_seconds
    FROM attempt JOIN ended USING (attempt_id) LEFT JOIN startup USING (run_id, attempt_id)
    WHERE run_id = $run_id AND device IS NOT NULL AND started_at IS NOT NULL
) GROUP BY device ORDER BY device
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Time during which a run occupied devices of one kind."""

    device: str
    num_attempts: int
    work_hours: float
    """Device-hours from the starts of its attempts to the ends of their last calls."""
    start_hours: float
    """Device-hours of engine starts. A start that several runs share counts only for the first of them."""


def costs(connection: Connection, run_id: str) -> list[Cost]:
    """Return a run's cost per kind of device; empty if its attempts have no times."""
    return [Cost(**row) for row in rows(connection, _COST, {"run_id": run_id})]
