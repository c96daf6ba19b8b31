"""Values in the tables of published suites: of a run alone or against its baseline, in the measure's unit.

A measure of warehouse/measures.py is read from the table `estimate`, or computed on demand if only a few runs have the
data. Latency ratios of two runs are paired by problem (warehouse/statistics/ratios.py). Latency may follow any
definition in the view `stopwatch` that has values per problem; the default is measured time. If a run has samples timed
one at a time (`--latency-sample`), its times are estimated from these samples. The intervals then account for
the sampling of problems and the draw of timed samples (warehouse/statistics/two_phase.py).
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from harness.engines import registry
from warehouse.comparison import latency_at_one
from warehouse.comparison.latency_at_one import USABLE, TimedRun
from warehouse.comparison.outcomes import families
from warehouse.comparison.pairs import latencies
from warehouse.database import Connection, Record, Row, columns, rows
from warehouse.estimates import of_problems
from warehouse.measures import CORRELATED, MEASURES, SHOWN_SCORES, Source
from warehouse.sql import baselines
from warehouse.statistics.intervals import Floats, Interval, mean_t
from warehouse.statistics.shares import correlation
from warehouse.statistics.two_phase import mean_interval, two_phase_difference, two_phase_ratio

_STORED = """
SELECT estimate, low_95 AS low, high_95 AS high, standard_error, interval_kind AS kind FROM counted_estimate
WHERE run_id = $run_id AND metric = $metric AND k IS NOT DISTINCT FROM coalesce($k, k) AND role IS NULL
    AND group_kind IS NULL AND baseline_run_id IS NULL AND estimate IS NOT NULL
"""
_WALL_SPEED_UP = """
SELECT base.wall_seconds / own.wall_seconds AS value FROM run_throughput AS own, run_throughput AS base
WHERE own.run_id = $run_id AND base.run_id = $baseline AND own.num_samples = base.num_samples
    AND own.num_workers = base.num_workers
    AND (SELECT count(DISTINCT dataset_hash) FROM run WHERE run_id IN ($run_id, $baseline)) = 1
