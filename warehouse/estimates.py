"""The table `estimate`: every estimate of a run, or of a run and a run of the target alone, with its interval.

`bring_up_to_date` is called at the end of every load. A sample has a result as `comparison.outcomes` says: it is
finished and graded; an error needs no grade, unless that version has other samples of the run left to grade.
Speed-ups are paired by problem and by sample: a sample that one run has not finished is left out of the other as
well, because long chains finish last. Intervals within the two runs are stored beside those that cover the run factor,
because the factor changes with every run that is repeated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from warehouse import latency_at_one
from warehouse.database import Connection, Record, columns, rows, transaction
from warehouse.latency_at_one import TimedRun
from warehouse.pairs import run_factors
from warehouse.statistics import probes
from warehouse.statistics.bounded import accuracy
from warehouse.statistics.intervals import Counts, Floats, Interval, mean_t, rerun_standard_error
from warehouse.statistics.probes import Points
from warehouse.statistics.ratios import geometric_mean_ratio, mean_of, ratio_of_means
from warehouse.statistics.run_factor import between_runs
from warehouse.statistics.samples import maj_at_k, pass_at_k
from warehouse.statistics.shares import on_logit, share
from warehouse.statistics.two_phase import mean_interval

_TYPES = {
    "k": pa.int32(), "n": pa.int64(), "num_samples": pa.int64(), "estimate": pa.float64(),
    "standard_error": pa.float64(), "low_95": pa.float64(), "high_95": pa.float64(),
    "rerun_standard_error": pa.float64(), "run_factor": pa.float64(),
}  # fmt: skip
NO_INTERVAL = "none"


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate of a run, or of a run and a run of the target alone; sql/tables/estimate.sql has its fields."""

    run_id: str
    metric: str
    n: int
    estimate: float
    standard_error: float | None
    low_95: float | None
    high_95: float | None
    interval_kind: str
    baseline_run_id: str | None = None
    grader_version: str | None = None
    k: int | None = None
    group_kind: str | None = None
    group_value: str | None = None
    rerun_standard_error: float | None = None
    run_factor: float | None = None
    num_samples: int | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """What estimates are about."""

    run_id: str
    grader_version: str | None = None
    baseline_run_id: str | None = None
    group_kind: str | None = None
    group_value: str | None = None

    def estimate(
        self,
        metric: str,
        n: int,
        interval: Interval,
        *,
        k: int | None = None,
        rerun_standard_error: float | None = None,
        num_samples: int | None = None,
    ) -> Estimate:
        """Return the row of an interval over n problems."""
        return Estimate(
            self.run_id,
            metric,
            n,
            interval.estimate,
            interval.standard_error,
            interval.low,
            interval.high,
            interval.kind,
            self.baseline_run_id,
            self.grader_version,
            k,
            self.group_kind,
            self.group_value,
            rerun_standard_error,
            num_samples=num_samples,
        )


_KEY = ("run_id", "baseline_run_id", "grader_version", "metric", "k", "group_kind", "group_value")
_FORMER = f"""
DELETE FROM estimate USING new_estimates AS new
WHERE {" AND ".join(f"estimate.{name} IS NOT DISTINCT FROM new.{name}" for name in _KEY)}
"""


def insert(connection: Connection, estimates: Sequence[Estimate], *, is_replacement: bool = False) -> None:
    """Add rows to the table. is_replacement: the table may have other values of them, which are deleted."""
    if not estimates:
        return
    names = list(Estimate.__dataclass_fields__)
    schema = pa.schema([(name, _TYPES.get(name, pa.string())) for name in names])
    connection.register("new_estimates", pa.Table.from_pylist([asdict(row) for row in estimates], schema))
    if is_replacement:
        connection.execute(_FORMER)
    connection.execute("INSERT INTO estimate BY NAME SELECT * FROM new_estimates")
    connection.unregister("new_estimates")


