-- Decisions of one kind in a run's graded samples, with their scores, which are negated if low scores are accepted.

SELECT problem_index, sample_index, graded.verdict = 'correct' AS is_right,
    CASE WHEN decision_kind IN ('choice', 'score') THEN round(decision_value, 2)
        WHEN decision_accepts_below THEN -rounded(decision_value) ELSE rounded(decision_value) END AS rating,
    coalesce(family, problem_id) AS family
FROM (FROM step WHERE run_id = $run_id AND decision_kind = $kind) AS step
JOIN (FROM graded_sample WHERE run_id = $run_id AND grader_version = $grader_version AND graded) AS graded
    USING (sample_id)
JOIN (FROM problem WHERE run_id = $run_id) AS problem USING (problem_id)
WHERE isfinite(decision_value) AND (decision_kind <> 'score' OR isfinite(verdict_expected_score))
