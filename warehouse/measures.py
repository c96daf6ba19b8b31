"""The measures of a run in the papers' tables, each computed in SQL over the traces, with its interval.

One problem is one observation: its samples are averaged, or their counts are summed, first. A measure is the sum of x
divided by the sum of y over problems, with the interval of warehouse/statistics/shares.py. Ratios of the latencies of
two runs are paired by problem and have the intervals of warehouse/statistics/ratios.py.

Times can be taken by any stopwatch of the view `stopwatch` that values problems, by default the measured time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from harness.engines import registry
from harness.methods import METHODS, defaults
from warehouse.database import Connection, Record, columns, rows
from warehouse.measure_sql import AGAINST, BY_PROBLEM, BY_RUN, CORRELATION, STORED
from warehouse.pairs import latencies, run_factors
from warehouse.statistics.intervals import Interval, mean_t
from warehouse.statistics.ratios import Fractions, geometric_mean_ratio, ratio_of_means
from warehouse.statistics.run_factor import RunFactor, between_runs
from warehouse.statistics.shares import correlation, ratio, share

_OF_PAIRS = frozenset({"latency_saved", "latency_saved_seconds", "ratio_of_means", "speed_up"})
MEASURES = frozenset({*STORED, *BY_PROBLEM, *BY_RUN, *AGAINST, *_OF_PAIRS, "score_reward_correlation"})
"""Names of all measures."""
_STORED = """
SELECT estimate, low_95, high_95, n FROM counted_estimate
WHERE run_id = $run_id AND metric = $metric AND (k = $k OR $k IS NULL) AND group_kind IS NULL
"""
_RUNS = """
SELECT run.*, run_conditions.devices, run_conditions.device_kinds, run_conditions.samples_in_flight,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason IS NOT NULL) AS num_finished,
    (SELECT bool_and(try_cast(regexp_extract(problem_id, '(\\d+)$', 1) AS INTEGER) = problem_index)
        FROM problem WHERE problem.run_id = run.run_id) AS first_problems,
    (SELECT list(DISTINCT scorer ORDER BY scorer) FROM candidate_score
        WHERE candidate_score.run_id = run.run_id) AS scorers,
    reward.num_candidates, reward.num_unscored, reward.why_unscored,
    (SELECT sum(num_workers) FROM run_throughput WHERE run_id = run.run_id) AS num_workers,
    (SELECT sum(wall_seconds) FROM run_throughput WHERE run_id = run.run_id) AS wall_seconds,
    (SELECT max(num_devices) FROM attempt WHERE attempt.run_id = run.run_id
        AND device NOT IN ('cpu', 'unknown server', 'cpu and unknown server')) AS num_gpus
FROM run JOIN run_conditions USING (run_id)
LEFT JOIN (
    SELECT run_id, count(*) AS num_candidates, count(*) - count(score) AS num_unscored,
        list(DISTINCT missing ORDER BY missing) FILTER (missing IS NOT NULL) AS why_unscored
    FROM candidate JOIN sample USING (run_id, sample_id) LEFT JOIN (
        FROM candidate_score SEMI JOIN (
            SELECT run_id, scorer FROM candidate_score GROUP BY run_id, scorer
            QUALIFY row_number() OVER (PARTITION BY run_id ORDER BY scorer ILIKE '%shepherd%' DESC, scorer) = 1
        ) AS shown USING (run_id, scorer)
    ) AS scored USING (run_id, sample_id, step_index, candidate_index)
    WHERE stop_reason <> 'error' GROUP BY run_id
) AS reward USING (run_id)
WHERE method = $method AND dataset = $dataset AND engine_kind NOT IN $uncounted
ORDER BY num_finished DESC, created_at DESC
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure of a run with its 95 % interval; None: too few problems, or this measure has no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    """Number of problems."""


