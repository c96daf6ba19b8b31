"""How surprised the target is by a run's accepted text, and by how much more than by its own: nats per token.

A chain's number is its negative log-probability under the target per token. Samples are averaged within their problem,
problems are the observations, and a difference is paired by problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from warehouse.database import Connection, rows
from warehouse.estimates.row import Estimate, Subject, insert
from warehouse.statistics.intervals import mean_t

OWN, DISTANCE = "target_nats_per_token", "distance_from_target"
"""Metrics: of a run alone, and of a run and its baseline."""
_OWN = """
WITH problem_mean AS (
    SELECT run_id, problem_id, exact_sum(-logprob / num_tokens) / count(*) AS nats, count(*) AS num_samples
    FROM sample_target_logprob WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) GROUP BY ALL
)
SELECT run_id, list(nats ORDER BY problem_id) AS nats, sum(num_samples)::BIGINT AS num_samples
FROM problem_mean GROUP BY run_id ORDER BY run_id
"""
_OUTDATED = f"""
DELETE FROM estimate WHERE metric = '{DISTANCE}' AND NOT EXISTS (
    FROM distance_pair AS pair
    WHERE pair.run_id = estimate.run_id AND pair.baseline_run_id = estimate.baseline_run_id)
"""
_PAIRS = "CREATE OR REPLACE TEMP TABLE distance_pair AS SELECT DISTINCT run_id, baseline_run_id FROM distance_baseline"
_NEW = f"""
CREATE OR REPLACE TEMP TABLE new_distance AS
FROM distance_pair ANTI JOIN (SELECT run_id, baseline_run_id FROM estimate WHERE metric = '{DISTANCE}') AS known
    USING (run_id, baseline_run_id)
"""
_DIFFERENCES = """
WITH planned AS (
    SELECT run_id, sample_id, sample_index, problem_id || ' ' || content_hash AS problem
    FROM sample JOIN problem USING (run_id, problem_id)
    WHERE run_id IN (SELECT run_id FROM new_distance UNION SELECT baseline_run_id FROM new_distance)
), chain AS (
    SELECT planned.*, -logprob / num_tokens AS nats
    FROM planned LEFT JOIN sample_target_logprob USING (run_id, sample_id)
), side AS (
    SELECT *, true AS is_own, run_id AS own_id, baseline_run_id AS other_id FROM new_distance
    UNION ALL SELECT *, false, baseline_run_id, run_id FROM new_distance
), mean AS (
    SELECT side.run_id, side.baseline_run_id, is_own, chain.problem, exact_sum(nats) / count(*) AS nats
    FROM side JOIN chain ON chain.run_id = side.own_id AND chain.nats IS NOT NULL
    WHERE NOT EXISTS ( -- a sample that the other run has planned and that is not scored there
        FROM chain AS theirs WHERE theirs.run_id = side.other_id AND theirs.problem = chain.problem
            AND theirs.sample_index = chain.sample_index AND theirs.nats IS NULL)
    GROUP BY ALL
)
SELECT run_id, baseline_run_id, list(own.nats - base.nats ORDER BY problem) AS differences
FROM (FROM mean WHERE is_own) AS own JOIN (FROM mean WHERE NOT is_own) AS base USING (run_id, baseline_run_id, problem)
GROUP BY ALL ORDER BY ALL
"""


def of_runs(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of runs that are scored."""
    for row in rows(connection, _OWN, {"run_ids": list(run_ids)}):
        nats = _floats(row, "nats")
        mean = mean_t(nats)
        interval = replace(mean, low=None if mean.low is None else max(0.0, mean.low))
        yield Subject(str(row["run_id"])).estimate(OWN, len(nats), interval, num_samples=int(str(row["num_samples"])))


def bring_up_to_date(connection: Connection) -> None:
    """Make the rows of pairs of runs those of the database as it is."""
    for statement in (_PAIRS, _OUTDATED, _NEW):
        connection.execute(statement)
    if connection.execute("SELECT 1 FROM new_distance LIMIT 1").fetchall():
        insert(connection, [_of_pair(row) for row in rows(connection, _DIFFERENCES)])


def _of_pair(row: Mapping[str, object]) -> Estimate:
    differences = _floats(row, "differences")
    subject = Subject(str(row["run_id"]), baseline_run_id=str(row["baseline_run_id"]))
    return subject.estimate(DISTANCE, len(differences), mean_t(differences))


def _floats(row: Mapping[str, object], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = row[name]
    assert isinstance(values, list)
    return np.array(values, dtype=np.float64)
