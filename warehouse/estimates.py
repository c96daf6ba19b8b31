"""The tables `estimate` and `interval`: every number of a run, or of a run and a run of the target alone.

`bring_up_to_date` is called at the end of every load. Measures that are ratios of sums over problems are computed as
warehouse/measures.py says (`of_problems`), the others by the functions here. A sample has a result as
`comparison.outcomes` says: it is finished and graded; an error needs no grade, unless that version has other samples of
the run left to grade. Speed-ups are of settings, over all their finished repeats (pairs.py): the rows of a pair are
made again when a run of either is loaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from warehouse.comparison import latency_at_one
from warehouse.comparison.latency_at_one import TimedRun
from warehouse.comparison.outcomes import families
from warehouse.comparison.pairs import read_times, timed_pair
from warehouse.database import Connection, Record, columns, rows, transaction
from warehouse.measures import MEASURES, SAMPLES_PER_SLOT, Measure, Source
from warehouse.statistics import probes
from warehouse.statistics.intervals import Counts, Floats, Interval, family_numbers, mean, mean_on_these, mean_t
from warehouse.statistics.probes import Points
from warehouse.statistics.samples import maj_at_k, pass_at_k
from warehouse.statistics.shares import auroc
from warehouse.statistics.two_phase import mean_interval

LIKE_THESE, THESE_PROBLEMS = "like these problems", "these problems"
"""Questions of intervals: the problems are a sample; the same problems again."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What estimates are about."""

    run_id: str
    grader_version: str | None = None
    baseline_run_id: str | None = None
    role: str | None = None
    group_kind: str | None = None
    group_value: str | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number with its intervals; sql/tables/estimate.sql has its fields."""

    subject: Subject
    measure: str
    n: int
    """Problems that it is over."""
    interval: Interval
    k: int | None = None
    num_samples: int | None = None
    missing: int | None = None
    sums: tuple[float, float] | None = None
    """Σx and Σy, of which it is the ratio."""
    on_these: Interval | None = None
    """On the same problems, run again."""
    run_factor: float | None = None
    """Standard deviation of a run's times in logarithms, which the interval covers."""


_KEY = ("run_id", "baseline_run_id", "grader_version", "measure", "role", "k", "group_kind", "group_value")
_ENDS = ("low", "high", "standard_error", "p", "method")
_ENDS_ON_THESE = tuple(f"{name}_on_these" for name in _ENDS)
_TYPES = (
    {"k": pa.int32()}
    | {name: pa.int64() for name in ("n", "families", "num_samples", "missing")}
    | {name: pa.float64() for name in ("value", "num", "den", *_ENDS[:-1], *_ENDS_ON_THESE[:-1], "run_factor")}
)
_TEXTS = (*(name for name in _KEY if name != "k"), "unit", _ENDS[-1], _ENDS_ON_THESE[-1])
_INSERT = f"""
CREATE OR REPLACE TEMP TABLE new_estimate AS SELECT hash({", ".join(_KEY)}) AS id, * FROM new_rows;
INSERT INTO estimate BY NAME SELECT * EXCLUDE ({", ".join((*_ENDS, *_ENDS_ON_THESE))})
FROM new_estimate;
INSERT INTO interval BY NAME
SELECT id AS estimate, run_id, '{LIKE_THESE}' AS question, {", ".join(_ENDS)} FROM new_estimate
UNION ALL BY NAME
SELECT id AS estimate, run_id, '{THESE_PROBLEMS}' AS question,
    {", ".join(f"{name}_on_these AS {name}" for name in _ENDS)}
FROM new_estimate WHERE method_on_these IS NOT NULL
"""


def insert(connection: Connection, estimates: Sequence[Estimate]) -> None:
    """Add rows to the tables."""
    if not estimates:
        return
    schema = pa.schema([*((name, pa.string()) for name in _TEXTS), *_TYPES.items()])
    connection.register("new_rows", pa.Table.from_pylist([_row(one) for one in estimates], schema))
    connection.execute(_INSERT)
    connection.unregister("new_rows")


