"""The statements behind the figures. The page shows each of them, ready to be pasted into `warehouse.query`.

Every statement is about all runs of the report, `$run_ids`. Estimates with intervals are rows of the table `estimate`.
"""

from __future__ import annotations

from collections.abc import Sequence

from warehouse.database import literal

_RUNS = "(SELECT unnest($run_ids))"
ACCURACY = f"""
SELECT run_id, method, n, k, graded_pass_at_1, graded_low_95, graded_high_95, pass_at_1, low_95, high_95,
    num_not_run, num_ungraded, grader_version
FROM pass_at_1 WHERE run_id IN {_RUNS} ORDER BY run_id
"""
FALLBACK = f"""
SELECT run_id, estimate AS value, n, low_95 AS low, high_95 AS high FROM estimate
WHERE metric = 'fallback_rate' AND run_id IN {_RUNS} ORDER BY run_id
"""
ACCEPTANCE = f"""
SELECT run_id, step_index, num_decisions, estimate AS value, n, low_95 AS low, high_95 AS high
FROM (FROM estimate WHERE metric = 'acceptance_rate' AND run_id IN {_RUNS}) AS rate
JOIN acceptance_by_position USING (run_id) WHERE group_value::INTEGER = step_index ORDER BY run_id, step_index
"""
LATENCY = f"""
SELECT run_id, estimate AS value, n, low_95 AS low, high_95 AS high FROM estimate
WHERE metric = 'latency_seconds' AND run_id IN {_RUNS} ORDER BY run_id
"""
TRADE_OFF = f"""
SELECT run_id, graded_pass_at_1, graded_low_95, graded_high_95, latency.estimate AS mean_seconds,
    latency.n AS num_timed, latency.low_95 AS mean_seconds_low_95, latency.high_95 AS mean_seconds_high_95
FROM pass_at_1 JOIN (FROM estimate WHERE metric = 'latency_seconds') AS latency USING (run_id)
WHERE run_id IN {_RUNS} ORDER BY run_id
"""
LATENCY_PARTS = f"""
SELECT run_id, part, seconds_per_sample FROM latency_split
WHERE run_id IN {_RUNS} AND seconds_per_sample IS NOT NULL ORDER BY run_id, part
"""
TOKENS = f"""
SELECT run_id, model, emitted_tokens_per_sample, spent_tokens_per_sample, critical_path_tokens_per_sample
FROM token_split WHERE run_id IN {_RUNS} ORDER BY run_id, model
"""
VERDICTS = f"""
SELECT run_id, verdict, num_samples, share FROM verdict_counts WHERE run_id IN {_RUNS} ORDER BY run_id, verdict
"""
DISTANCE = f"""
SELECT run_id, nats_per_token, nats_per_token_low_95, nats_per_token_high_95, num_samples, baseline_run_id, n, distance,
    distance_low_95, distance_high_95
FROM distance_from_target WHERE run_id IN {_RUNS} ORDER BY run_id, baseline_run_id
"""
DISTANCE_SPEED = f"""
WITH speed AS (
    SELECT run_id, baseline_run_id, run.concurrency AS in_flight, speed_up.n, speed_up, low_95, high_95,
        NULL AS num_timed, NULL AS num_timed_of_baseline
    FROM speed_up JOIN run USING (run_id)
    UNION ALL BY NAME
    SELECT run_id, baseline_run_id, 1 AS in_flight, n, speed_up, low_95, high_95, num_timed, num_timed_of_baseline
    FROM speed_up_at_one
)
SELECT run_id, run.method, run.concurrency, speed.in_flight, speed.baseline_run_id, speed.n, speed_up, low_95, high_95,
    num_timed, num_timed_of_baseline, distance, distance_low_95, distance_high_95
FROM speed JOIN run USING (run_id)
LEFT JOIN (SELECT run_id, baseline_run_id, estimate AS distance, low_95 AS distance_low_95, high_95 AS distance_high_95
    FROM estimate WHERE metric = 'distance_from_target') AS scored USING (run_id, baseline_run_id)
WHERE run_id IN {_RUNS} ORDER BY run_id, speed.in_flight, speed.baseline_run_id
"""
ABSURDITY = f"""
SELECT run_id, num_steps, num_tokens, num_absurd_steps, absurd_steps_per_thousand_tokens, most_nats
FROM absurdity WHERE run_id IN {_RUNS} ORDER BY run_id
"""
ABSURD_STEPS = f"""
SELECT run_id, problem_id, sample_index, step_index, author, role, num_tokens, nats_per_token, most_nats
FROM scored_step WHERE most_nats >= $nats AND run_id IN {_RUNS}
ORDER BY most_nats DESC, run_id, problem_id, sample_index, step_index LIMIT 20
"""
FLIPS = f"""
SELECT right_run_id, wrong_run_id, problem_id, right_score, wrong_score, right_sample_index, wrong_sample_index
FROM flips WHERE right_run_id IN {_RUNS} AND wrong_run_id IN {_RUNS} ORDER BY ALL
"""
_DIFFERENCES = """
WITH pair(run_id, baseline_run_id) AS (VALUES {pairs}),
outcome AS (
    SELECT sample.run_id, sample.problem_id, content_hash, sample_index, sample.verdict = 'correct' AS is_correct,
        graded AND (grade.verdict IS NOT NULL OR NOT bool_or(finished AND NOT graded) OVER (PARTITION BY sample.run_id))
            AS has_result
    FROM sample_grade AS sample JOIN problem USING (run_id, problem_id)
    LEFT JOIN grade ON grade.run_id = sample.run_id AND grade.sample_id = sample.sample_id
        AND grade.grader_version = sample.grader_version
    WHERE sample.run_id IN (SELECT run_id FROM pair UNION SELECT baseline_run_id FROM pair)
), score AS ( -- over the samples that neither run lacks
    SELECT pair.*, own.run_id = pair.run_id AS is_run, own.problem_id, own.content_hash,
        avg(own.is_correct::INTEGER) AS score
    FROM pair JOIN outcome AS own ON own.run_id IN (pair.run_id, pair.baseline_run_id)
    LEFT JOIN outcome AS other ON other.run_id <> own.run_id AND other.run_id IN (pair.run_id, pair.baseline_run_id)
        AND other.problem_id = own.problem_id AND other.content_hash = own.content_hash
        AND other.sample_index = own.sample_index
    WHERE own.has_result AND coalesce(other.has_result, true) GROUP BY ALL
)
SELECT run_id, baseline_run_id, count(*) AS num_problems, avg(own.score - base.score) AS difference
FROM (FROM score WHERE is_run) AS own
JOIN (FROM score WHERE NOT is_run) AS base USING (run_id, baseline_run_id, problem_id, content_hash)
GROUP BY ALL ORDER BY ALL
"""


def copyable(statement: str, run_ids: Sequence[str]) -> str:
    """Return a statement with its runs written into it."""
    return statement.strip().replace("$run_ids", f"[{', '.join(map(literal, run_ids))}]")


def differences(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the statement for the mean differences of pairs of a run and its baseline."""
    return _DIFFERENCES.strip().format(pairs=", ".join(f"({literal(a)}, {literal(b)})" for a, b in pairs))
