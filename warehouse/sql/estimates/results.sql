-- Samples of runs by grader version, and whether each has a result as defined in comparison/outcomes.py. first: number
-- of a problem's samples that count in pass@k; 1 in a greedy run, whose other samples repeat the first.

CREATE OR REPLACE TEMP TABLE result AS
SELECT sample.run_id, sample.grader_version, sample.problem_id, sample.sample_index, sample.verdict, sample.extracted,
    CASE WHEN is_greedy THEN 1 ELSE run.samples END AS first,
    graded AND (stop_reason IS DISTINCT FROM 'error' OR grade.run_id IS NOT NULL OR NOT bool_or(finished AND NOT graded)
        OVER (PARTITION BY sample.run_id, sample.grader_version)) AS has_result
FROM graded_sample AS sample JOIN run USING (run_id)
LEFT JOIN grade ON grade.run_id = sample.run_id AND grade.sample_id = sample.sample_id
    AND grade.grader_version = sample.grader_version
WHERE list_contains($run_ids::VARCHAR[], sample.run_id);
