"""The measures of a run in the papers' tables, each computed in SQL over the traces, with its interval.

One problem is one observation: its samples are averaged, or their counts are summed, first. A measure is the sum of x
divided by the sum of y over problems. Its standard error is that of a ratio (Cochran, Sampling Techniques, 1977,
section 6.4), which for y = 1 is that of a mean; the interval is Student's t at 95 %.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from harness.methods import METHODS, defaults
from warehouse.database import Connection, rows

_SAMPLE_MEAN = "SELECT problem_id, avg({value}) AS x, 1 AS y FROM {source} WHERE run_id = $run_id GROUP BY problem_id"
_STEP_RATIO = """
SELECT problem_id, {x} AS x, {y} AS y
FROM step JOIN sample USING (run_id, sample_id) WHERE run_id = $run_id GROUP BY problem_id
"""
_PASS_AT = """
SELECT problem_id, 1 - list_aggregate(list_transform(range({k}),
    lambda i: greatest(num_samples - num_correct - i, 0) / (num_samples - i)), 'product') AS x, 1 AS y
FROM problem_score WHERE run_id = $run_id AND num_samples >= {k}
"""
_DRAFT_CALL_TOKENS = """(
    SELECT run_id, problem_id, sample_id, sum(longest_output_tokens) AS tokens
    FROM call JOIN sample USING (run_id, sample_id) WHERE purpose = 'draft' GROUP BY ALL
)"""
_EMITTED_TOKENS = """(
    SELECT run_id, problem_id, sample_id, sum(emitted_tokens) AS tokens
    FROM sample_tokens JOIN sample USING (run_id, sample_id) GROUP BY ALL
)"""
_ANSWER_TOKENS = """(
    SELECT run_id, problem_id, sample_id, sum(num_tokens) AS tokens
    FROM sample_answer JOIN sample USING (run_id, sample_id) GROUP BY ALL
)"""
_THINKING_TOKENS = """(
    SELECT run_id, problem_id, sample_id, sum(emitted_tokens - coalesce(num_tokens, 0)) AS tokens,
        sum(CASE model WHEN 'target' THEN emitted_tokens - coalesce(num_tokens, 0) ELSE 0 END) AS target_tokens
    FROM (
        SELECT tokens.run_id, tokens.sample_id, tokens.model, tokens.emitted_tokens, answer.num_tokens
        FROM sample_tokens AS tokens LEFT JOIN sample_answer AS answer
            ON (answer.run_id, answer.sample_id, answer.author) = (tokens.run_id, tokens.sample_id, tokens.model)
    ) JOIN sample USING (run_id, sample_id) GROUP BY ALL
)"""
_THOUGHT_TIME = """
WITH called AS (
    SELECT run_id, sample_id, problem_id,
        sum(end_seconds - overlapped_seconds) AS all_seconds,
        coalesce(sum(end_seconds - overlapped_seconds) FILTER (purpose = 'draft'), 0) AS draft,
        coalesce(sum(end_seconds - overlapped_seconds) FILTER (purpose = 'verdict'), 0) AS verdict
    FROM call JOIN timed_sample USING (run_id, sample_id)
    WHERE run_id = $run_id AND purpose <> 'lookahead' GROUP BY ALL
), thought AS (
    SELECT problem_id, draft, verdict,
        all_seconds - coalesce((SELECT sum(seconds) FROM sample_answer AS answer
            WHERE (answer.run_id, answer.sample_id) = (called.run_id, called.sample_id)), 0) AS all_seconds
    FROM called
)
SELECT problem_id, sum({}) AS x, sum(all_seconds) AS y FROM thought GROUP BY problem_id
"""
_REFLECTION = """
SELECT problem_id, sum(num_wait + num_but + num_hmm) AS x, sum(num_tokens) AS y
FROM step JOIN sample USING (run_id, sample_id) WHERE run_id = $run_id AND role = '{}' GROUP BY problem_id
"""
_SELECTION = """
SELECT problem_id, count(*) FILTER (is_right) AS x, count(*) AS y
FROM sample_selection JOIN sample USING (run_id, sample_id) WHERE run_id = $run_id AND class = {} GROUP BY problem_id
"""
_BY_PROBLEM: dict[str, tuple[str, float]] = {
    "accuracy": ("SELECT problem_id, score AS x, 1 AS y FROM problem_score WHERE run_id = $run_id", 100),
    "pass_at_2": (_PASS_AT.format(k=2), 100),
    "pass_at_5": (_PASS_AT.format(k=5), 100),
    "pass_at_10": (_PASS_AT.format(k=10), 100),
    "emitted_tokens": (_SAMPLE_MEAN.format(value="tokens", source=_EMITTED_TOKENS), 1),
    "longest_draft_tokens": (_SAMPLE_MEAN.format(value="tokens", source=_DRAFT_CALL_TOKENS), 1),
    "latency_seconds": (_SAMPLE_MEAN.format(value="latency_seconds", source="timed_sample"), 1),
    "tokens_per_second": (
        _SAMPLE_MEAN.format(value="emitted_tokens / nullif(latency_seconds, 0)", source="timed_sample"),
        1,
    ),
    "thinking_tokens": (_SAMPLE_MEAN.format(value="tokens", source=_THINKING_TOKENS), 1),
    "target_thinking_tokens": (_SAMPLE_MEAN.format(value="target_tokens", source=_THINKING_TOKENS), 1),
    "answer_tokens": (_SAMPLE_MEAN.format(value="tokens", source=_ANSWER_TOKENS), 1),
    "fallback_rate": (
        _STEP_RATIO.format(x="count(*) FILTER (NOT verdict_accepted)", y="count(verdict_accepted)"),
        100,
    ),
    "drafts_chosen_right": (_SELECTION.format(1), 100),
    "drafts_rejected_right": (_SELECTION.format(2), 100),
    "draft_steps": (_STEP_RATIO.format(x="count(*) FILTER (author = 'draft')", y="count(*)"), 100),
    "drafting_share": (_THOUGHT_TIME.format("draft"), 100),
    "selection_share": (_THOUGHT_TIME.format("verdict"), 100),
    "target_share": (_THOUGHT_TIME.format("all_seconds - draft - verdict"), 100),
    "reflection_in_drafts": (_REFLECTION.format("draft"), 1000),
    "reflection_in_fallbacks": (_REFLECTION.format("fallback"), 1000),
    "mean_score": (_STEP_RATIO.format(x="sum(verdict_score)", y="count(verdict_score)"), 1),
}
"""SQL that returns (problem_id, x, y), and the factor of the ratio: 100 for percent, 1000 for words in 1,000 tokens."""
_RATIO = """
WITH observed AS (SELECT * FROM ({sql}) WHERE x IS NOT NULL), total AS (
    SELECT count(*) AS n, sum(x) / nullif(sum(y), 0) AS ratio, sum(y) AS weight FROM observed
)
SELECT any_value(n) AS n, any_value(ratio) AS value,
    any_value(t_quantile(n - 1)) * sqrt(any_value(n) / nullif(any_value(n) - 1, 0) * sum((x - ratio * y) ** 2))
        / nullif(any_value(weight), 0) AS half_width
