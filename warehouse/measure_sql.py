"""The SQL of the measures in warehouse.measures, which says what a measure and its interval are."""

from __future__ import annotations

_SAMPLE_MEAN = "SELECT problem_id, avg({value}) AS x, 1 AS y FROM {source} WHERE run_id = $run_id GROUP BY problem_id"
_STEP_RATIO = """
SELECT problem_id, {x} AS x, {y} AS y
FROM step JOIN sample USING (run_id, sample_id) WHERE run_id = $run_id GROUP BY problem_id
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
    WHERE run_id = $run_id AND scorer = {_SCORER} AND score IS NOT NULL
    GROUP BY run_id, sample_id, step_index, candidate_index
) JOIN sample USING (run_id, sample_id) GROUP BY problem_id
"""
_SCORED_WITH_REWARD = f"""
FROM candidate_score JOIN step USING (run_id, sample_id, step_index) JOIN sample USING (run_id, sample_id)
WHERE run_id = $run_id AND verdict_kind = 'score' AND isfinite(verdict_score) AND scorer = {_SCORER}
    AND score IS NOT NULL
"""
"""Drafts with the target's score (verdict_score) and the reward model's (score)."""
_SCORE_IN_TENTH = f"""
SELECT problem_id, sum(verdict_score) AS x, count(*) AS y {_SCORED_WITH_REWARD}
    AND least(floor(10 * score), 9) = {{}} GROUP BY problem_id
"""
STORED = {
    "accuracy": ("graded_pass_at_1", None),
    "pass_at_2": ("pass_at_k", 2),
    "pass_at_5": ("pass_at_k", 5),
    "pass_at_10": ("pass_at_k", 10),
}
"""Metric and k of the shares that are rows of `estimate`, over samples that have a result."""
BY_PROBLEM: dict[str, tuple[str, float]] = {
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
        _STEP_RATIO.format(x="count(*) FILTER (NOT decision_accepted)", y="count(decision_accepted)"),
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
    **{f"score_at_reward_{tenth}": (_SCORE_IN_TENTH.format(tenth), 1) for tenth in range(10)},
}
"""SQL that returns (problem_id, x, y), and the factor of the ratio: 100 for the percentage of a part x of y, 1000 for
words in 1,000 tokens."""
BY_RUN = {
    "wall_seconds": "SELECT wall_seconds / num_workers AS value FROM run_throughput WHERE run_id = $run_id",
    "emitted_tokens_per_wall_second": (
        "SELECT emitted_tokens_per_second * num_workers AS value FROM run_throughput WHERE run_id = $run_id"
    ),
}
"""SQL that returns a value of a whole run, which has no interval."""
CORRELATION = f"""
SELECT problem_id, count(*)::DOUBLE AS n, sum(verdict_score) AS x, sum(score) AS y, sum(verdict_score * score) AS xy,
    sum(verdict_score ** 2) AS xx, sum(score ** 2) AS yy
{_SCORED_WITH_REWARD} GROUP BY problem_id ORDER BY problem_id
"""
"""Sums of the target's scores (x) and the reward model's (y) by problem, for their correlation."""
AGAINST = {
    "wall_speed_up": """
        SELECT base.wall_seconds / own.wall_seconds AS value
        FROM run_throughput AS own, run_throughput AS base
        WHERE own.run_id = $run_id AND base.run_id = $baseline AND own.num_samples = base.num_samples
            AND own.num_workers = base.num_workers
            AND (SELECT count(DISTINCT dataset_hash) FROM run WHERE run_id IN ($run_id, $baseline)) = 1""",
}
"""SQL that returns a value of a run in comparison with a `baseline`, which has no interval."""