_RESULT = """
WITH asked AS (
    FROM graded_sample WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[]))
), lacking AS (
    SELECT DISTINCT run_id, grader_version FROM asked WHERE finished AND NOT graded
), left_out AS (
    SELECT asked.run_id, asked.grader_version, asked.sample_id
    FROM asked JOIN lacking
        ON asked.run_id = lacking.run_id AND asked.grader_version IS NOT DISTINCT FROM lacking.grader_version
    WHERE asked.stop_reason = 'error' AND NOT EXISTS (
        FROM grade WHERE grade.run_id = asked.run_id AND grade.sample_id = asked.sample_id
            AND grade.grader_version = asked.grader_version)
), result AS (
    SELECT asked.run_id, asked.grader_version, asked.problem_id, asked.sample_index, verdict, extracted,
        graded AND left_out.run_id IS NULL AS has_result
    FROM asked LEFT JOIN left_out ON asked.run_id = left_out.run_id AND asked.sample_id = left_out.sample_id
        AND asked.grader_version IS NOT DISTINCT FROM left_out.grader_version
), first_samples AS (
    SELECT run_id, num_first AS first FROM several_samples
)
"""
_PROBLEMS = f"""{_RESULT}, counted AS (
    SELECT run_id, grader_version, problem_index, level, count(*) AS samples,
        count(*) FILTER (verdict = 'correct') AS correct, count(*) FILTER (has_result) AS results,
        count(*) FILTER (has_result AND verdict = 'correct') AS right,
        count(*) FILTER (has_result AND sample_index < first) AS first_results,
        count(*) FILTER (has_result AND sample_index < first AND verdict = 'correct') AS first_right
    FROM result JOIN problem USING (run_id, problem_id) JOIN first_samples USING (run_id) GROUP BY ALL
)
SELECT run_id, grader_version, list(level ORDER BY problem_index) AS levels,
    list(samples ORDER BY problem_index) AS samples, list(correct ORDER BY problem_index) AS correct,
    list(results ORDER BY problem_index) AS results, list("right" ORDER BY problem_index) AS "right",
    list(first_results ORDER BY problem_index) AS first_results,
    list(first_right ORDER BY problem_index) AS first_right,
    any_value(is_greedy) AS is_greedy
FROM counted JOIN (SELECT run_id, is_greedy FROM run) USING (run_id)
GROUP BY run_id, grader_version ORDER BY ALL
"""
_VOTES = f"""{_RESULT}, answered AS (
    SELECT run_id, grader_version, problem_id, verdict = 'correct' AS is_right,
        CASE WHEN verdict <> 'correct' THEN trim(coalesce(extracted, ''), E' \\n\\t\\r') END AS wrong,
        count(*) AS num_votes
    FROM result JOIN first_samples USING (run_id)
    WHERE has_result AND grader_version IS NOT NULL AND sample_index < first GROUP BY ALL
)
SELECT run_id, grader_version, any_value(first) AS k, any_value(problem_index) AS place,
    coalesce(list(num_votes ORDER BY num_votes, is_right) FILTER (is_right OR wrong <> ''), []) AS votes,
    coalesce(list(is_right ORDER BY num_votes, is_right) FILTER (is_right OR wrong <> ''), []) AS is_right,
    coalesce(sum(num_votes) FILTER (NOT is_right AND wrong = ''), 0)::BIGINT AS abstained
FROM answered JOIN problem USING (run_id, problem_id) JOIN first_samples USING (run_id)
GROUP BY run_id, grader_version, problem_id HAVING sum(num_votes) = any_value(first)
ORDER BY run_id, grader_version, place
"""
"""Votes of the problems all of whose samples have a result; wrong answers are equal where their text is."""


