-- Samples by verdict, including those that were not run: steps, decisions about drafts, and share of rejected drafts.
SELECT run_id, verdict, count(DISTINCT sample_id) AS num_samples,
    round(count(step_index) / count(DISTINCT sample_id), 1) AS steps_per_sample,
    count(decision_kind) AS num_decisions,
    round(avg((NOT decision_accepted)::INTEGER), 3) AS fallback_rate
FROM sample_grade LEFT JOIN step USING (run_id, sample_id) GROUP BY run_id, verdict ORDER BY run_id, verdict;
