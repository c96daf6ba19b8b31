"""Read from the warehouse what `metrics` judges: one value per run and metric, and each run's speed-up in its night.

Every sum is over integers or in a fixed order, so that a database which was rebuilt gives the same values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from warehouse.database import Connection, rows
from warehouse.nightly.metrics import (
    CACHE_HITS,
    CRITICAL_PATH,
    DRAFT_SHARE,
    FALLBACK,
    SPEED_UP,
    SPENT,
    TOKEN_TIME,
    TRUNCATED,
)

_TOTALS = """
WITH decided AS (
    SELECT run_id, sum(num_refused) AS num_refused, sum(num_decisions) AS num_decisions FROM step_total GROUP BY run_id
), token AS (
    SELECT run_id, count(DISTINCT sample_id) AS num_samples, sum(emitted_tokens) AS emitted,
        coalesce(sum(emitted_tokens) FILTER (model = 'draft'), 0) AS drafted, sum(spent_tokens) AS spent,
        sum(critical_path_tokens) AS critical_path
    FROM sample_tokens GROUP BY run_id
), cache AS (
    SELECT run_id, sum(cached_tokens) AS cached, sum(prompt_tokens) AS prompt FROM call_total GROUP BY run_id
), graded AS (
    SELECT run_id, count(*) AS num_graded, count(*) FILTER (verdict = 'truncated') AS num_truncated
    FROM sample_grade WHERE graded GROUP BY run_id
)
SELECT run_id, num_refused, num_decisions, token.num_samples, emitted,
    CASE WHEN draft_name IS NOT NULL THEN drafted END AS drafted, spent, critical_path,
    cached, prompt, num_graded, num_truncated
FROM run LEFT JOIN decided USING (run_id) LEFT JOIN token USING (run_id) LEFT JOIN cache USING (run_id)
LEFT JOIN graded USING (run_id)
"""
_SHARES = {
    FALLBACK.name: ("num_refused", "num_decisions"),
    DRAFT_SHARE.name: ("drafted", "emitted"),
    TRUNCATED.name: ("num_truncated", "num_graded"),
    CACHE_HITS.name: ("cached", "prompt"),
}
_PER_SAMPLE = {SPENT.name: "spent", CRITICAL_PATH.name: "critical_path"}
_TOKEN_TIMES = """
SELECT run_id, list(ln(latency_seconds / emitted_tokens) ORDER BY problem_id) AS token_times
FROM problem_speed GROUP BY run_id
"""
_PAIRS = "SELECT run_id, baseline_run_id FROM comparable_baseline ORDER BY run_id, baseline_run_id"
_SPEED_UPS = """
SELECT run_id, baseline_run_id, ln(speed_up) AS log_speed_up FROM speed_up ORDER BY run_id, baseline_run_id
"""


@dataclass(frozen=True)
class Times:
    """Times of a run, as logarithms."""

    token_time: float | None
    """Mean over problems of the seconds per emitted token."""
    speed_ups: Mapping[str, float]
    """By run of the target alone that its speed may be compared with."""


def read_totals(connection: Connection) -> dict[str, dict[str, float]]:
    """Return the metrics of every run that need no other run and no clock; those that do not apply are left out."""
    return {str(row["run_id"]): dict(_of_totals(row)) for row in rows(connection, _TOTALS)}


def _of_totals(row: Mapping[str, object]) -> Iterable[tuple[str, float]]:
    def number(column: str) -> int | None:
        return None if row[column] is None else int(str(row[column]))

    for name, (part, whole) in _SHARES.items():
        numerator, denominator = number(part), number(whole)
        if numerator is not None and denominator:
            yield name, numerator / denominator
    num_samples = number("num_samples")
    for name, column in _PER_SAMPLE.items():
        total = number(column)
        if num_samples and total:
            yield name, float(np.log(total / num_samples))


def read_times(connection: Connection) -> dict[str, Times]:
    """Return the times of every run that has any."""
    token_times: dict[str, float] = {}
    for row in rows(connection, _TOKEN_TIMES):
        logs = row["token_times"]
        assert isinstance(logs, list)
        token_times[str(row["run_id"])] = sum(logs) / len(logs)
    speed_ups: dict[str, dict[str, float]] = {}
    for row in rows(connection, _SPEED_UPS):
        ratios = speed_ups.setdefault(str(row["run_id"]), {})
        ratios[str(row["baseline_run_id"])] = float(str(row["log_speed_up"]))
    names = {*token_times, *speed_ups}
    return {name: Times(token_times.get(name), speed_ups.get(name, {})) for name in names}


def read_baselines(connection: Connection) -> dict[str, list[str]]:
    """Return by run the runs of the target alone that its speed may be compared with."""
    found: dict[str, list[str]] = {}
    for row in rows(connection, _PAIRS):
        found.setdefault(str(row["run_id"]), []).append(str(row["baseline_run_id"]))
    return found


def of_times(own: Times | None, baselines: Collection[str]) -> dict[str, float]:
    """Return the time per token of a run and its speed-up against the runs of its night's target alone."""
    if own is None:
        return {}
    found = {} if own.token_time is None else {TOKEN_TIME.name: own.token_time}
    ratios = [ratio for base, ratio in own.speed_ups.items() if base in baselines]
    return found | ({SPEED_UP.name: sum(ratios) / len(ratios)} if ratios else {})