def accuracies(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of runs."""
    parameters: dict[str, object] = {"run_ids": list(run_ids)}
    for row in rows(connection, _PROBLEMS, parameters):
        yield from _of_version(row)
    votes = rows(connection, _VOTES, parameters)
    for (run_id, version), found in groupby(votes, key=lambda row: (str(row["run_id"]), str(row["grader_version"]))):
        yield _majority(Subject(run_id, version), list(found))


def _of_version(row: Mapping[str, object]) -> Iterator[Estimate]:
    """Yield the rows of a run under one grader version."""
    version = None if row["grader_version"] is None else str(row["grader_version"])
    subject = Subject(str(row["run_id"]), version)
    names = ("samples", "correct", "results", "right", "first_results", "first_right")
    counts = _Counts(*(_counts(row[name]) for name in names))
    spreads = not row["is_greedy"]
    yield from _both(subject, "pass_at_1", counts, spreads=spreads)
    levels = row["levels"]
    assert isinstance(levels, list)
    for level in sorted(set(levels), key=lambda name: (name is not None, name)):
        group = Subject(subject.run_id, version, None, "level", level)
        of_level = counts.at(np.array([name == level for name in levels]))
        yield from _both(group, "accuracy", of_level, spreads=spreads)
    for k in range(1, int(counts.first_results.max()) + 1):
        enough = counts.at(counts.first_results >= k)
        solved = pass_at_k(enough.first_right, enough.first_results, k)
        if k == 1:
            solved = np.asarray(enough.first_right / enough.first_results, dtype=float)
        num_samples = int(enough.first_results.sum())
        yield subject.estimate("pass_at_k", len(solved), accuracy(solved), k=k, num_samples=num_samples)


@dataclass(frozen=True)
class _Counts:
    """Samples by problem; all (n,)."""

    samples: Counts
    correct: Counts
    results: Counts
    """Samples that have a result."""
    right: Counts
    """Those of them that are correct."""
    first_results: Counts
    """Those of the samples with a result that the view several_samples counts, of every problem the same."""
    first_right: Counts

    @property
    def scores(self) -> Floats:
        """Share of samples with a result that are correct."""
        return np.asarray(self.right / self.results, dtype=float)

    def at(self, is_kept: NDArray[np.bool_]) -> _Counts:
        """Return the counts of some problems."""
        return _Counts(*(getattr(self, field.name)[is_kept] for field in fields(self)))


def _both(subject: Subject, metric: str, counts: _Counts, *, spreads: bool) -> Iterator[Estimate]:
    """Yield a mean score with missing samples as not correct, which has no interval if there are any, and without them.

    A lower bound has no interval. spreads: whether samples of a problem differ, and do not repeat the first.
    """
    most, present = int(counts.samples.max()), counts.at(counts.results > 0)
    result = accuracy(present.scores) if len(present.scores) else None
    rerun = rerun_standard_error(present.right, present.results) if result and spreads else None
    total, num_results = int(counts.samples.sum()), int(counts.results.sum())
    whole, of_whole = result, rerun
    if whole is None or num_results < total:
        whole = Interval(float(np.mean(counts.correct / counts.samples)), None, None, None, "none: samples are missing")
        of_whole = None
    yield subject.estimate(metric, len(counts.samples), whole, k=most, rerun_standard_error=of_whole, num_samples=total)
    if result is not None:
        yield subject.estimate(
            f"graded_{metric}", len(present.scores), result, k=most, rerun_standard_error=rerun, num_samples=num_results
        )


def _majority(subject: Subject, ballots: Sequence[Mapping[str, object]]) -> Estimate:
    """Return maj@k of all samples."""
    k = int(str(ballots[0]["k"]))
    scores = []
    for ballot in ballots:
        votes, is_right = ballot["votes"], ballot["is_right"]
        assert isinstance(votes, list)
        assert isinstance(is_right, list)
        scores.append(maj_at_k(votes, is_right, int(str(ballot["abstained"])), k))
    return subject.estimate("maj_at_k", len(scores), accuracy(np.array(scores)), k=k, num_samples=k * len(scores))


def _counts(values: object) -> Counts:
    assert isinstance(values, list)
    return np.array(values, dtype=np.int64)


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
    by_run: dict[str, list[Mapping[str, object]]] = defaultdict(list)
    for row in rows(connection, _POINTS, {"run_ids": list(run_ids)}):
        by_run[str(row["run_id"])].append(row)
    for run_id, found in by_run.items():
        version = None if found[0]["grader_version"] is None else str(found[0]["grader_version"])
        yield from _rows_of(run_id, version, found)


def _rows_of(run_id: str, version: str | None, found: Sequence[Mapping[str, object]]) -> Iterator[Estimate]:
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


def _points(found: Sequence[Mapping[str, object]]) -> Points:
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


WITHIN = "_within_runs"
"""Ending of the metrics that do not cover the run factor."""
_OUTDATED_SPEED_UPS = """
DELETE FROM estimate WHERE baseline_run_id IS NOT NULL AND metric <> 'distance_from_target' AND NOT EXISTS (
    FROM comparable AS pair
    WHERE pair.run_id = estimate.run_id AND pair.baseline_run_id = estimate.baseline_run_id)
"""
_COMPARABLE = "CREATE OR REPLACE TEMP TABLE comparable AS SELECT run_id, baseline_run_id FROM comparable_baseline"
_NEW_SPEED_UPS = """
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


def bring_speed_ups_up_to_date(connection: Connection) -> None:
    """Make the rows of pairs of runs those of the database as it is."""
    connection.execute(_COMPARABLE)
    connection.execute(_OUTDATED_SPEED_UPS)
    connection.execute(_NEW_SPEED_UPS)
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


_RUNS_AT_ONCE = 50
"""Runs whose problems are in memory together."""
_WITHOUT = """
SELECT run_id FROM run ANTI JOIN (FROM estimate WHERE metric = 'pass_at_1') AS known USING (run_id) ORDER BY run_id
"""


def bring_up_to_date(connection: Connection) -> None:
    """Compute the rows of runs that have none, and those of pairs of runs that other runs have changed.

    Replacing a run deletes its rows, so these are the runs that were loaded since the last call.
    """
    with transaction(connection):
        run_ids = [str(row["run_id"]) for row in rows(connection, _WITHOUT)]
        for start in range(0, len(run_ids), _RUNS_AT_ONCE):
            some = run_ids[start : start + _RUNS_AT_ONCE]
            insert(
                connection,
                [
                    *accuracies(connection, some),
                    *judges(connection, some),
                    *rates(connection, some),
                    *probed(connection, some),
                    *distances(connection, some),
                ],
            )
        bring_speed_ups_up_to_date(connection)
        bring_distances_up_to_date(connection)
