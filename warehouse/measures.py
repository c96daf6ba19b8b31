"""The measures of a run in the papers' tables, each computed in SQL over the traces, with its interval.

One problem is one observation: its samples are averaged, or their counts are summed, first. A measure is the sum of x
divided by the sum of y over problems. Its standard error is that of a ratio (Cochran, Sampling Techniques, 1977,
section 6.4), which for y = 1 is that of a mean; the interval is Student's t at 95 %. Ratios of the latencies of two
runs are paired by problem and have the intervals of warehouse/statistics/ratios.py.

Times can be taken by any stopwatch of the view `stopwatch` that values problems, by default the measured time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from harness.methods import METHODS, defaults
from warehouse.database import Connection, rows
from warehouse.measure_sql import AGAINST, BY_PROBLEM, BY_RUN, CORRELATION, RATIO
from warehouse.pairs import latencies
from warehouse.statistics.intervals import mean_t
from warehouse.statistics.ratios import Fractions, geometric_mean_ratio, ratio_of_means

_OF_PAIRS = frozenset({"latency_saved", "latency_saved_seconds", "ratio_of_means", "speed_up"})
MEASURES = frozenset({*BY_PROBLEM, *BY_RUN, *AGAINST, *_OF_PAIRS, "score_reward_correlation"})
"""Names of all measures."""
_RUNS = """
SELECT run.*, run_conditions.devices, run_conditions.device_kinds, run_conditions.samples_in_flight,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason IS NOT NULL) AS num_finished,
    (SELECT bool_and(try_cast(regexp_extract(problem_id, '(\\d+)$', 1) AS INTEGER) = problem_index)
        FROM problem WHERE problem.run_id = run.run_id) AS first_problems,
    (SELECT list(DISTINCT scorer ORDER BY scorer) FROM candidate_score
        WHERE candidate_score.run_id = run.run_id) AS scorers,
    (SELECT sum(num_workers) FROM run_throughput WHERE run_id = run.run_id) AS num_workers,
    (SELECT sum(wall_seconds) FROM run_throughput WHERE run_id = run.run_id) AS wall_seconds,
    (SELECT max(num_devices) FROM attempt WHERE attempt.run_id = run.run_id AND device <> 'cpu') AS num_gpus
FROM run JOIN run_conditions USING (run_id)
WHERE method = $method AND dataset = $dataset AND engine_kind <> 'scripted'
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
        return None if pairs is None else _of_pairs(name, *pairs)
    factor = 1.0
    if name in AGAINST:
        result = rows(connection, AGAINST[name], {"run_id": run_id, "baseline": baseline})
    elif name in BY_PROBLEM:
        sql, factor = BY_PROBLEM[name]
        sql = sql.replace("{stopwatch}", stopwatch.replace("'", ""))
        result = rows(connection, RATIO.format(sql=sql), {"run_id": run_id})
    elif name == "score_reward_correlation":
        [row] = rows(connection, CORRELATION, {"run_id": run_id})
        return None if row["value"] is None else _correlation(row)
    else:
        result = rows(connection, BY_RUN[name], {"run_id": run_id})
    return _measured(result[0], factor) if result and result[0]["value"] is not None else None


def _of_pairs(name: str, own: Fractions, base: Fractions) -> Measured:
    """Return what the latencies of a run are to those of its baseline.

    `speed_up` and `ratio_of_means` are baseline over run, `latency_saved` is percent of the baseline's mean, and
    `latency_saved_seconds` is the difference of the means.
    """
    if name == "latency_saved_seconds":
        found = mean_t(base.x / base.y - own.x / own.y)
    elif name == "speed_up":
        found = geometric_mean_ratio(base.x / base.y, own.x / own.y)
    else:
        found = ratio_of_means(base, own)
    if name != "latency_saved":
        return Measured(found.estimate, found.low, found.high, len(own.x))
    low, high = (None if bound is None else 100 - 100 / bound for bound in (found.low, found.high))
    return Measured(100 - 100 / found.estimate, low, high, len(own.x))


def _correlation(row: Mapping[str, object]) -> Measured:
    """Return a correlation with its interval from the jackknife over problems (Efron and Tibshirani 1993, chapter 11).

    Steps of a problem are not independent, so whole problems are left out.
    """
    value, num_problems = float(str(row["value"])), int(str(row["n"]))
    if row["half_width"] is None:
        return Measured(value, n=num_problems)
    half_width = float(str(row["half_width"]))
    return Measured(value, max(-1.0, value - half_width), min(1.0, value + half_width), num_problems)


def runs_like(connection: Connection, columns: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the runs with these values in the table `run`, those with the most finished samples first.

    columns: values by column, with `params` as a dictionary; it must have `method` and `dataset`. Scripted runs, whose
    numbers are meaningless, are left out. `first_problems`: whether the run has the first problems of its dataset, by
    the row at the end of their ids.
    """
    candidates = rows(connection, _RUNS, {"method": columns["method"], "dataset": columns["dataset"]})
    method = str(columns["method"])
    runs = [{**row, "params": _whole(method, json.loads(str(row["params"])))} for row in candidates]
    sought = dict(columns)
    if isinstance(columns.get("params"), Mapping):
        sought["params"] = _whole(method, columns["params"])  # type: ignore[arg-type]
    return [run for run in runs if all(run[name] == value for name, value in sought.items())]


def _whole(method: str, params: Mapping[str, object]) -> dict[str, object]:
    """Return all hyper-parameters: a run of an older version lacks those that were added since, at their defaults."""
    return {**(defaults(method) if method in METHODS else {}), **params}


def _measured(row: Mapping[str, object], factor: float) -> Measured:
    def scaled(name: str) -> float | None:
        number = row.get(name)
        return None if number is None else factor * float(str(number))

    value, half_width = scaled("value"), scaled("half_width")
    assert value is not None
    low, high = scaled("low"), scaled("high")
    if half_width is not None:  # no measure is negative, and a share is at most 100 %
        low, high = max(0.0, value - half_width), value + half_width
        high = min(100.0, high) if factor == 100 else high
    return Measured(value, low, high, None if row.get("n") is None else int(str(row["n"])))
