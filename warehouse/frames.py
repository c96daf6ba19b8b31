"""Rows of the warehouse as pandas data frames, for notebooks (harness.api)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from warehouse.comparison.outcomes import resolve
from warehouse.database import WAIT_SECONDS, WarehouseError, reader

if TYPE_CHECKING:
    import pandas

_RUN = """(
    SELECT score.run_id, score.method, score.dataset, run.draft_name AS draft, run.target_name AS target,
        run.reward_name AS reward, run.params, run.temperature, run.concurrency, score.n, score.k, score.pass_at_1,
        score.standard_error, score.low_95, score.high_95, score.num_not_run, score.num_ungraded, score.limited,
        number.fallback_rate, fallback.num_verdicts, number.emitted_tokens AS emitted_tokens_per_sample,
        number.spent_tokens AS spent_tokens_per_sample, number.critical_path_tokens AS critical_path_tokens_per_sample,
        number.draft_share AS emitted_by_draft, number.latency_seconds AS mean_latency_seconds,
        latency.median_seconds AS median_latency_seconds, run_conditions.regime, score.grader_version
    FROM pass_at_1 AS score
    JOIN run USING (run_id)
    JOIN run_conditions USING (run_id)
    LEFT JOIN fallback_rate AS fallback USING (run_id)
    LEFT JOIN latency USING (run_id)
    LEFT JOIN (
        PIVOT (SELECT run_id, metric, estimate FROM counted_estimate
            WHERE coalesce(role, group_kind, baseline_run_id) IS NULL AND k IS NULL)
        ON metric IN (
            'fallback_rate', 'emitted_tokens', 'spent_tokens', 'critical_path_tokens', 'draft_share', 'latency_seconds'
        ) USING any_value(estimate)
    ) AS number USING (run_id)
)"""
LEVELS: Mapping[str, tuple[str, str]] = {
    "run": (_RUN, "run_id"),
    "problem": ("problem_score", "problem_id"),
    "sample": ("wide_sample", "problem_id, sample_index"),
    "step": ("wide_step", "problem_id, sample_index, step_index"),
    "candidate": ("wide_candidate", "problem_id, sample_index, step_index, candidate_index"),
    "call": ("wide_call", "problem_id, sample_index, call_index"),
}
"""What a row can be: the view, or the query, that the rows come from, and the columns that order them within a run."""


def data_frame(
    database: Path, runs: Sequence[str] = (), level: str = "run", wait_seconds: float = WAIT_SECONDS
) -> pandas.DataFrame:
    """Return the rows of runs, in the order of `runs`; without any, those of all runs of the database.

    runs: run ids, beginnings of them, or run folders. level: one of LEVELS. `python -m warehouse.query --describe VIEW`
    says what the columns of a view mean; shares and rates are from 0 to 1 and times in seconds. Raises WarehouseError.
    """
    if level not in LEVELS:
        raise WarehouseError(f"level {level!r}: unknown; valid: {', '.join(LEVELS)}")
    rows, order = LEVELS[level]
    with reader(database, wait_seconds) as connection:
        ids = list(dict.fromkeys(resolve(connection, name) for name in runs))
        of_runs = "WHERE run_id IN (SELECT unnest($runs))" if ids else ""
        by_run = "list_position($runs, run_id)" if ids else "run_id"
        sql = f"SELECT * FROM {rows} AS every {of_runs} ORDER BY {by_run}, {order}"
        return connection.execute(sql, {"runs": ids} if ids else None).df()
