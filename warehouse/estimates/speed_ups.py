"""Speed-ups of runs over the comparable runs of the target alone, paired by problem and by sample.

A sample that one run has not finished is left out of the other as well: long chains finish last. Intervals within the
two runs are stored beside those that cover the run factor, because the factor changes with every run that is repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from warehouse import latency_at_one
from warehouse.database import Connection, columns, rows
from warehouse.estimates.row import NO_INTERVAL, Estimate, Subject, insert
from warehouse.latency_at_one import TimedRun
from warehouse.pairs import run_factors
from warehouse.statistics.intervals import Floats, Interval
from warehouse.statistics.ratios import geometric_mean_ratio, mean_of, ratio_of_means
from warehouse.statistics.run_factor import between_runs

WITHIN = "_within_runs"
"""Ending of the metrics that do not cover the run factor."""
_OUTDATED = """
DELETE FROM estimate WHERE baseline_run_id IS NOT NULL AND metric <> 'distance_from_target' AND NOT EXISTS (
    FROM comparable AS pair
    WHERE pair.run_id = estimate.run_id AND pair.baseline_run_id = estimate.baseline_run_id)
"""
_COMPARABLE = "CREATE OR REPLACE TEMP TABLE comparable AS SELECT run_id, baseline_run_id FROM comparable_baseline"
_NEW = """
CREATE OR REPLACE TEMP TABLE new_pair AS
FROM comparable ANTI JOIN (SELECT DISTINCT run_id, baseline_run_id FROM estimate WHERE metric = 'speed_up') AS known
    USING (run_id, baseline_run_id)
"""
_TIMES = """
WITH timed AS (
    SELECT run_id, sample_index, timed_sample.latency_seconds, emitted_tokens,
        problem_id || ' ' || content_hash AS problem
    FROM timed_sample JOIN sample USING (run_id, sample_id, problem_id) JOIN problem USING (run_id, problem_id)
    WHERE run_id IN (SELECT run_id FROM new_pair UNION SELECT baseline_run_id FROM new_pair)
), unfinished AS (
    SELECT run_id, sample_index, problem_id || ' ' || content_hash AS problem
    FROM sample JOIN problem USING (run_id, problem_id)
    WHERE stop_reason IS NULL AND run_id IN (SELECT run_id FROM new_pair UNION SELECT baseline_run_id FROM new_pair)
), side AS (
    SELECT run_id, baseline_run_id, true AS is_own, run_id AS own_id, baseline_run_id AS other_id FROM new_pair
    UNION ALL SELECT run_id, baseline_run_id, false, baseline_run_id, run_id FROM new_pair
), mean AS (
    SELECT side.run_id, side.baseline_run_id, is_own, problem,
        exact_sum(latency_seconds) / count(*) AS seconds, sum(emitted_tokens) / count(*) AS tokens
    FROM side JOIN timed ON timed.run_id = side.own_id
    WHERE NOT EXISTS (
        FROM unfinished WHERE unfinished.run_id = side.other_id AND unfinished.problem = timed.problem
            AND unfinished.sample_index = timed.sample_index)
    GROUP BY ALL HAVING seconds > 0 AND tokens > 0
)
SELECT own.run_id, own.baseline_run_id, own.seconds AS own_seconds, own.tokens AS own_tokens,
    base.seconds AS base_seconds, base.tokens AS base_tokens
FROM (FROM mean WHERE is_own) AS own JOIN (FROM mean WHERE NOT is_own) AS base
    USING (run_id, baseline_run_id, problem)
ORDER BY run_id, baseline_run_id, problem
"""
_WITHIN = f"""
SELECT own.*, other.run_factor AS former_factor
FROM estimate AS own JOIN estimate AS other
    ON (other.run_id, other.baseline_run_id) = (own.run_id, own.baseline_run_id)
    AND other.metric || '{WITHIN}' = own.metric
