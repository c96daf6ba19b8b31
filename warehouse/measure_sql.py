"""The SQL of the measures in warehouse.measures, which says what a measure and its interval are."""

from __future__ import annotations

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
BY_PROBLEM: dict[str, tuple[str, float]] = {
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
RATIO = """
WITH observed AS (SELECT * FROM ({sql}) WHERE x IS NOT NULL), total AS (
    SELECT count(*) AS n, sum(x) / nullif(sum(y), 0) AS ratio, sum(y) AS weight FROM observed
)
SELECT any_value(n) AS n, any_value(ratio) AS value,
    any_value(t_quantile(n - 1)) * sqrt(any_value(n) / nullif(any_value(n) - 1, 0) * sum((x - ratio * y) ** 2))
        / nullif(any_value(weight), 0) AS half_width
FROM observed, total
"""
"""Value and half width of a measure, over `sql` of `BY_PROBLEM`."""
BY_RUN = {
    "wall_seconds": "SELECT wall_seconds / num_workers AS value FROM run_throughput WHERE run_id = $run_id",
    "emitted_tokens_per_wall_second": (
        "SELECT emitted_tokens_per_second * num_workers AS value FROM run_throughput WHERE run_id = $run_id"
    ),
}
"""SQL that returns a value of a whole run, which has no interval."""
CORRELATION = f"""
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
"""Correlation of the target's scores with the reward model's, with the half width of a jackknife over problems."""
AGAINST = {
    "wall_speed_up": """
        SELECT base.wall_seconds / own.wall_seconds AS value
        FROM run_throughput AS own, run_throughput AS base
        WHERE own.run_id = $run_id AND base.run_id = $baseline AND own.num_samples = base.num_samples
            AND own.num_workers = base.num_workers""",
}
"""SQL that returns a value of a run in comparison with a `baseline`, which has no interval."""
