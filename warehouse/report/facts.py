"""The data of a report, read from the views: a `RunFacts` per run, and the flips of every pair of runs.

What figures show is read by the statements of `queries`, which the page has too. Estimates with intervals are rows of
the table `estimate`, over problems (one problem is one observation).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.plural import counted
from warehouse.database import Connection, Record, rows
from warehouse.labels import labels
from warehouse.probed import found
from warehouse.report import queries
from warehouse.summary import RunSummary, summaries

_P95 = "SELECT p95_seconds FROM latency WHERE run_id = $run_id"
_RERUN = """
SELECT rerun_standard_error FROM counted_estimate WHERE run_id = $run_id AND metric = 'graded_pass_at_1'
"""
# An attempt is recorded once its engines are up, so their start-up time is added. Runs of a suite share starts: each
# counts for the first attempt that used it, of those in the database, so that none is counted twice or lost.
_COST = """
WITH use AS (
    SELECT attempt_id, run_id, started_at, json_extract_string(engines, '$.' || role || '.engine_start') AS start_id,
        TRY_CAST(json_extract_string(engines, '$.' || role || '.engine_start_seconds') AS DOUBLE) AS seconds
    FROM attempt, (VALUES ('draft'), ('target'), ('reward')) AS used(role)
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
_PROBLEMS = "SELECT problem_id, content_hash FROM problem WHERE run_id = $run_id ORDER BY problem_index"
_PROBES = """
SELECT run_id FROM run SEMI JOIN (FROM probe_point WHERE source_run_id = $run_id) AS point USING (run_id)
ORDER BY created_at DESC, run_id
"""
_SCORES = """
SELECT problem_id, content_hash, graded_score AS score FROM problem_score JOIN problem USING (run_id, problem_id)
WHERE run_id = $run_id AND num_graded > 0
"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval over n problems; no interval if n < 2."""

    value: float
    n: int
    low: float | None
    high: float | None

    def clipped(self, highest: float = math.inf) -> tuple[float, float] | None:
        """Return both ends of the interval, limited to 0 to `highest`; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return max(0.0, self.low), min(highest, self.high)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Share of decisions that accepted a candidate at one step of the chain."""

    step_index: int
    num_decisions: int
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
    conditions: Record
    """The run's specification and environment, by column name."""
    rerun_standard_error: float | None
    fallback: Estimate | None
    latency: Estimate | None
    p95_seconds: float | None
    latency_parts: Mapping[str, float]
    """Seconds per sample by part; they sum to the mean latency."""
    acceptance: Sequence[Acceptance]
    """In the order of the steps."""
    costs: Sequence[Cost]
    scores: Mapping[tuple[str, str], float]
    """Share of graded samples that are correct, by problem id and content hash."""
    place: int = 0
    """Index of the run in the report."""
    problems: frozenset[tuple[str, str]] = frozenset()
    """Id and content hash of the planned problems."""
    probe: Record | None = None
    """What the newest probe of the run found (warehouse.probed.found); None: there is none."""
    num_probes: int = 0
    """How many probes of it the database has: with other points or continuations it is another one."""

    @property
    def is_graded(self) -> bool:
        """True if any sample has a grade; without one, an accuracy of zero is not a result."""
        return self.summary.result is not None


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
    run_summaries, drawn = summaries(connection, run_ids), _Drawn(connection, run_ids)
    named = zip(run_summaries, labels(run_summaries), strict=True)
    return [_facts(connection, drawn, summary, label, place) for place, (summary, label) in enumerate(named)]


def flips(runs: Sequence[RunFacts]) -> list[Flips]:
    """Count the flips of every pair of runs that share a problem, by id and content, with graded samples of both."""
    counts = []
    for first, second in itertools.combinations(range(len(runs)), 2):
        own, other = runs[first], runs[second]
        pairs = [(score, other.scores[key]) for key, score in own.scores.items() if key in other.scores]
        if pairs:
            only_first = sum(a > 0.5 > b for a, b in pairs)
            only_second = sum(a < 0.5 < b for a, b in pairs)
            counts.append(Flips(first, second, len(pairs), only_first, only_second))
    return counts


class _Drawn:
    """Rows of the statements behind the figures, by run."""

    def __init__(self, connection: Connection, run_ids: Sequence[str]) -> None:
        def by_run(statement: str) -> dict[str, list[dict[str, Any]]]:
            read: dict[str, list[dict[str, Any]]] = {run_id: [] for run_id in run_ids}
            for row in rows(connection, statement, {"run_ids": list(run_ids)}):
                read[str(row.pop("run_id"))].append(row)
            return read

        self.fallback = by_run(queries.FALLBACK)
        self.acceptance = by_run(queries.ACCEPTANCE)
        self.latency = by_run(queries.LATENCY)
        self.latency_parts = by_run(queries.LATENCY_PARTS)


def costs(connection: Connection, run_id: str) -> list[Cost]:
    """Return what a run took of each kind of device; empty where its attempts have no times."""
    found: list[dict[str, Any]] = rows(connection, _COST, {"run_id": run_id})
    return [Cost(**row) for row in found]


def _facts(connection: Connection, drawn: _Drawn, summary: RunSummary, label: str, place: int) -> RunFacts:
    def select(sql: str) -> list[dict[str, Any]]:
        return rows(connection, sql, {"run_id": summary.run_id})

    def estimate(estimates: Sequence[Record]) -> Estimate | None:
        return Estimate(**estimates[0]) if estimates else None

    run_id = summary.run_id
    [conditions] = select(_CONDITIONS)
    rerun = select(_RERUN)
    p95, probes = select(_P95), select(_PROBES)
    acceptance = [
        Acceptance(row["step_index"], row["num_decisions"], Estimate(row["value"], row["n"], row["low"], row["high"]))
        for row in drawn.acceptance[run_id]
    ]
    return RunFacts(
        label=label,
        summary=summary,
        conditions=conditions,
        rerun_standard_error=rerun[0]["rerun_standard_error"] if rerun else None,
        fallback=estimate(drawn.fallback[run_id]),
        latency=estimate(drawn.latency[run_id]),
        p95_seconds=p95[0]["p95_seconds"] if p95 else None,
        latency_parts={row["part"]: row["seconds_per_sample"] for row in drawn.latency_parts[run_id]},
        acceptance=acceptance,
        costs=costs(connection, run_id),
        scores={(row["problem_id"], row["content_hash"]): row["score"] for row in select(_SCORES)},
        place=place,
        problems=frozenset((row["problem_id"], row["content_hash"]) for row in select(_PROBLEMS)),
        probe=found(connection, str(probes[0]["run_id"])) if probes else None,
        num_probes=len(probes),
    )


def dataset_titles(runs: Sequence[RunFacts]) -> list[str]:
    """Return the title that each own dataset's TOML file gives, and otherwise the dataset's name, each once, sorted."""
    return sorted({run.conditions["dataset_title"] or run.summary.dataset for run in runs})


def titled_datasets(runs: Sequence[RunFacts]) -> list[str]:
    """Return the name of each dataset, with the titles that TOML files give it behind it in brackets, sorted."""
    titles: dict[str, set[str]] = {}
    for run in runs:
        titles.setdefault(run.summary.dataset, set()).update(filter(None, [run.conditions["dataset_title"]]))
    return [f"{name} ({'; '.join(sorted(titles[name]))})" if titles[name] else name for name in sorted(titles)]


def by_regime(runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Return the runs by regime, latency first; all of them as one group unless each regime has runs to compare."""
    regimes: dict[str, list[RunFacts]] = {}
    for run in sorted(runs, key=lambda run: run.summary.regime != "latency"):
        regimes.setdefault(run.summary.regime, []).append(run)
    if any(len(group) < 2 for group in regimes.values()):
        return {"": list(runs)}
    return regimes


def over_the_same_problems(runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Return the runs in groups over the same problems, by a short name of these; a figure has one group's runs."""
    groups: dict[frozenset[tuple[str, str]], list[RunFacts]] = {}
    for run in runs:
        groups.setdefault(run.problems, []).append(run)
    named: dict[str, list[RunFacts]] = {}
    for problems, members in groups.items():
        name = f"{members[0].summary.dataset}, {counted(len(problems), 'problem')}"
        if name in named:
            name += f" ({min(problems)[0]}, …)"
        named[name if name not in named else f"{name} {len(named) + 1}"] = members
    return named


def other_problems(runs: Sequence[RunFacts]) -> list[str]:
    """Return a warning for each dataset whose runs, of one regime, are not over the same problems."""
    return [line for group in by_regime(runs).values() for line in _of_one_regime(group)]


def _of_one_regime(runs: Sequence[RunFacts]) -> list[str]:
    lines = []
    for dataset in dict.fromkeys(run.summary.dataset for run in runs):
        groups = over_the_same_problems([run for run in runs if run.summary.dataset == dataset]).values()
        if len(groups) > 1:
            sets = "; ".join(f"{', '.join(r.label for r in group)}: {len(group[0].problems)}" for group in groups)
            shared = len(frozenset.intersection(*(group[0].problems for group in groups)))
            lines.append(
                f"OTHER PROBLEMS: not all runs on {dataset} are over the same problems ({sets}; {shared} in all). "
                "Each has figures beside runs over the same problems only; results in one table are not comparable."
            )
    return lines
