"""Rates over decisions and mean latency of runs, whatever the grades: fallback, acceptance along the chain, seconds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from warehouse import latency_at_one
from warehouse.database import Connection, rows
from warehouse.estimates.row import Estimate, Subject
from warehouse.statistics.intervals import Floats, mean_t
from warehouse.statistics.shares import share
from warehouse.statistics.two_phase import mean_interval

_ACCEPTANCE = """
WITH problem_sum AS (
    SELECT run_id, problem_id, step_index, count(*) FILTER (decision_accepted) AS accepted, count(*) AS decisions
    FROM step JOIN sample USING (run_id, sample_id)
    WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) AND decision_kind IS NOT NULL
    GROUP BY GROUPING SETS ((run_id, problem_id), (run_id, problem_id, step_index))
)
SELECT run_id, step_index, list(accepted ORDER BY problem_id) AS accepted,
    list(decisions ORDER BY problem_id) AS decisions
FROM problem_sum GROUP BY run_id, step_index ORDER BY run_id, step_index NULLS FIRST
"""
_LATENCIES = """
SELECT run_id, list(latency_seconds ORDER BY problem_id) AS seconds, sum(num_samples)::BIGINT AS num_samples
FROM problem_speed WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) GROUP BY run_id ORDER BY run_id
"""
_TIMED = """
SELECT DISTINCT run_id FROM timing_sample WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) ORDER BY run_id
"""


def rates(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of runs. Runs whose steps were forgotten have no rates; their rows are kept as they were."""
    parameters: dict[str, object] = {"run_ids": list(run_ids)}
    for row in rows(connection, _ACCEPTANCE, parameters):
        yield _rate(row)
    for row in rows(connection, _LATENCIES, parameters):
        mean = mean_t(_floats(row["seconds"]))
        interval = replace(mean, low=None if mean.low is None else max(0.0, mean.low))
        num_samples = int(str(row["num_samples"]))
        n = len(_floats(row["seconds"]))
        yield Subject(str(row["run_id"])).estimate("latency_seconds", n, interval, num_samples=num_samples)
    for row in rows(connection, _TIMED, parameters):
        run = latency_at_one.read(connection, str(row["run_id"]))
        if run is not None:
            found = run.mean()
            subject, mean = Subject(run.run_id), mean_interval(found)
            yield subject.estimate(latency_at_one.MEAN, len(found.values.x), mean, num_samples=found.num_samples)


def _rate(row: Mapping[str, object]) -> Estimate:
    """Return the fallback rate of a run, or its acceptance rate at a step of the chain."""
    accepted, decisions = _floats(row["accepted"]), _floats(row["decisions"])
    if row["step_index"] is None:
        found = share(decisions - accepted, decisions)
        return Subject(str(row["run_id"])).estimate("fallback_rate", len(decisions), found)
    subject = Subject(str(row["run_id"]), None, None, "step", str(row["step_index"]))
    return subject.estimate("acceptance_rate", len(decisions), share(accepted, decisions))


def _floats(values: object) -> Floats:
    assert isinstance(values, list)
    return np.array(values, dtype=np.float64)