"""
_RUNS = f"""
SELECT run.*, devices, device_kinds, processors, samples_in_flight, num_cards,
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
    FROM candidate JOIN sample USING (run_id, sample_id)
    LEFT JOIN {SHOWN_SCORES} AS scored USING (run_id, sample_id, step_index, candidate_index)
    WHERE stop_reason <> 'error' GROUP BY run_id
) AS reward USING (run_id)
WHERE method = $method AND dataset = $dataset AND engine_kind NOT IN $uncounted
ORDER BY num_finished DESC, created_at DESC
"""


def measure(
    connection: Connection,
    name: str,
    run_id: str,
    baseline: str | None = None,
    stopwatch: str = "measured",
    of_baseline: str | None = None,
    k: int | None = None,
) -> Interval | None:
    """Return a metric of a run; None if the run lacks the data or is not comparable with its baseline.

    `stopwatch`: definition of latency for latency measures. `of_baseline`: the baseline's, if different. `k`: samples
    per problem for pass@k. Raises KeyError for an unknown name.
    """
    wanted, found = MEASURES[name], None
    if name == "wall_speed_up":
        ratios = rows(connection, _WALL_SPEED_UP, {"run_id": run_id, "baseline": baseline})
        found = Interval(ratios[0]["value"], None, None, None, "none: a single ratio") if ratios else None
    elif wanted.is_of_pair:
        found = _of_latencies(connection, name, run_id, baseline, stopwatch, of_baseline or stopwatch)
    elif wanted.source is CORRELATED:
        sql = f"FROM {CORRELATED.sql} WHERE run_id = $run_id ORDER BY problem_id"
        sums = columns(connection, sql, {"run_id": run_id})
        if len(sums["n"]):
            family = families(connection, [run_id])
            found = correlation(
                np.stack([sums[key] for key in ("n", "x", "y", "xy", "xx", "yy")], axis=1),
                [family.get((run_id, problem)) for problem in sums["problem_id"].tolist()],
            )
    elif wanted.source.is_stored and not (name == "latency_seconds" and stopwatch != "measured"):
        stored = rows(connection, _STORED, {"run_id": run_id, "metric": name, "k": k})
        found = Interval(**stored[0]) if stored else None
    else:
        if wanted.source.is_stored:
            clock = stopwatch.replace("'", "")
            by_clock = Source(f"(SELECT run_id, problem_id, x, y FROM problem_stopwatch WHERE stopwatch = '{clock}')")
            wanted = replace(wanted, x="nullif(x, 0)", y="y", samples=None, source=by_clock)
        found = next((one.interval for one in of_problems(connection, [run_id], [wanted])), None)
    return _known(found)


def _known(found: Interval | None) -> Interval | None:
    """Return the interval, or None if its estimate is NaN."""
    return found if found is not None and np.isfinite(found.estimate) else None


def _of_latencies(
    connection: Connection, name: str, run_id: str, baseline: str | None, stopwatch: str, of_baseline: str
) -> Interval | None:
    """Return a metric that compares the latencies of a setting and its baseline."""
    pair = latencies(connection, run_id, baseline, stopwatch, of_baseline)
    if pair is None:
        return None
    if name == "latency_saved_seconds":
        own, base = (np.stack(repeats).mean(axis=0) for repeats in (pair.own, pair.base))
        return mean_t(base - own, pair.family)
    return pair.ratio.geometric_mean if name == "speed_up" else _saved(name, pair.ratio.of_means)


def _saved(name: str, found: Interval) -> Interval:
    """Return the ratio of means `found`, or for latency_saved the saving, 1 − 1/ratio."""
    if name != "latency_saved" or not np.isfinite(found.estimate):
        return found
    low, high = (None if end is None else 1 - 1 / end for end in (found.low, found.high))
    return Interval(1 - 1 / found.estimate, low, high, None, found.kind)


_OF_CHAINS = {
    "tokens_per_second": "tokens_per_second",
    "thought_tokens_per_second": "thought_tokens_per_second",
    "drafting_share": "draft",
    "selection_share": "verdict",
    "target_share": "rest",
}
"""Columns of _VALUES, by measure."""
_RATES = ("tokens_per_second", "thought_tokens_per_second")
NOT_ESTIMATED = frozenset({"speed_up"})
"""Latency metrics that cannot be estimated from timing samples."""
ESTIMATED = frozenset({"latency_seconds", "latency_saved", "latency_saved_seconds", "ratio_of_means", *_OF_CHAINS})
"""Metrics that can be estimated from timing samples."""
_VALUES = f"""
WITH timed AS (FROM timing_sample WHERE run_id = $run_id AND {USABLE}), called AS (
    SELECT timing_call.* FROM timing_call SEMI JOIN timed USING (run_id, sample_id) WHERE purpose <> 'lookahead'
), token AS (
    SELECT model, nullif(sum(end_seconds - first_token_seconds), 0)
        / nullif(sum(greatest(longest_output_tokens - 1, 0)), 0) AS seconds
    FROM called WHERE purpose <> 'verdict' GROUP BY model
), prefill AS (
    SELECT model, purpose, avg(first_token_seconds - queued_seconds) AS seconds FROM called GROUP BY ALL
), of_calls AS (
    SELECT sample_id, sum(end_seconds - overlapped_seconds) AS waited,
        coalesce(sum(end_seconds - overlapped_seconds) FILTER (called.purpose = 'draft'), 0) AS draft,
        coalesce(sum(end_seconds - overlapped_seconds) FILTER (called.purpose = 'verdict'), 0) AS verdict,
        CASE WHEN NOT bool_or(called.purpose <> 'verdict' AND token.seconds IS NULL) THEN
            coalesce(sum(longest_output_tokens * token.seconds) FILTER (called.purpose <> 'verdict'), 0)
            + coalesce(sum(prefill.seconds) FILTER (called.purpose IN ('verdict', 'chain')), 0) END AS specreason
    FROM called LEFT JOIN token USING (model) LEFT JOIN prefill USING (model, purpose) GROUP BY sample_id
)
SELECT sample_id, latency_seconds AS measured, specreason, greatest(latency_seconds - answer_seconds, 0) AS scot,
    emitted_tokens / nullif(latency_seconds, 0) AS tokens_per_second,
    (emitted_tokens - answer_tokens) / nullif(scot, 0) AS thought_tokens_per_second,
    draft, verdict, waited - answer_seconds AS thought, thought - draft - verdict AS rest