def _row(one: Estimate) -> dict[str, object]:
    found, (num, den) = one.interval, one.sums or (None, None)
    return {
        **{field.name: getattr(one.subject, field.name) for field in fields(Subject)},
        **{name: getattr(one, name) for name in ("measure", "n", "k", "num_samples", "missing", "run_factor")},
        "families": found.families,
        "unit": MEASURES[one.measure].unit,
        "value": found.estimate if np.isfinite(found.estimate) else None,
        "num": num,
        "den": den,
        **_ends(found, is_difference=one.subject.baseline_run_id is not None),
        **({} if one.on_these is None else {f"{name}_on_these": end for name, end in _ends(one.on_these).items()}),
    }


def _ends(found: Interval, *, is_difference: bool = False) -> dict[str, object]:
    p = found.p if is_difference else None
    return dict(zip(_ENDS, (found.low, found.high, found.standard_error, p, found.kind), strict=True))


def of_problems(connection: Connection, run_ids: Sequence[str], measures: Sequence[Measure]) -> Iterator[Estimate]:
    """Yield the estimates of runs under measures that are Σx/Σy over problems, as far as the runs have the data.

    Runs whose steps were forgotten have no rates; their rows are kept as they were.
    """
    family_of = families(connection, run_ids)
    in_families = {run_id for run_id, _ in family_of}
    by_source: dict[Source, list[Measure]] = defaultdict(list)
    for measure in measures:
        for source in (measure.source, *([measure.by_role] if measure.by_role else [])):
            by_source[source].append(measure)
    for source, members in by_source.items():
        keys = ["run_id", *source.keys]
        values = [
            f"({sql})::DOUBLE AS {name}{place}"
            for place, measure in enumerate(members)
            for name, sql in (("x", measure.x), ("y", measure.y), ("samples", measure.samples or "NULL"))
        ]
        # DuckDB applies this filter before the sources group their rows; IN (SELECT …) would come after, over all runs.
        sql = (
            f"SELECT {', '.join(['problem_id', *keys, *values])} FROM {source.sql} "
            f"WHERE list_contains($run_ids::VARCHAR[], run_id) ORDER BY {', '.join(keys)}, problem_id"
        )
        found = columns(connection, sql, {"run_ids": list(run_ids)})
        for start, end in _groups([found[key] for key in keys]):
            of: dict[str, Any] = {key: found[key][start] for key in keys}
            of = {key: None if value != value else value for key, value in of.items()}
            subject = Subject(**of, group_kind=source.group)
            family = None
            if subject.run_id in in_families:
                names_of = found["problem_id"][start:end].tolist()
                family = np.array([family_of.get((subject.run_id, name)) for name in names_of], dtype=object)
            for place, measure in enumerate(members):
                x, y, samples = (found[f"{name}{place}"][start:end] for name in ("x", "y", "samples"))
                is_kept = np.isfinite(x) & (y > 0)
                if is_kept.any():
                    x, y, samples = x[is_kept], y[is_kept], samples[is_kept]
                    num_samples = int(samples.sum()) if measure.samples else None
                    sums = (float(x.sum()), float(y.sum())) if measure.definition else None
                    interval = measure.method(x, y, None if family is None else family[is_kept].tolist())
                    yield Estimate(subject, measure.name, len(x), interval, num_samples=num_samples, sums=sums)


def _groups(keys: Sequence[NDArray[Any]]) -> Iterator[tuple[int, int]]:
    """Yield where the rows of each group begin and end; keys (rows,) are sorted, and NaN is a value."""
    if len(keys[0]):
        changes = np.zeros(len(keys[0]) - 1, dtype=bool)
        for key in keys:
            is_missing = key != key
            changes |= (key[1:] != key[:-1]) & ~(is_missing[1:] & is_missing[:-1])
        yield from pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(keys[0])])