FROM observed, total
"""
_BY_RUN = {
    "wall_seconds": "SELECT wall_seconds / num_workers AS value FROM run_throughput WHERE run_id = $run_id",
    "emitted_tokens_per_wall_second": (
        "SELECT emitted_tokens_per_second * num_workers AS value FROM run_throughput WHERE run_id = $run_id"
    ),
}
_AGAINST = {
    "speed_up": """
        SELECT speed_up AS value, low_95 AS low, high_95 AS high, n FROM speed_up
        WHERE run_id = $run_id AND baseline_run_id = $baseline""",
    "latency_saved_seconds": """
        SELECT avg(saved) AS value, count(*) AS n,
            avg(saved) - t_quantile(count(*) - 1) * stddev_samp(saved) / sqrt(count(*)) AS low,
            avg(saved) + t_quantile(count(*) - 1) * stddev_samp(saved) / sqrt(count(*)) AS high
        FROM (
            SELECT base.latency_seconds - own.latency_seconds AS saved
            FROM problem_speed AS own JOIN problem_speed AS base USING (problem_id)
            JOIN run_conditions AS own_on ON own_on.run_id = own.run_id
            JOIN run_conditions AS base_on ON base_on.run_id = base.run_id
            WHERE own.run_id = $run_id AND base.run_id = $baseline AND own_on.devices = base_on.devices
                AND own_on.concurrency = base_on.concurrency
        ) HAVING count(*) > 0""",
    "wall_speed_up": """
        SELECT base.wall_seconds / own.wall_seconds AS value
        FROM run_throughput AS own, run_throughput AS base
        WHERE own.run_id = $run_id AND base.run_id = $baseline AND own.num_samples = base.num_samples
            AND own.num_workers = base.num_workers""",
}
MEASURES = frozenset({*_BY_PROBLEM, *_BY_RUN, *_AGAINST})
"""Names of all measures."""
_RUNS = """
SELECT run.*, run_conditions.devices,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason IS NOT NULL) AS num_finished,
    (SELECT bool_and(try_cast(regexp_extract(problem_id, '(\\d+)$', 1) AS INTEGER) = problem_index)
        FROM problem WHERE problem.run_id = run.run_id) AS first_problems,
    (SELECT sum(num_workers) FROM run_throughput WHERE run_id = run.run_id) AS num_workers,
    (SELECT sum(wall_seconds) FROM run_throughput WHERE run_id = run.run_id) AS wall_seconds,
    (SELECT max(num_devices) FROM attempt WHERE attempt.run_id = run.run_id AND device <> 'cpu') AS num_gpus