WHERE own.baseline_run_id IS NOT NULL ORDER BY own.run_id, own.baseline_run_id, own.metric
"""


def bring_up_to_date(connection: Connection) -> None:
    """Make the rows of pairs of runs those of the database as it is."""
    connection.execute(_COMPARABLE)
    connection.execute(_OUTDATED)
    connection.execute(_NEW)
    if connection.execute("SELECT 1 FROM new_pair LIMIT 1").fetchall():
        insert(connection, list(_of_new_pairs(connection)))
        insert(connection, list(_at_one(connection)))
    _widen(connection)


def _of_new_pairs(connection: Connection) -> Iterator[Estimate]:
    """Yield the rows of the pairs in the table new_pair, as if there were no run factor."""
    found = columns(connection, _TIMES, {})
    names = [f"{run_id} {base}" for run_id, base in zip(found["run_id"], found["baseline_run_id"], strict=True)]
    starts = [i for i in range(len(names)) if i == 0 or names[i] != names[i - 1]]
    for start, end in pairwise([*starts, len(names)]):
        subject = Subject(str(found["run_id"][start]), baseline_run_id=str(found["baseline_run_id"][start]))
        own_seconds, own_tokens, base_seconds, base_tokens = (
            np.asarray(found[name][start:end], dtype=np.float64)
            for name in ("own_seconds", "own_tokens", "base_seconds", "base_tokens")
        )
        speed_up = geometric_mean_ratio(base_seconds, own_seconds)
        means = ratio_of_means(mean_of(base_seconds), mean_of(own_seconds))
        for metric, interval in (("speed_up", speed_up), ("ratio_of_means", means)):
            yield subject.estimate(metric, end - start, interval)
            yield subject.estimate(metric + WITHIN, end - start, interval)
        for metric, logs in (
            ("rate_ratio", np.log(own_tokens / own_seconds) - np.log(base_tokens / base_seconds)),
            ("chain_length_ratio", np.log(own_tokens / base_tokens)),
        ):
            yield subject.estimate(metric, end - start, _geometric_mean(logs))


def _at_one(connection: Connection) -> Iterator[Estimate]:
    """Yield the rows of the pairs in the table new_pair of which both runs have timing samples."""
    runs: dict[str, TimedRun | None] = {}
    for pair in rows(connection, "FROM new_pair ORDER BY ALL"):
        names = str(pair["run_id"]), str(pair["baseline_run_id"])
        for name in names:
            runs[name] = runs[name] if name in runs else latency_at_one.read(connection, name)
        own, base = (runs[name] for name in names)
        found = latency_at_one.speed_up(own, base) if own and base else None
        if found is not None:
            subject = Subject(names[0], baseline_run_id=names[1])
            yield subject.estimate(latency_at_one.SPEED_UP, found.n, found.ratio)
            yield subject.estimate(latency_at_one.SPEED_UP + WITHIN, found.n, found.ratio)


def _geometric_mean(logs: Floats) -> Interval:
    return Interval(float(np.exp(np.mean(logs))), None, None, None, NO_INTERVAL)


def _widen(connection: Connection) -> None:
    """Have the intervals cover the run factors, where these have changed."""
    pairs = rows(connection, _WITHIN)
    factors = run_factors(connection, sorted({str(row["run_id"]) for row in pairs}))
    changed = []
    for row in pairs:
        factor = factors.get(str(row["run_id"]))
        if row.pop("former_factor") != (factor.standard_deviation if factor else None):
            within = Estimate(**row)
            interval = Interval(
                within.estimate, within.low_95, within.high_95, within.standard_error, within.interval_kind
            )
            wide = between_runs(interval, factor)
            changed.append(
                replace(
                    within,
                    metric=within.metric.removesuffix(WITHIN),
                    low_95=wide.low,
                    high_95=wide.high,
                    interval_kind=wide.kind,
                    run_factor=factor.standard_deviation if factor else None,
                )
            )
    insert(connection, changed, is_replacement=True)
