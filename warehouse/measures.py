"""The measures of a run in the papers' tables, each computed in SQL over the traces, with its interval.

One problem is one observation: its samples are averaged, or their counts are summed, first. A measure is the sum of x
divided by the sum of y over problems. Its standard error is that of a ratio (Cochran, Sampling Techniques, 1977,
section 6.4), which for y = 1 is that of a mean; the interval is Student's t at 95 %. Ratios of the latencies of two
runs are paired by problem and have the intervals of warehouse/statistics/ratios.py.

Times can be taken by any stopwatch of the view `stopwatch` that values problems, by default the measured time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from harness.methods import METHODS, defaults
from warehouse.database import Connection, rows
from warehouse.pairs import latencies
from warehouse.statistics.intervals import mean_t
from warehouse.statistics.ratios import Fractions, geometric_mean_ratio, ratio_of_means

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
_SCORER = """(
    SELECT scorer FROM candidate_score WHERE run_id = $run_id GROUP BY scorer
    ORDER BY scorer ILIKE '%shepherd%' DESC, scorer LIMIT 1
)"""
"""The papers' reward model is Math-Shepherd (Wang et al. 2023); without its scores those of another are shown."""
_REWARDS = f"""
SELECT problem_id, {{x}} AS x, {{y}} AS y
FROM (
    SELECT run_id, sample_id, avg(score) AS score, bool_or(accepted) AS accepted
    FROM candidate_score JOIN candidate USING (run_id, sample_id, step_index, candidate_index)
    WHERE run_id = $run_id AND scorer = {_SCORER}
    GROUP BY run_id, sample_id, step_index, candidate_index
) JOIN sample USING (run_id, sample_id) GROUP BY problem_id
"""
_BY_PROBLEM: dict[str, tuple[str, float]] = {
    "accuracy": ("SELECT problem_id, score AS x, 1 AS y FROM problem_score WHERE run_id = $run_id", 100),
    "pass_at_2": (_PASS_AT.format(k=2), 100),
    "pass_at_5": (_PASS_AT.format(k=5), 100),
    "pass_at_10": (_PASS_AT.format(k=10), 100),
    "emitted_tokens": (_SAMPLE_MEAN.format(value="tokens", source=_EMITTED_TOKENS), 1),
    "longest_draft_tokens": (_SAMPLE_MEAN.format(value="tokens", source=_DRAFT_CALL_TOKENS), 1),
    "latency_seconds": (
        "SELECT problem_id, x, y FROM problem_stopwatch WHERE run_id = $run_id AND stopwatch = '{stopwatch}'",
        1,
    ),
    "tokens_per_second": (
        _SAMPLE_MEAN.format(value="emitted_tokens / nullif(latency_seconds, 0)", source="timed_sample"),
        1,
    ),
    "thought_tokens_per_second": (
        _SAMPLE_MEAN.format(
            value="tokens / nullif(scot, 0)",
            source=f"(FROM {_THINKING_TOKENS} JOIN sample_stopwatch USING (run_id, problem_id, sample_id))",
        ),
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
    "draft_quality": (_REWARDS.format(x="sum(score)", y="count(*)"), 1),
    "selected_quality": (_REWARDS.format(x="sum(score) FILTER (accepted)", y="count(*) FILTER (accepted)"), 1),
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
_OF_PAIRS = frozenset({"latency_saved", "latency_saved_seconds", "ratio_of_means", "speed_up"})
_CORRELATION = f"""
WITH problem AS (
    SELECT problem_id, count(*) AS n, sum(verdict_score) AS x, sum(score) AS y, sum(verdict_score * score) AS xy,
        sum(verdict_score ** 2) AS xx, sum(score ** 2) AS yy
    FROM candidate_score JOIN step USING (run_id, sample_id, step_index) JOIN sample USING (run_id, sample_id)
    WHERE run_id = $run_id AND verdict_kind = 'score' AND isfinite(verdict_score) AND scorer = {_SCORER}
    GROUP BY problem_id
), total AS (
    SELECT count(*) AS problems, sum(n) AS n, sum(x) AS x, sum(y) AS y, sum(xy) AS xy, sum(xx) AS xx, sum(yy) AS yy
    FROM problem
), part AS (
    SELECT true AS is_whole, problems, n, x, y, xy, xx, yy FROM total
    UNION ALL
    SELECT false, problems, total.n - problem.n, total.x - problem.x, total.y - problem.y, total.xy - problem.xy,
        total.xx - problem.xx, total.yy - problem.yy
    FROM problem, total
), correlation AS (
    SELECT is_whole, problems,
        (n * xy - x * y) / nullif(sqrt(greatest(n * xx - x * x, 0) * greatest(n * yy - y * y, 0)), 0) AS r
    FROM part
)
SELECT any_value(problems) AS n, any_value(r) FILTER (is_whole) AS value,
    CASE WHEN count(r) = any_value(problems) + 1 THEN t_quantile(any_value(problems) - 1)
        * sqrt((any_value(problems) - 1) * var_pop(r) FILTER (NOT is_whole)) END AS half_width
FROM correlation
"""
_AGAINST = {
    "wall_speed_up": """
        SELECT base.wall_seconds / own.wall_seconds AS value
        FROM run_throughput AS own, run_throughput AS base
        WHERE own.run_id = $run_id AND base.run_id = $baseline AND own.num_samples = base.num_samples
            AND own.num_workers = base.num_workers""",
}
MEASURES = frozenset({*_BY_PROBLEM, *_BY_RUN, *_AGAINST, *_OF_PAIRS, "score_reward_correlation"})
"""Names of all measures."""
_RUNS = """
SELECT run.*, run_conditions.devices, run_conditions.device_kinds, run_conditions.samples_in_flight,
    (SELECT count(*) FROM sample WHERE sample.run_id = run.run_id AND stop_reason IS NOT NULL) AS num_finished,
    (SELECT bool_and(try_cast(regexp_extract(problem_id, '(\\d+)$', 1) AS INTEGER) = problem_index)
        FROM problem WHERE problem.run_id = run.run_id) AS first_problems,
    (SELECT list(DISTINCT scorer ORDER BY scorer) FROM candidate_score
        WHERE candidate_score.run_id = run.run_id) AS scorers,
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


def measure(
    connection: Connection,
    name: str,
    run_id: str,
    baseline: str | None = None,
    stopwatch: str = "measured",
    of_baseline: str | None = None,
) -> Measured | None:
    """Return a measure of a run; None if the run lacks the data for it, or if it is not like its baseline.

    `stopwatch` is the definition of latency for the measures of latency, `of_baseline` that of the baseline, where that
    has another one. Raises KeyError for an unknown name.
    """
    if name in _OF_PAIRS:
        pairs = latencies(connection, run_id, baseline, stopwatch, of_baseline or stopwatch)
        return None if pairs is None else _of_pairs(name, *pairs)
    factor = 1.0
    if name in _AGAINST:
        result = rows(connection, _AGAINST[name], {"run_id": run_id, "baseline": baseline})
    elif name in _BY_PROBLEM:
        sql, factor = _BY_PROBLEM[name]
        sql = sql.replace("{stopwatch}", stopwatch.replace("'", ""))
        result = rows(connection, _RATIO.format(sql=sql), {"run_id": run_id})
    elif name == "score_reward_correlation":
        [row] = rows(connection, _CORRELATION, {"run_id": run_id})
        return None if row["value"] is None else _correlation(row)
    else:
        result = rows(connection, _BY_RUN[name], {"run_id": run_id})
    return _measured(result[0], factor) if result and result[0]["value"] is not None else None


def _of_pairs(name: str, own: Fractions, base: Fractions) -> Measured:
    """Return what the latencies of a run are to those of its baseline.

    `speed_up` and `ratio_of_means` are baseline over run, `latency_saved` is percent of the baseline's mean, and
    `latency_saved_seconds` is the difference of the means.
    """
    if name == "latency_saved_seconds":
        found = mean_t(base.x / base.y - own.x / own.y)
    elif name == "speed_up":
        found = geometric_mean_ratio(base.x / base.y, own.x / own.y)
    else:
        found = ratio_of_means(base, own)
    if name != "latency_saved":
        return Measured(found.estimate, found.low, found.high, len(own.x))
    low, high = (None if bound is None else 100 - 100 / bound for bound in (found.low, found.high))
    return Measured(100 - 100 / found.estimate, low, high, len(own.x))


def _correlation(row: Mapping[str, object]) -> Measured:
    """Return a correlation with its interval from the jackknife over problems (Efron and Tibshirani 1993, chapter 11).

    Steps of a problem are not independent, so whole problems are left out.
    """
    value, num_problems = float(str(row["value"])), int(str(row["n"]))
    if row["half_width"] is None:
        return Measured(value, n=num_problems)
    half_width = float(str(row["half_width"]))
    return Measured(value, max(-1.0, value - half_width), min(1.0, value + half_width), num_problems)


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