FROM run JOIN run_conditions USING (run_id)
WHERE method = $method AND dataset = $dataset AND engine_kind <> 'scripted'
ORDER BY num_finished DESC, created_at DESC
"""


@dataclass(frozen=True, slots=True)
class Measured:
    """A measure of a run with its 95 % interval; None: too few problems, or this measure has no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    n: int | None = None
    """Number of problems."""


def measure(connection: Connection, name: str, run_id: str, baseline: str | None = None) -> Measured | None:
    """Return a measure of a run; None if the run lacks the data for it. Raises KeyError for an unknown name."""
    factor = 1.0
    if name in _AGAINST:
        result = rows(connection, _AGAINST[name], {"run_id": run_id, "baseline": baseline})
    elif name in _BY_PROBLEM:
        sql, factor = _BY_PROBLEM[name]
        result = rows(connection, _RATIO.format(sql=sql), {"run_id": run_id})
    else:
        result = rows(connection, _BY_RUN[name], {"run_id": run_id})
    return _measured(result[0], factor) if result and result[0]["value"] is not None else None


def runs_like(connection: Connection, columns: Mapping[str, object]) -> list[dict[str, object]]:
    """Return the runs with these values in the table `run`, those with the most finished samples first.

    columns: values by column, with `params` as a dictionary; it must have `method` and `dataset`. Scripted runs, whose
    numbers are meaningless, are left out. `first_problems`: whether the run has the first problems of its dataset, by
    the row at the end of their ids.
    """
    candidates = rows(connection, _RUNS, {"method": columns["method"], "dataset": columns["dataset"]})
    method = str(columns["method"])
    runs = [{**row, "params": _whole(method, json.loads(str(row["params"])))} for row in candidates]
    sought = dict(columns)
    if isinstance(columns.get("params"), Mapping):
        sought["params"] = _whole(method, columns["params"])  # type: ignore[arg-type]
    return [run for run in runs if all(run[name] == value for name, value in sought.items())]


def _whole(method: str, params: Mapping[str, object]) -> dict[str, object]:
    """Return all hyper-parameters: a run of an older version lacks those that were added since, at their defaults."""
    return {**(defaults(method) if method in METHODS else {}), **params}


def _measured(row: Mapping[str, object], factor: float) -> Measured:
    def scaled(name: str) -> float | None:
        number = row.get(name)
        return None if number is None else factor * float(str(number))

    value, half_width = scaled("value"), scaled("half_width")
    assert value is not None
    low, high = scaled("low"), scaled("high")
    if half_width is not None:  # no measure is negative, and a share is at most 100 %
        low, high = max(0.0, value - half_width), value + half_width
        high = min(100.0, high) if factor == 100 else high
    return Measured(value, low, high, None if row.get("n") is None else int(str(row["n"])))