def measure(
    connection: Connection,
    name: str,
    run_id: str,
    baseline: str | None = None,
    stopwatch: str = "measured",
    of_baseline: str | None = None,
) -> Measured | None:
    """Return a measure of a run; None if the run lacks the data for it, or if it is not like its baseline.

    `stopwatch` is the definition of latency for the measures of latency, `of_baseline` that of the baseline, where that
    has another one. Raises KeyError for an unknown name.
    """
    if name in _OF_PAIRS:
        pairs = latencies(connection, run_id, baseline, stopwatch, of_baseline or stopwatch)
        return None if pairs is None else _of_pairs(name, *pairs, run_factors(connection, [run_id]).get(run_id))
    if name in STORED:
        return _stored(connection, run_id, *STORED[name])
    if name in BY_PROBLEM:
        sql, unit = BY_PROBLEM[name]
        return _of_problems(connection, sql.replace("{stopwatch}", stopwatch.replace("'", "")), unit, run_id)
    if name == "score_reward_correlation":
        found = columns(connection, CORRELATION, {"run_id": run_id})
        sums = np.stack([found[key] for key in ("n", "x", "y", "xy", "xx", "yy")], axis=1)
        return _measured(correlation(sums), 1.0, len(sums)) if len(sums) else None
    parameters: dict[str, object] = {"run_id": run_id}
    if name in AGAINST:
        result = rows(connection, AGAINST[name], {**parameters, "baseline": baseline})
    else:
        result = rows(connection, BY_RUN[name], parameters)
    return Measured(float(str(result[0]["value"]))) if result and result[0]["value"] is not None else None


def _stored(connection: Connection, run_id: str, metric: str, k: int | None) -> Measured | None:
    """Return a share that is stored as a row of `estimate`, in percent."""
    for row in rows(connection, _STORED, {"run_id": run_id, "metric": metric, "k": k}):
        low, high = (None if row[name] is None else 100 * float(str(row[name])) for name in ("low_95", "high_95"))
        return Measured(100 * float(str(row["estimate"])), low, high, int(str(row["n"])))
    return None


def _of_problems(connection: Connection, sql: str, unit: float, run_id: str) -> Measured | None:
    """Return Σx/Σy of the problems that the SQL returns; unit: 100 for a share in percent."""
    sql = f"SELECT x::DOUBLE AS x, y::DOUBLE AS y FROM ({sql}) WHERE x IS NOT NULL ORDER BY problem_id"
    found = columns(connection, sql, {"run_id": run_id})
    x, y = np.asarray(found["x"], dtype=np.float64), np.nan_to_num(np.asarray(found["y"], dtype=np.float64))
    if not y.sum():
        return None
    return _measured(share(x, y) if unit == 100 else ratio(x, y), unit, len(x))


def _of_pairs(name: str, own: Fractions, base: Fractions, factor: RunFactor | None) -> Measured:
    """Return what the latencies of a run are to those of its baseline.

    `speed_up` and `ratio_of_means` are baseline over run, `latency_saved` is percent of the baseline's mean, and
    `latency_saved_seconds` is the difference of the means. Ratios cover the run factor where it is known, as the view
    `speed_up` does.
    """
    if name == "latency_saved_seconds":
        found = mean_t(base.x / base.y - own.x / own.y)
    elif name == "speed_up":
        found = between_runs(geometric_mean_ratio(base.x / base.y, own.x / own.y), factor)
    else:
        found = between_runs(ratio_of_means(base, own), factor)
    if name != "latency_saved":
        return Measured(found.estimate, found.low, found.high, len(own.x))
    low, high = (None if bound is None else 100 - 100 / bound for bound in (found.low, found.high))
    return Measured(100 - 100 / found.estimate, low, high, len(own.x))


def runs_like(connection: Connection, wanted: Record) -> list[dict[str, object]]:
    """Return the runs with these values in the table `run`, those with the most finished samples first.

    wanted: values by column, with `params` as a dictionary; it must have `method` and `dataset`. Scripted runs, whose
    numbers are meaningless, are left out. `first_problems`: whether the run has the first problems of its dataset, by
    the row at the end of their ids.
    """
    parameters = {"method": wanted["method"], "dataset": wanted["dataset"], "uncounted": registry.uncounted()}
    candidates = rows(connection, _RUNS, parameters)
    method = str(wanted["method"])
    runs = [{**row, "params": _whole(method, json.loads(str(row["params"])))} for row in candidates]
    sought = dict(wanted)
    if isinstance(wanted.get("params"), Mapping):
        sought["params"] = _whole(method, wanted["params"])
    return [run for run in runs if all(run[name] == value for name, value in sought.items())]


def _whole(method: str, params: Record) -> dict[str, object]:
    """Return all hyper-parameters: a run of an older version lacks those that were added since, at their defaults."""
    return {**(defaults(method) if method in METHODS else {}), **params}


def _measured(found: Interval | None, unit: float, n: int) -> Measured | None:
    """Return an interval over n problems as a measure in another unit."""
    if found is None:
        return None
    low, high = (None if bound is None else unit * bound for bound in (found.low, found.high))
    return Measured(unit * found.estimate, low, high, n)