FROM timed LEFT JOIN of_calls USING (sample_id)
"""
"""Definitions of latency as in sql/views/stopwatches.sql and modelled.sql; shares as in measures.py."""
_PROGRESS = """
SELECT num_timed, num_drawn, num_samples FROM latency_at_one WHERE run_id = $run_id
"""


def progress(connection: Connection, run_id: str) -> tuple[int, int, int] | None:
    """Return the numbers of a run's samples that are timed, planned for timing, and in total; None: none timed."""
    found = rows(connection, _PROGRESS, {"run_id": run_id})
    return (found[0]["num_timed"], found[0]["num_drawn"], found[0]["num_samples"]) if found else None


def estimated(
    connection: Connection,
    name: str,
    run: Record,
    baseline: Record | None = None,
    stopwatch: str = "measured",
    of_baseline: str | None = None,
) -> Interval | None:
    """Return a time metric estimated from timing samples; None if that is not possible.

    `run` and `baseline` are rows of `runs_like`, and `name` is in `ESTIMATED`.
    """
    run_id = str(run["run_id"])
    if MEASURES[name].is_of_pair:
        if baseline is None or not baselines.is_alike(run, baseline, across_concurrencies=True):
            return None
        own = _quantity(connection, run_id, stopwatch)
        return _of_pair(name, own, _quantity(connection, str(baseline["run_id"]), of_baseline or stopwatch))
    found = _quantity(connection, run_id, _OF_CHAINS.get(name, stopwatch))
    if found is None or not name.endswith("_share"):
        return _known(mean_interval(found.mean())) if found else None
    whole = _quantity(connection, run_id, "thought")
    if whole is None or whole.mean().estimate <= 0:
        return None
    if not found.seconds.any():
        return Interval(0.0, None, None, None, "none: no time")
    return _known(two_phase_ratio(found.mean(), whole.mean()))


def _quantity(connection: Connection, run_id: str, name: str) -> TimedRun | None:
    """Return a run with another quantity of its timed chains in place of their seconds.

    None if the run has no valid timing samples, or if a chain lacks the quantity.
    """
    run = latency_at_one.read(connection, run_id)
    if run is None or name == "measured":
        return run
    by_chain = {str(row["sample_id"]): row[name] for row in rows(connection, _VALUES, {"run_id": run_id})}
    values = [by_chain[sample_id] for sample_id in run.timed_ids]
    if any(value is None for value in values):
        return None
    numbers: Floats = np.array(values, dtype=np.float64)
    return run.measuring(numbers, grows_with_time=name not in _RATES)


def _of_pair(name: str, own: TimedRun | None, base: TimedRun | None) -> Interval | None:
    """Return a metric that compares a run with its baseline, over the problems in both."""
    if own is None or base is None:
        return None
    shared = own.shared(base)
    try:
        first, second = base.mean(shared), own.mean(shared)
    except ValueError:
        return None
    if name == "latency_saved_seconds":
        return _known(two_phase_difference(first, second))
    return _known(_saved(name, two_phase_ratio(first, second)))


SHARED_COLUMNS = ("method", "dataset", "temperature", "top_p", "token_budget", "concurrency")
"""Columns with the same names in a run, a launch and a specification."""


def runs_like(connection: Connection, wanted: Record) -> list[Row]:
    """Return the runs with these values in the table `run`, those with the most finished samples first.

    wanted: values by column, with `params` as a dictionary; `method` and `dataset` are required. Runs without a model
    (scripted engines) are left out, because their numbers are meaningless. The column `first_problems` tells whether
    the run has the first problems of its dataset, by the numbers at the ends of their ids.
    """
    parameters = {"method": wanted["method"], "dataset": wanted["dataset"], "uncounted": registry.uncounted()}
    candidates = rows(connection, _RUNS, parameters)
    runs = [{**row, "params": json.loads(str(row["params"]))} for row in candidates]
    return [run for run in runs if all(run[name] == value for name, value in wanted.items())]
