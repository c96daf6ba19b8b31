"""Estimates over decisions and seconds: fallback, acceptance, latency, AUROC of the judge, probes, distance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from warehouse import latency_at_one
from warehouse.database import Connection, Record, rows
from warehouse.estimates.row import Estimate, Subject, insert
from warehouse.statistics import probes
from warehouse.statistics.intervals import Floats, mean_t
from warehouse.statistics.probes import Points
from warehouse.statistics.shares import on_logit, share
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


def _rate(row: Record) -> Estimate:
    """Return the fallback rate of a run, or its acceptance rate at a step of the chain."""
    accepted, decisions = _floats(row["accepted"]), _floats(row["decisions"])
    if row["step_index"] is None:
        found = share(decisions - accepted, decisions)
        return Subject(str(row["run_id"])).estimate("fallback_rate", len(decisions), found)
    subject = Subject(str(row["run_id"]), None, None, "step", str(row["step_index"]))
    return subject.estimate("acceptance_rate", len(decisions), share(accepted, decisions))


def _floats(values: Sequence[float]) -> Floats:
    return np.array(values, dtype=np.float64)


_AREAS = """
FROM auroc_total WHERE auroc IS NOT NULL AND run_id IN (SELECT unnest($run_ids::VARCHAR[]))
ORDER BY run_id, grader_version, kind
"""


def judges(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of runs; auroc_total has the areas, for every grader version."""
    for row in rows(connection, _AREAS, {"run_ids": list(run_ids)}):
        subject = Subject(str(row["run_id"]), str(row["grader_version"]), None, "kind", str(row["kind"]))
        area, error, degrees = (_number(row, name) for name in ("auroc", "standard_error", "degrees"))
        yield subject.estimate("judge_auroc", int(str(row["num_problems"])), on_logit(area, error, degrees))


def _number(row: Record, name: str) -> float:
    """Return a number of a row, which is not a number where there is none."""
    return float("nan") if row[name] is None else float(str(row[name]))


_POINTS = """
SELECT probe.*, grader_version, problem.text AS problem_text
FROM probe JOIN problem ON (problem.run_id, problem.problem_id) = (probe.run_id, probe.draft_problem_id)
JOIN counted_version ON counted_version.run_id = probe.run_id
WHERE probe.run_id IN (SELECT unnest($run_ids::VARCHAR[])) AND num_draft_rollouts > 0 AND num_own_rollouts > 0
ORDER BY probe.run_id, draft_problem_id
"""
_SCORES = tuple(range(1, 10))
"""Thresholds of scores."""
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Where the thresholds of other numbers lie among those of the points."""


def probed(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of those runs that are probes, over the points with grades of both kinds of continuations."""
    by_run: dict[str, list[Record]] = defaultdict(list)
    for row in rows(connection, _POINTS, {"run_ids": list(run_ids)}):
        by_run[str(row["run_id"])].append(row)
    for run_id, found in by_run.items():
        version = None if found[0]["grader_version"] is None else str(found[0]["grader_version"])
        yield from _rows_of(run_id, version, found)


def _rows_of(run_id: str, version: str | None, found: Sequence[Record]) -> Iterator[Estimate]:
    points, n = _points(found), len({str(row["problem_text"]) for row in found})
    subject = Subject(run_id, version)
    yield from _rates(subject, points)
    area = probes.area(points)
    if np.isfinite(area.estimate):
        yield subject.estimate("probe_auroc", n, area, num_samples=len(points))
    for third in sorted({int(one) for one in points.third}):
        yield from _rates(Subject(run_id, version, None, "third", str(third)), points.where(points.third == third))
    sign = -1.0 if found[0]["accepts_below"] else 1.0
    for threshold in _thresholds(str(found[0]["kind"]), points):
        accepted = points.rating >= threshold
        yield from _rates(Subject(run_id, version, None, "threshold", f"{sign * threshold:g}"), points, accepted)


def _rates(subject: Subject, points: Points, accepted: probes.Flags | None = None) -> Iterator[Estimate]:
    found = probes.rates(points, accepted)
    n = len(np.unique(points.problem))
    for name in ("false_acceptance", "false_rejection", "loss_of_accepted", "loss_of_refused"):
        interval = getattr(found, name)
        if np.isfinite(interval.estimate):
            yield subject.estimate(f"probe_{name}", n, interval, num_samples=len(points))


def _points(found: Sequence[Record]) -> Points:
    numbers = {text: number for number, text in enumerate(dict.fromkeys(str(row["problem_text"]) for row in found))}
    ratings = [float("nan") if row["value"] is None else float(str(row["value"])) for row in found]
    signs = [-1.0 if row["accepts_below"] else 1.0 for row in found]

    def counts(name: str) -> probes.Numbers:
        return np.array([int(str(row[name])) for row in found])

    return Points(
        problem=np.array([numbers[str(row["problem_text"])] for row in found]),
        weight=np.array([float(str(row["weight"])) for row in found]),
        accepted=np.array([bool(row["accepted"]) for row in found]),
        third=counts("third"),
        rating=np.array(ratings) * np.array(signs),
        draft_right=counts("num_draft_correct"),
        draft_total=counts("num_draft_rollouts"),
        own_right=counts("num_own_correct"),
        own_total=counts("num_own_rollouts"),
    )


def _thresholds(kind: str, points: Points) -> Sequence[float]:
    """Return the thresholds at which the decisions are replayed: none for a choice, which has no threshold."""
    known = points.rating[~np.isnan(points.rating)]
    if kind == "choice" or not len(known):
        return ()
    return _SCORES if kind == "score" else of_numbers(known)


def of_numbers(ratings: Floats) -> list[float]:
    """Return quantiles of ratings, rounded down to the six digits that name them: different ones have other names."""
    found = np.quantile(ratings, _QUANTILES)
    scale = 10.0 ** (5 - np.floor(np.log10(np.maximum(np.abs(found), 1e-12))))
    return sorted({float(f"{threshold:g}") for threshold in np.floor(found * scale + 1e-6) / scale})


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


def distances(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of runs that are scored."""
    for row in rows(connection, _OWN, {"run_ids": list(run_ids)}):
        nats = _floats(row["nats"])
        mean = mean_t(nats)
        interval = replace(mean, low=None if mean.low is None else max(0.0, mean.low))
        yield Subject(str(row["run_id"])).estimate(OWN, len(nats), interval, num_samples=int(str(row["num_samples"])))


def bring_distances_up_to_date(connection: Connection) -> None:
    """Make the rows of pairs of runs those of the database as it is."""
    for statement in (_PAIRS, _OUTDATED, _NEW):
        connection.execute(statement)
    if connection.execute("SELECT 1 FROM new_distance LIMIT 1").fetchall():
        insert(connection, [_of_pair(row) for row in rows(connection, _DIFFERENCES)])


def _of_pair(row: Record) -> Estimate:
    differences = _floats(row["differences"])
    subject = Subject(str(row["run_id"]), baseline_run_id=str(row["baseline_run_id"]))
    return subject.estimate(DISTANCE, len(differences), mean_t(differences))
