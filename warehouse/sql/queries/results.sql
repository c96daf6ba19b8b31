-- Accuracy, fallback rate, tokens and latency of every run. While samples are missing, pass_at_1 counts them as not correct and has no standard error; graded_pass_at_1 leaves them out.
SELECT p.run_id, p.method, p.dataset, run.draft_name, run.target_name, p.n, p.k,
    round(100 * p.pass_at_1, 2) AS pass_at_1_percent, round(100 * p.standard_error, 2) AS standard_error_percent,
    p.num_not_run, p.limited, round(100 * f.fallback_rate, 1) AS fallback_percent,
    round(t.emitted_tokens, 1) AS emitted_tokens_per_sample, round(t.draft_share * 100, 1) AS draft_share_percent,
    l.regime, round(l.mean_seconds, 2) AS mean_latency_seconds,
    split_part(p.grader_version, ' ', 1) AS grader, p.num_ungraded,
    round(100 * p.graded_pass_at_1, 2) AS graded_pass_at_1_percent
FROM pass_at_1 AS p JOIN run USING (run_id)
LEFT JOIN fallback_rate AS f USING (run_id)
LEFT JOIN latency AS l USING (run_id)
LEFT JOIN (
    SELECT run_id, sum(emitted_tokens_per_sample) AS emitted_tokens,
        sum(emitted_share) FILTER (model = 'draft') AS draft_share
    FROM token_split GROUP BY run_id
) AS t USING (run_id)
ORDER BY p.dataset, p.pass_at_1 DESC;
