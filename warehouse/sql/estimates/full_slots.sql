-- Work of each run's workers while all slots are in use: from the start that fills the last slot until the first end
-- after which a slot stays empty. Each sample counts by the share of its time in this period.

WITH worked AS (
    SELECT sample.run_id, sample.attempt_id, problem_id, concurrency AS slots, epoch(started_at) AS began_at,
        began_at + sample.latency_seconds AS ended_at, num_attempts, timed.emitted_tokens
    FROM sample JOIN run USING (run_id) LEFT JOIN timed_sample AS timed USING (run_id, sample_id, problem_id)
    WHERE list_contains($run_ids::VARCHAR[], run_id) AND stop_reason IS NOT NULL
), filled AS (
    SELECT run_id, attempt_id, list_sort(list(began_at))[any_value(slots)] AS since,
        list_sort(list(ended_at))[count(*) - any_value(slots) + 1] AS until
    FROM worked GROUP BY ALL
    HAVING count(*) >= $samples_per_slot * any_value(slots) AND bool_and(num_attempts = 1 AND ended_at IS NOT NULL)
), part AS (
    SELECT worked.*, until - since AS seconds,
        greatest(least(ended_at, until) - greatest(began_at, since), 0) / nullif(ended_at - began_at, 0) AS share
    FROM worked JOIN filled USING (run_id, attempt_id) WHERE until > since
)
SELECT run_id, count(DISTINCT problem_id) AS n, count(*) AS num_samples,
    exact_sum(CASE WHEN emitted_tokens IS NULL THEN 0 ELSE share END) AS samples,
    exact_sum(share * coalesce(emitted_tokens, 0)) AS tokens,
    (SELECT exact_sum(until - since) FROM filled WHERE filled.run_id = part.run_id AND until > since) AS seconds
FROM part GROUP BY run_id ORDER BY run_id