_STORED = [measure for measure in MEASURES.values() if measure.x is not None and measure.source.is_stored]


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
    SELECT run_id, CASE WHEN is_greedy THEN 1 ELSE samples END AS first FROM run
)
"""
_PROBLEMS = f"""{_RESULT}, counted AS (
    SELECT run_id, grader_version, problem_index, level, family, count(*) AS samples,
        count(*) FILTER (verdict = 'correct') AS correct, count(*) FILTER (has_result) AS results,
        count(*) FILTER (has_result AND verdict = 'correct') AS right,
        count(*) FILTER (has_result AND sample_index < first) AS first_results,
        count(*) FILTER (has_result AND sample_index < first AND verdict = 'correct') AS first_right
    FROM result JOIN problem USING (run_id, problem_id) JOIN first_samples USING (run_id) GROUP BY ALL
)
SELECT run_id, grader_version, list(level ORDER BY problem_index) AS levels,
    list(family ORDER BY problem_index) AS families,
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
    any_value(family) AS family,
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
    counts = _Counts(np.array(row["families"], dtype=object), *(_counts(row[name]) for name in names))
    spreads = not row["is_greedy"]
    yield from _both(subject, "pass_at_1", counts, spreads=spreads)
    levels = row["levels"]
    assert isinstance(levels, list)
    for level in sorted(set(levels), key=lambda name: (name is not None, name)):
        group = Subject(subject.run_id, version, group_kind="level", group_value=level)
        of_level = counts.at(np.array([name == level for name in levels]))
        yield from _both(group, "accuracy", of_level, spreads=spreads)
    for k in range(1, int(counts.first_results.max()) + 1):
        enough = counts.at(counts.first_results >= k)
        solved = pass_at_k(enough.first_right, enough.first_results, k)
        if k == 1:
            solved = np.asarray(enough.first_right / enough.first_results, dtype=float)
        num_samples = int(enough.first_results.sum())
        yield Estimate(subject, "pass_at_k", len(solved), mean(solved, enough.family.tolist()), k, num_samples)


@dataclass(frozen=True)
class _Counts:
    """Samples by problem; all (n,)."""

    family: NDArray[np.object_]
    samples: Counts
    correct: Counts
    results: Counts
    """Samples that have a result."""
    right: Counts
    """Those of them that are correct."""
    first_results: Counts
    """Those of the samples with a result that pass@k is over: all; of a greedy run, which repeats the first, one."""
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
    result = mean(present.scores, present.family.tolist()) if len(present.scores) else None
    on_these = mean_on_these(present.right, present.results) if result and spreads else None
    total, num_results = int(counts.samples.sum()), int(counts.results.sum())
    whole, of_whole = result, on_these
    if whole is None or num_results < total:
        whole = Interval(float(np.mean(counts.correct / counts.samples)), None, None, None, "none: samples are missing")
        of_whole = None
    yield Estimate(subject, metric, len(counts.samples), whole, most, total, total - num_results, on_these=of_whole)
    if result is not None:
        missing = total - num_results
        n = len(present.scores)
        yield Estimate(subject, f"graded_{metric}", n, result, most, num_results, missing, on_these=on_these)


def _majority(subject: Subject, ballots: Sequence[Mapping[str, object]]) -> Estimate:
    """Return maj@k of all samples."""
    k = int(str(ballots[0]["k"]))
    scores = []
    for ballot in ballots:
        votes, is_right = ballot["votes"], ballot["is_right"]
        assert isinstance(votes, list)
        assert isinstance(is_right, list)
        scores.append(maj_at_k(votes, is_right, int(str(ballot["abstained"])), k))
    family = [None if ballot["family"] is None else str(ballot["family"]) for ballot in ballots]
    return Estimate(subject, "maj_at_k", len(scores), mean(np.array(scores), family), k, k * len(scores))


def _counts(values: object) -> Counts:
    assert isinstance(values, list)
    return np.array(values, dtype=np.int64)


_TIMED = """
SELECT DISTINCT run_id FROM timing_sample WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) ORDER BY run_id
"""


