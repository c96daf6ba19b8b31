"""What a report says, from the views: one `RunFacts` per run, and the flips of every pair of runs.

Rates over verdicts and means over samples get their interval from the spread between problems (one problem is one
observation): the ratio estimator's standard error, Cochran, Sampling Techniques, section 6.4, with Student's t.
"""

from __future__ import annotations

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
# An attempt is written down once its engines are up, so their start-up is added.
_COST = """
WITH ended AS (
    SELECT sample.attempt_id,
        max(call.submitted_at + to_microseconds((call.end_seconds * 1e6)::BIGINT)) AS ended_at
    FROM call JOIN sample USING (run_id, sample_id) WHERE run_id = $run_id GROUP BY ALL
)
SELECT device, count(*) AS num_attempts, sum(num_devices * seconds) / 3600 AS device_hours FROM (
    SELECT attempt.device, attempt.num_devices, greatest(0, epoch(ended.ended_at - attempt.started_at))
        + coalesce(TRY_CAST(json_extract_string(attempt.engines, '$.startup_seconds') AS DOUBLE), 0) AS seconds
    FROM attempt JOIN ended USING (attempt_id)
    WHERE run_id = $run_id AND device IS NOT NULL AND started_at IS NOT NULL
) GROUP BY device ORDER BY device
"""
_CONDITIONS = """
SELECT run.* EXCLUDE (params, folder), run_conditions.devices, run_conditions.num_workers,
    run_conditions.versions, run_conditions.regime,
    (SELECT string_agg(DISTINCT git_commit[:10], ', ' ORDER BY git_commit[:10]) FROM attempt
        WHERE attempt.run_id = $run_id) AS git_commits,
    (SELECT count(DISTINCT hostname) FROM attempt WHERE attempt.run_id = $run_id) AS num_nodes
FROM run JOIN run_conditions USING (run_id) WHERE run.run_id = $run_id
"""
_SCORES = """
SELECT problem_id, content_hash, graded_score AS score FROM problem_score JOIN problem USING (run_id, problem_id)
WHERE run_id = $run_id AND num_graded > 0
"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % t interval over n problems; no interval where n < 2."""

    value: float
    n: int
    half_width: float | None

    @property
    def low(self) -> float | None:
        """Lower end."""
        return None if self.half_width is None else self.value - self.half_width

    @property
    def high(self) -> float | None:
        """Upper end."""
        return None if self.half_width is None else self.value + self.half_width


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Share of verdicts that accepted a candidate at one place of the chain."""

    position: int
    num_verdicts: int
    rate: Estimate


@dataclass(frozen=True, slots=True)
class Cost:
    """Time of one kind of device that a run held."""

    device: str
    num_attempts: int
    device_hours: float


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One run as a report shows it. Shares are fractions, times are seconds."""

    label: str
    """Short and unlike any other label of the report."""
    summary: RunSummary
    conditions: Mapping[str, Any]
    """The run's specification and what its times depend on, by column name."""
    rerun_standard_error: float | None
    fallback: Estimate | None
    latency: Estimate | None
    p95_seconds: float | None
    latency_parts: Mapping[str, float]
    """Seconds a sample by part; they sum to the mean latency."""
    acceptance: Mapping[str, Sequence[Acceptance]]
    """By axis: tenth (of the chain, 1 to 10), step (index from 0)."""
    costs: Sequence[Cost]
    scores: Mapping[tuple[str, str], float]
    """By problem id and content hash, the share of graded samples that are correct."""

    @property
    def is_graded(self) -> bool:
        """Whether any sample has a grade; without one an accuracy of zero would say nothing."""
        return self.summary.graded_pass_at_1 is not None


@dataclass(frozen=True, slots=True)
class Flips:
    """Problems that two runs both have graded samples of. Right: more than half of these are correct; wrong: fewer."""

    first: int
    second: int
    """Places of the two runs in the report."""
    num_shared: int
    only_first: int
    """Right under the first run, wrong under the second."""
    only_second: int


def report_facts(connection: Connection, run_ids: Sequence[str]) -> list[RunFacts]:
    """The facts of runs, in the order asked. Raises UnknownRun."""
    found = summaries(connection, run_ids)
    return [_facts(connection, s, label) for s, label in zip(found, labels(found), strict=True)]


def flips(runs: Sequence[RunFacts]) -> list[Flips]:
    """Of every pair of runs over the same problems with a graded one in common."""
    found = []
    for first, one in enumerate(runs):
        for second in range(first + 1, len(runs)):
            pairs = [(s, runs[second].scores[key]) for key, s in one.scores.items() if key in runs[second].scores]
            if pairs and one.conditions["dataset_hash"] == runs[second].conditions["dataset_hash"]:
                only_first = sum(a > 0.5 > b for a, b in pairs)
                only_second = sum(a < 0.5 < b for a, b in pairs)
                found.append(Flips(first, second, len(pairs), only_first, only_second))
    return found


def _facts(connection: Connection, summary: RunSummary, label: str) -> RunFacts:
    def ask(sql: str) -> list[dict[str, Any]]:
        return rows(connection, sql, {"run_id": summary.run_id})

    def estimate(sql: str) -> Estimate | None:
        found = ask(sql)
        return Estimate(**found[0]) if found else None

    [conditions] = ask(_CONDITIONS)
    [rerun] = ask(_RERUN)
    p95 = ask(_P95)
    acceptance: dict[str, list[Acceptance]] = {}
    for row in ask(_ACCEPTANCE):
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
        latency_parts={row["part"]: row["seconds_per_sample"] for row in ask(_LATENCY_PARTS)},
        acceptance=acceptance,
        costs=[Cost(**row) for row in ask(_COST)],
        scores={(row["problem_id"], row["content_hash"]): row["score"] for row in ask(_SCORES)},
    )
