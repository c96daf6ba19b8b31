"""pass@1, accuracy by level, pass@k and maj@k of runs, for every grader version and for none.

A sample has a result as `comparison.outcomes` says: it is finished and graded. An error needs no grade, unless that
version has other samples of the run left to grade.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from warehouse.database import Connection, Record, rows
from warehouse.estimates.row import Estimate, Subject
from warehouse.statistics.bounded import accuracy
from warehouse.statistics.intervals import Counts, Floats, Interval, rerun_standard_error
from warehouse.statistics.samples import maj_at_k, pass_at_k

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


def _of_version(row: Record) -> Iterator[Estimate]:
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


def _majority(subject: Subject, ballots: Sequence[Record]) -> Estimate:
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