def alone(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the mean latency with one sample in flight of runs with timing samples."""
    for row in rows(connection, _TIMED, {"run_ids": list(run_ids)}):
        run = latency_at_one.read(connection, row["run_id"])
        if run is not None:
            found = run.mean()
            n, interval = len(run.families), mean_interval(found)
            yield Estimate(Subject(run.run_id), latency_at_one.MEAN, n, interval, num_samples=found.num_samples)


_FULL_SLOTS = f"""
WITH worked AS (
    SELECT sample.run_id, sample.attempt_id, problem_id, concurrency AS slots, epoch(started_at) AS began_at,
        began_at + sample.latency_seconds AS ended_at, num_attempts, timed.emitted_tokens
    FROM sample JOIN run USING (run_id) LEFT JOIN timed_sample AS timed USING (run_id, sample_id, problem_id)
    WHERE list_contains($run_ids::VARCHAR[], run_id) AND stop_reason IS NOT NULL
), filled AS (
    SELECT run_id, attempt_id, list_sort(list(began_at))[any_value(slots)] AS since,
        list_sort(list(ended_at))[count(*) - any_value(slots) + 1] AS until
    FROM worked GROUP BY ALL
    HAVING count(*) >= {SAMPLES_PER_SLOT} * any_value(slots) AND bool_and(num_attempts = 1 AND ended_at IS NOT NULL)
), part AS (
    SELECT worked.*, until - since AS seconds,
        greatest(least(ended_at, until) - greatest(began_at, since), 0) / nullif(ended_at - began_at, 0) AS share
    FROM worked JOIN filled USING (run_id, attempt_id) WHERE until > since
)
SELECT run_id, count(DISTINCT problem_id) AS n, count(*) AS num_samples,
    exact_sum(CASE WHEN emitted_tokens IS NULL THEN 0 ELSE share END) AS samples,
    exact_sum(share * coalesce(emitted_tokens, 0)) AS tokens,
    (SELECT exact_sum(until - since) FROM filled WHERE filled.run_id = part.run_id AND until > since) AS seconds
FROM part GROUP BY run_id ORDER BY run_id
"""
"""The slots are full from the start of as many samples until the first end after which fewer are left."""


def throughputs(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the throughput of runs whose workers had enough samples."""
    for row in rows(connection, _FULL_SLOTS, {"run_ids": list(run_ids)}):
        for name, count in (("samples_per_second", row["samples"]), ("emitted_tokens_per_second", row["tokens"])):
            rate = Interval(count / row["seconds"], None, None, None, "none: one number of a run")
            yield Estimate(Subject(row["run_id"]), name, row["n"], rate, num_samples=row["num_samples"])


_FAMILY = """
SELECT run_id, list(family ORDER BY problem_index) AS family FROM problem
WHERE list_contains($run_ids::VARCHAR[], run_id) GROUP BY run_id
"""
_RATED = """
SELECT DISTINCT run_id, grader_version, kind FROM rating_total
WHERE list_contains($run_ids::VARCHAR[], run_id) ORDER BY ALL
"""
_RATINGS = """
SELECT problem_index, sample_index, graded.verdict = 'correct' AS is_right,
    CASE WHEN decision_kind IN ('choice', 'score') THEN round(decision_value, 2)
        WHEN decision_accepts_below THEN -rounded(decision_value) ELSE rounded(decision_value) END AS rating
FROM (FROM step WHERE run_id = $run_id AND decision_kind = $kind) AS step
JOIN (FROM graded_sample WHERE run_id = $run_id AND grader_version = $grader_version AND graded) AS graded
    USING (sample_id)
JOIN (FROM problem WHERE run_id = $run_id) AS problem USING (problem_id)
WHERE isfinite(decision_value) AND (decision_kind <> 'score' OR isfinite(verdict_expected_score))
"""


def judges(connection: Connection, run_ids: Sequence[str]) -> Iterator[Estimate]:
    """Yield the rows of runs, of every grader version and kind of decision.

    Of a decision that accepts low numbers the negative is rated, so that a higher value always speaks for the draft.
    """
    outcomes = {str(row["run_id"]): row["family"] for row in rows(connection, _FAMILY, {"run_ids": list(run_ids)})}
    for row in rows(connection, _RATED, {"run_ids": list(run_ids)}):
        found = columns(connection, _RATINGS, row)
        numbers = family_numbers(outcomes[row["run_id"]])
        problem, sample = found["problem_index"], found["sample_index"]
        sample = problem.astype(np.int64) * (int(sample.max()) + 1) + sample
        family = None if numbers is None else numbers[problem]
        area = auroc(found["rating"], found["is_right"], sample, problem, family)
        subject = Subject(row["run_id"], row["grader_version"], group_kind="kind", group_value=row["kind"])
        yield Estimate(subject, "judge_auroc", len(np.unique(problem)), area)


_POINTS = """
SELECT probe.*, grader_version, problem.text AS problem_text, family
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
    yield Estimate(subject, "probe_auroc", n, area, num_samples=len(points))
    for third in sorted({int(one) for one in points.third}):
        of_third = replace(subject, group_kind="third", group_value=str(third))
        yield from _rates(of_third, points.where(points.third == third))
    sign = -1.0 if found[0]["accepts_below"] else 1.0
    for threshold in _thresholds(str(found[0]["kind"]), points):
        accepted = points.rating >= threshold
        at = replace(subject, group_kind="threshold", group_value=f"{sign * threshold:g}")
        yield from _rates(at, points, accepted)


def _rates(subject: Subject, points: Points, accepted: probes.Flags | None = None) -> Iterator[Estimate]:
    found = probes.rates(points, accepted)
    n = len(np.unique(points.problem))
    for name in ("false_acceptance", "false_rejection", "loss_of_accepted", "loss_of_refused"):
        interval = getattr(found, name)
        yield Estimate(subject, f"probe_{name}", n, interval, num_samples=len(points))


def _points(found: Sequence[Mapping[str, object]]) -> Points:
    texts = [str(row["problem_text"]) for row in found]
    families = [text if row["family"] is None else str(row["family"]) for text, row in zip(texts, found, strict=True)]
    ratings = [float("nan") if row["value"] is None else float(str(row["value"])) for row in found]
    signs = [-1.0 if row["accepts_below"] else 1.0 for row in found]

    def counts(name: str) -> probes.Numbers:
        return np.array([int(str(row[name])) for row in found])

    return Points(
        problem=np.unique(texts, return_inverse=True)[1],
        family=np.unique(families, return_inverse=True)[1],
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


DISTANCE = "distance_from_target"
_NEW_PAIRS = f"""
CREATE OR REPLACE TEMP TABLE pair AS SELECT DISTINCT run_id, baseline_run_id FROM distance_baseline;
DELETE FROM estimate WHERE measure = '{DISTANCE}' AND (run_id, baseline_run_id) NOT IN (FROM pair);
DELETE FROM interval WHERE estimate NOT IN (SELECT id FROM estimate);
CREATE OR REPLACE TEMP TABLE new_pair AS
FROM pair ANTI JOIN (SELECT run_id, baseline_run_id FROM estimate WHERE measure = '{DISTANCE}') AS known
    USING (run_id, baseline_run_id)
"""
_DIFFERENCES = """
WITH planned AS (
    SELECT run_id, sample_id, sample_index, family, problem_id || ' ' || content_hash AS problem
    FROM sample JOIN problem USING (run_id, problem_id)
    WHERE run_id IN (SELECT run_id FROM new_pair UNION SELECT baseline_run_id FROM new_pair)
), chain AS (
    SELECT planned.*, -logprob / num_tokens AS nats
    FROM planned LEFT JOIN sample_target_logprob USING (run_id, sample_id)
), side AS (
    SELECT *, true AS is_own, run_id AS own_id, baseline_run_id AS other_id FROM new_pair
    UNION ALL SELECT *, false, baseline_run_id, run_id FROM new_pair
), mean AS (
    SELECT side.run_id, side.baseline_run_id, is_own, chain.problem, any_value(family) AS family,
        exact_sum(nats) / count(*) AS nats
    FROM side JOIN chain ON chain.run_id = side.own_id AND chain.nats IS NOT NULL
    WHERE NOT EXISTS ( -- a sample that the other run has planned and that is not scored there
        FROM chain AS theirs WHERE theirs.run_id = side.other_id AND theirs.problem = chain.problem
            AND theirs.sample_index = chain.sample_index AND theirs.nats IS NULL)
    GROUP BY ALL
)
SELECT run_id, baseline_run_id, list(own.nats - base.nats ORDER BY problem) AS differences,
    list(coalesce(own.family, base.family) ORDER BY problem) AS family
FROM (FROM mean WHERE is_own) AS own JOIN (FROM mean WHERE NOT is_own) AS base USING (run_id, baseline_run_id, problem)
GROUP BY ALL ORDER BY ALL
"""


def bring_distances_up_to_date(connection: Connection) -> None:
    """Make the rows of pairs of runs those of the database as it is."""
    connection.execute(_NEW_PAIRS)
    if connection.execute("SELECT 1 FROM new_pair LIMIT 1").fetchall():
        insert(connection, [_of_pair(row) for row in rows(connection, _DIFFERENCES)])


def _of_pair(row: Record) -> Estimate:
    differences = np.array(row["differences"], dtype=np.float64)
    subject = Subject(str(row["run_id"]), baseline_run_id=str(row["baseline_run_id"]))
    return Estimate(subject, DISTANCE, len(differences), mean_t(differences, row["family"]))


_STALE = """
CREATE OR REPLACE TEMP TABLE pair AS
SELECT DISTINCT run_id, baseline_run_id, own.repeats, base.repeats AS repeats_of_baseline
FROM comparable_baseline JOIN run_repeats AS own USING (run_id)
JOIN run_repeats AS base ON base.run_id = baseline_run_id;
CREATE OR REPLACE TEMP TABLE new_pair AS
FROM pair WHERE list_has_any(repeats, $loaded) OR list_has_any(repeats_of_baseline, $loaded)
    OR pair NOT IN (SELECT timed_pair FROM timed_pair);
DELETE FROM timed_pair WHERE (run_id, baseline_run_id) NOT IN (SELECT (run_id, baseline_run_id) FROM pair)
    OR (run_id, baseline_run_id) IN (SELECT (run_id, baseline_run_id) FROM new_pair);
DELETE FROM estimate WHERE baseline_run_id IS NOT NULL AND measure <> 'distance_from_target'
    AND (run_id, baseline_run_id) NOT IN (SELECT (run_id, baseline_run_id) FROM timed_pair);
DELETE FROM interval WHERE estimate NOT IN (SELECT id FROM estimate);
INSERT INTO timed_pair FROM new_pair
"""
_NEW_PAIRS_OF_TIMES = "FROM new_pair ORDER BY repeats_of_baseline, repeats, run_id, baseline_run_id"


def bring_speed_ups_up_to_date(connection: Connection, loaded: Sequence[str]) -> None:
    """Make the rows of pairs of runs those of the database as it is; `loaded`: the runs that were loaded just now."""
    for statement in _STALE.split(";"):
        connection.execute(statement, {"loaded": list(loaded)} if "$loaded" in statement else None)
    pairs = rows(connection, _NEW_PAIRS_OF_TIMES)
    for start in range(0, len(pairs), _RUNS_AT_ONCE):
        insert(connection, list(_of_times(connection, pairs[start : start + _RUNS_AT_ONCE])))
    insert(connection, list(_at_one(connection, pairs)))


def _of_times(connection: Connection, pairs: Sequence[Record]) -> Iterator[Estimate]:
    """Yield the rows of pairs of runs, over all repeats of both."""
    times = read_times(
        connection, sorted({name for pair in pairs for name in (*pair["repeats"], *pair["repeats_of_baseline"])})
    )
    for _, alike in groupby(pairs, key=lambda pair: (pair["repeats"], pair["repeats_of_baseline"])):
        members = list(alike)
        own, base = ([times[name] for name in members[0][side]] for side in ("repeats", "repeats_of_baseline"))
        found = timed_pair(own, base)
        if found is None:
            continue
        factor = found.ratio.factor.standard_deviation if found.ratio.factor else None
        speed, length = found.ratio.geometric_mean, found.length_ratio
        for pair in members:
            subject = Subject(pair["run_id"], baseline_run_id=pair["baseline_run_id"])
            yield Estimate(subject, "speed_up", found.n, speed, run_factor=factor)
            yield Estimate(subject, "ratio_of_means", found.n, found.ratio.of_means, run_factor=factor)
            for name, value in (("rate_ratio", speed.estimate * length), ("chain_length_ratio", length)):
                yield Estimate(subject, name, found.n, Interval(value, None, None, None, "none"))


def _at_one(connection: Connection, pairs: Sequence[Record]) -> Iterator[Estimate]:
    """Yield the rows of the pairs of which both runs have timing samples."""
    runs: dict[str, TimedRun | None] = {}
    for pair in pairs:
        names = str(pair["run_id"]), str(pair["baseline_run_id"])
        for name in names:
            runs[name] = runs[name] if name in runs else latency_at_one.read(connection, name)
        own, base = (runs[name] for name in names)
        found = latency_at_one.speed_up(own, base) if own and base else None
        if found is not None:
            subject = Subject(names[0], baseline_run_id=names[1])
            yield Estimate(subject, latency_at_one.SPEED_UP, found.n, found.ratio)


_RUNS_AT_ONCE = 50
"""Runs whose problems are in memory together."""
_WITHOUT = """
SELECT run_id FROM run ANTI JOIN (FROM estimate WHERE measure = 'pass_at_1') AS known USING (run_id) ORDER BY run_id
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
                    *of_problems(connection, some, _STORED),
                    *alone(connection, some),
                    *throughputs(connection, some),
                    *probed(connection, some),
                ],
            )
        bring_speed_ups_up_to_date(connection, run_ids)
        bring_distances_up_to_date(connection)
