"""The numbers of runs as SQL gives them: estimates and counts, no interval and no p-value, which may be improved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.golden import digests
from warehouse.comparison.contrasts import Row, Settings, compare
from warehouse.comparison.named_runs import read_runs
from warehouse.database import Connection, rows
from warehouse.measures import measure
from warehouse.summary import summaries

_FACTS = ("attempt", "problem", "sample", "step", "candidate", "call", "grade")
"""Tables of what happened; the others are derived from them, and are seen through the views."""
_MEASURES = (
    "accuracy",
    "answer_tokens",
    "draft_steps",
    "emitted_tokens",
    "emitted_tokens_per_wall_second",
    "fallback_rate",
    "latency_seconds",
    "longest_draft_tokens",
    "mean_score",
    "pass_at_2",
    "target_thinking_tokens",
    "thinking_tokens",
    "tokens_per_second",
    "wall_seconds",
    "wall_speed_up",
)
"""What warehouse/measures.py measured when the corpora were made, but for the speed-up over the target alone, which the
view `comparable_baseline` allowed at equal temperature only."""
_HAS_SPEED_UP = "SELECT 1 FROM comparable_baseline WHERE run_id = $run_id AND baseline_run_id = $baseline"
_PURPOSES = """
SELECT model || ' ' || purpose AS what, count(*) AS num_calls, sum(prompt_tokens)::BIGINT AS prompt_tokens,
    sum(cached_tokens)::BIGINT AS cached_tokens, sum(output_tokens)::BIGINT AS output_tokens,
    sum(proposed_tokens)::BIGINT AS proposed_tokens, sum(confirmed_tokens)::BIGINT AS confirmed_tokens
FROM call WHERE run_id = $run_id GROUP BY ALL ORDER BY ALL
"""
_ROLES = """
SELECT author || ' ' || role AS what, count(*) AS num_steps, sum(num_tokens)::BIGINT AS num_tokens
FROM step WHERE run_id = $run_id GROUP BY ALL ORDER BY ALL
"""
_VERDICTS = "SELECT sample_id, verdict FROM sample_grade WHERE run_id = $run_id ORDER BY sample_id"
_SUMMARY = (
    "method", "dataset", "draft", "target", "temperature", "concurrency", "n", "k", "dataset_size", "limited",
    "pass_at_1", "graded_pass_at_1", "num_not_run", "num_ungraded", "verdicts", "fallback_rate", "num_verdicts",
    "num_timed", "mean_latency_seconds", "median_latency_seconds", "cache_hit_rate",
)  # fmt: skip
_EVERYTHING = Settings(ks=(2,), majority=True, is_latency_forced=True)


def of_runs(connection: Connection, run_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What is known of each run; the first one is the baseline of ratios."""
    return {run_id: _of_run(connection, run_id, run_ids[0]) for run_id in run_ids}


def _of_run(connection: Connection, run_id: str, baseline: str) -> dict[str, Any]:
    def ask(sql: str) -> list[dict[str, Any]]:
        return rows(connection, sql, {"run_id": run_id})

    [summary] = summaries(connection, [run_id])
    return {
        **{name: getattr(summary, name) for name in _SUMMARY},
        "params": dict(summary.params),
        "tokens_per_sample": {
            model: {
                "emitted": tokens.emitted_per_sample,
                "spent": tokens.spent_per_sample,
                "critical_path": tokens.critical_path_per_sample,
                "emitted_share": tokens.emitted_share,
            }
            for model, tokens in summary.tokens.items()
        },
        "rows": {table: ask(f"SELECT count(*) AS n FROM {table} WHERE run_id = $run_id")[0]["n"] for table in _FACTS},
        "steps": {row.pop("what"): row for row in ask(_ROLES)},
        "calls": {row.pop("what"): row for row in ask(_PURPOSES)},
        "measures": _measures(connection, run_id, baseline),
        "sample_verdicts": {row["sample_id"]: row["verdict"] for row in ask(_VERDICTS)},
        "traces": digests.in_warehouse(connection, run_id),
    }


def _measures(connection: Connection, run_id: str, baseline: str) -> dict[str, float]:
    has_speed_up = rows(connection, _HAS_SPEED_UP, {"run_id": run_id, "baseline": baseline})
    names = (*_MEASURES, "speed_up") if has_speed_up else _MEASURES
    found = {name: measure(connection, name, run_id, baseline) for name in names}
    return {name: value.value for name, value in found.items() if value is not None}


def of_comparison(connection: Connection, run_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Every row of a comparison with the first run under every metric: estimates and differences."""
    return [_of_row(row) for row in compare(read_runs(connection, run_ids, votes=True), _EVERYTHING).rows]


def _of_row(row: Row) -> dict[str, Any]:
    contrast, speed = row.contrast, row.speed
    return {
        "run": row.run.run_id,
        "metric": row.metric,
        "estimate": row.result.estimate,
        "baseline": contrast and contrast.baseline,
        "problems": contrast and contrast.n,
        "difference": contrast and contrast.difference.estimate,
        "timed_problems": speed and speed.n,
        "speed_up": speed and speed.ratio and speed.ratio.estimate,
    }


def of_night(record: Mapping[str, Any]) -> dict[str, Any]:
    """What was said of a night: the words, and what they were said of."""
    return {
        "verdict": record["verdict"],
        "exit_code": record["exit_code"],
        "confirm": record["confirm"],
        "cells": {
            cell["cell"]: {name: cell[name] for name in ("verdict", "run_id", "pass_at_1", "num_baseline_nights")}
            for cell in record["cells"]
        },
    }
