"""The data of a report, read from the views: a `RunFacts` per run, and the flips of every pair of runs.

The intervals of rates over verdicts and of means over samples are over problems (one problem is one observation): the
ratio estimator's standard error, Cochran, Sampling Techniques, section 6.4, with Student's t.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from warehouse.database import Connection, rows
from warehouse.labels import labels
from warehouse.summary import RunSummary, summaries

_RATIO = """
    sum(x) / sum(y) AS value, count(*) AS n,
    t_quantile(n - 1) * sqrt(n / (n - 1)
        * (sum(x * x) - 2 * value * sum(x * y) + value * value * sum(y * y))) / sum(y) AS half_width
"""
_SPECULATED = """
WITH placed AS (
    SELECT sample_id, step_index, verdict_kind, verdict_accepted,
        1 + (10 * step_index) // count(*) OVER (PARTITION BY sample_id) AS tenth
    FROM step WHERE run_id = $run_id
), verdict AS (
    SELECT sample.problem_id, placed.* FROM placed
    JOIN sample ON (sample.run_id, sample.sample_id) = ($run_id, placed.sample_id)
    WHERE verdict_kind IS NOT NULL
)"""
_FALLBACK = f"""{_SPECULATED}, problem_sum AS (
    SELECT count(*) FILTER (NOT verdict_accepted)::DOUBLE AS x, count(*)::DOUBLE AS y FROM verdict GROUP BY problem_id
)
SELECT {_RATIO} FROM problem_sum HAVING sum(y) > 0
"""
_ACCEPTANCE = f"""{_SPECULATED}, position AS (
    SELECT problem_id, verdict_accepted, unnest(['tenth', 'step']) AS axis,
        unnest([tenth, step_index])::INTEGER AS position
    FROM verdict
), problem_sum AS (
    SELECT axis, position, problem_id, count(*) FILTER (verdict_accepted)::DOUBLE AS x, count(*)::DOUBLE AS y
    FROM position GROUP BY ALL
)
SELECT axis, position, sum(y)::BIGINT AS num_verdicts, {_RATIO} FROM problem_sum
GROUP BY axis, position ORDER BY axis, position
"""
_LATENCY = """
SELECT avg(latency_seconds) AS value, count(*) AS n,
    t_quantile(n - 1) * stddev_samp(latency_seconds) / sqrt(n) AS half_width
FROM problem_speed WHERE run_id = $run_id HAVING count(*) > 0
"""
_LATENCY_PARTS = """
SELECT part, seconds_per_sample FROM latency_split WHERE run_id = $run_id AND seconds_per_sample IS NOT NULL
"""
_P95 = "SELECT p95_seconds FROM latency WHERE run_id = $run_id"
_RERUN = "SELECT rerun_standard_error FROM pass_at_1 WHERE run_id = $run_id"
# An attempt is recorded once its engines are up, so their start-up time is added. Runs of a suite share starts: each
# counts for the first attempt that used it, of those in the database, so that none is counted twice or lost.
_COST = """
WITH use AS (
    SELECT attempt_id, run_id, started_at, json_extract_string(engines, '$.' || role || '.engine_start') AS start_id,
        TRY_CAST(json_extract_string(engines, '$.' || role || '.engine_start_seconds') AS DOUBLE) AS seconds
    FROM attempt, (VALUES ('draft'), ('target')) AS used(role)
), startup AS (
    SELECT run_id, attempt_id, sum(CASE WHEN place = 1 THEN seconds ELSE 0 END) AS seconds FROM (
        SELECT *, row_number() OVER (PARTITION BY start_id ORDER BY started_at, run_id, attempt_id) AS place
        FROM use WHERE start_id IS NOT NULL
    ) GROUP BY ALL
), ended AS (
    SELECT sample.attempt_id,
        max(call.submitted_at + to_microseconds((call.end_seconds * 1e6)::BIGINT)) AS ended_at
    FROM call JOIN sample USING (run_id, sample_id) WHERE run_id = $run_id GROUP BY ALL
)
SELECT device, count(*) AS num_attempts, sum(num_devices * seconds) / 3600 AS device_hours FROM (
    SELECT attempt.device, attempt.num_devices, greatest(0, epoch(ended.ended_at - attempt.started_at))
        + coalesce(startup.seconds,
            TRY_CAST(json_extract_string(attempt.engines, '$.startup_seconds') AS DOUBLE), 0) AS seconds
    FROM attempt JOIN ended USING (attempt_id) LEFT JOIN startup USING (run_id, attempt_id)
    WHERE run_id = $run_id AND device IS NOT NULL AND started_at IS NOT NULL
) GROUP BY device ORDER BY device
"""
_CONDITIONS = """
SELECT run.* EXCLUDE (params, folder), run_conditions.devices, run_conditions.device_kinds, run_conditions.num_workers,
    run_conditions.versions, run_conditions.regime,
    (SELECT string_agg(DISTINCT git_commit[:10], ', ' ORDER BY git_commit[:10]) FROM attempt
        WHERE attempt.run_id = $run_id) AS git_commits,
    (SELECT string_agg(code_hash, ', ' ORDER BY code_hash) FROM run_code
        WHERE run_code.run_id = $run_id AND (is_mixed OR code_hash <> 'unknown')) AS code_hashes,
    (SELECT count(DISTINCT hostname) FROM attempt WHERE attempt.run_id = $run_id) AS num_nodes
FROM run JOIN run_conditions USING (run_id) WHERE run.run_id = $run_id
"""
_SCORES = """
SELECT problem_id, content_hash, graded_score AS score FROM problem_score JOIN problem USING (run_id, problem_id)
WHERE run_id = $run_id AND num_graded > 0
"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % t interval over n problems; no interval if n < 2."""

    value: float
    n: int
    half_width: float | None

    @property
    def low(self) -> float | None:
        """Lower end of the interval."""
        return None if self.half_width is None else self.value - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end of the interval."""
        return None if self.half_width is None else self.value + self.half_width

    def clipped(self, highest: float = math.inf) -> tuple[float, float] | None:
        """Return both ends of the interval, limited to 0 to `highest`; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return max(0.0, self.low), min(highest, self.high)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Share of verdicts that accepted a candidate at one position in the chain."""

    position: int
    num_verdicts: int
    rate: Estimate


@dataclass(frozen=True, slots=True)
class Cost:
    """Time for which a run held devices of one kind."""

    device: str
    num_attempts: int
    device_hours: float


@dataclass(frozen=True, slots=True)
class RunFacts:
    """Data of one run. Shares are fractions, times are in seconds."""

    label: str
    """Short name, unique in the report."""
    summary: RunSummary
    conditions: Mapping[str, Any]
    """The run's specification and environment, by column name."""
    rerun_standard_error: float | None
    fallback: Estimate | None
    latency: Estimate | None
    p95_seconds: float | None
    latency_parts: Mapping[str, float]
    """Seconds per sample by part; they sum to the mean latency."""
    acceptance: Mapping[str, Sequence[Acceptance]]
    """Acceptance by axis: "tenth" (of the chain, 1 to 10) and "step" (index from 0)."""
    costs: Sequence[Cost]
    scores: Mapping[tuple[str, str], float]
    """Share of graded samples that are correct, by problem id and content hash."""

    @property
    def is_graded(self) -> bool:
        """True if any sample has a grade; without one, an accuracy of zero is not a result."""
        return self.summary.graded_pass_at_1 is not None


@dataclass(frozen=True, slots=True)
class Flips:
    """Numbers of problems with opposite outcomes under two runs.

    A problem is right if more than half of its graded samples are correct, and wrong if fewer than half are.
    """

    first: int
    """Index of the first run in the report."""
    second: int
    """Index of the second run in the report."""
    num_shared: int
    """Number of problems with graded samples of both runs."""
    only_first: int
    """Number of problems right under the first run and wrong under the second."""
    only_second: int
    """Number of problems right under the second run and wrong under the first."""


def report_facts(connection: Connection, run_ids: Sequence[str]) -> list[RunFacts]:
    """Read the data of runs, in the order of their ids. Raises UnknownRun."""
    run_summaries = summaries(connection, run_ids)
    return [_facts(connection, s, label) for s, label in zip(run_summaries, labels(run_summaries), strict=True)]


def flips(runs: Sequence[RunFacts]) -> list[Flips]:
    """Count the flips of every pair of runs over the same problems that share a problem with graded samples."""
    counts = []
    for first, second in itertools.combinations(range(len(runs)), 2):
        own, other = runs[first], runs[second]
        pairs = [(score, other.scores[key]) for key, score in own.scores.items() if key in other.scores]
        if pairs and own.conditions["dataset_hash"] == other.conditions["dataset_hash"]:
            only_first = sum(a > 0.5 > b for a, b in pairs)
            only_second = sum(a < 0.5 < b for a, b in pairs)
            counts.append(Flips(first, second, len(pairs), only_first, only_second))
    return counts


def _facts(connection: Connection, summary: RunSummary, label: str) -> RunFacts:
    def select(sql: str) -> list[dict[str, Any]]:
        return rows(connection, sql, {"run_id": summary.run_id})

    def estimate(sql: str) -> Estimate | None:
        estimates = select(sql)
        return Estimate(**estimates[0]) if estimates else None

    [conditions] = select(_CONDITIONS)
    [rerun] = select(_RERUN)
    p95 = select(_P95)
    acceptance: dict[str, list[Acceptance]] = {}
    for row in select(_ACCEPTANCE):
        rate = Estimate(row["value"], row["n"], row["half_width"])
        acceptance.setdefault(row["axis"], []).append(Acceptance(row["position"], row["num_verdicts"], rate))
    return RunFacts(
        label=label,
        summary=summary,
        conditions=conditions,
        rerun_standard_error=rerun["rerun_standard_error"],
        fallback=estimate(_FALLBACK),
        latency=estimate(_LATENCY),
        p95_seconds=p95[0]["p95_seconds"] if p95 else None,
        latency_parts={row["part"]: row["seconds_per_sample"] for row in select(_LATENCY_PARTS)},
        acceptance=acceptance,
        costs=[Cost(**row) for row in select(_COST)],
        scores={(row["problem_id"], row["content_hash"]): row["score"] for row in select(_SCORES)},
    )
