-- Trace tables joined with each sample's problem and result.

CREATE OR REPLACE VIEW wide_sample AS
SELECT run_id, run.method, run.dataset, sample.problem_id, problem.level, problem.subject, sample.sample_index,
    sample_id, grade.verdict, CASE WHEN grade.graded THEN grade.verdict = 'correct' END AS is_correct, grade.finished,
    grade.graded, grade.extracted, sample.stop_reason, chain.num_steps, tokens.emitted_tokens, tokens.spent_tokens,
    tokens.critical_path_tokens,
    sample.latency_seconds, timed.run_id IS NOT NULL AS is_timed, sample.num_attempts, problem.content_hash
FROM sample
JOIN sample_grade AS grade USING (run_id, sample_id)
JOIN run USING (run_id)
JOIN problem ON (problem.run_id, problem.problem_id) = (sample.run_id, sample.problem_id)
LEFT JOIN (SELECT run_id, sample_id, count(*) AS num_steps FROM step GROUP BY ALL) AS chain USING (run_id, sample_id)
LEFT JOIN (
    SELECT run_id, sample_id, sum(emitted_tokens)::BIGINT AS emitted_tokens, sum(spent_tokens)::BIGINT AS spent_tokens,
        sum(critical_path_tokens)::BIGINT AS critical_path_tokens
    FROM sample_tokens GROUP BY ALL
) AS tokens USING (run_id, sample_id)
LEFT JOIN timed_sample AS timed USING (run_id, sample_id);
COMMENT ON VIEW wide_sample IS 'Every planned sample with its problem, verdict, tokens and latency in one row. Key: run_id, sample_id';

CREATE OR REPLACE VIEW wide_step AS
SELECT run_id, context.method, context.dataset, context.problem_id, context.level, context.subject,
    context.sample_index, context.verdict, context.is_correct, context.num_steps,
    step.* EXCLUDE (run_id)
FROM step JOIN wide_sample AS context USING (run_id, sample_id);
COMMENT ON VIEW wide_step IS 'Every row of step with its problem and the verdict on the sample''s final answer (verdict, is_correct; verdict_… is the judge''s verdict on this step''s candidates). Key: run_id, sample_id, step_index';

CREATE OR REPLACE VIEW wide_candidate AS
SELECT run_id, context.method, context.dataset, context.problem_id, context.level, context.subject,
    context.sample_index, context.verdict, context.is_correct, context.num_steps,
    candidate.* EXCLUDE (run_id)
FROM candidate JOIN wide_sample AS context USING (run_id, sample_id);
COMMENT ON VIEW wide_candidate IS 'Every row of candidate with its problem and the verdict on the sample''s final answer. Key: run_id, sample_id, step_index, candidate_index';

CREATE OR REPLACE VIEW wide_call AS
SELECT run_id, context.method, context.dataset, context.problem_id, context.level, context.subject,
    context.sample_index, context.verdict, context.is_correct, context.is_timed,
    call.* EXCLUDE (run_id)
FROM call JOIN wide_sample AS context USING (run_id, sample_id);
COMMENT ON VIEW wide_call IS 'Every row of call with its problem and the verdict on the sample''s final answer. is_timed: only these count in latencies and speeds. Key: run_id, sample_id, call_index';

CREATE OR REPLACE VIEW flip_sample AS
WITH pair AS (
    SELECT dataset, problem_id, 'right' AS side, right_run_id AS run_id, right_method AS method,
        wrong_run_id AS other_run_id, wrong_method AS other_method FROM flips
    UNION ALL
    SELECT dataset, problem_id, 'wrong', wrong_run_id, wrong_method, right_run_id, right_method FROM flips
)
SELECT pair.dataset, problem_id, context.level, side, run_id, pair.method, other_run_id, other_method,
    context.sample_id, context.sample_index, context.verdict, context.is_correct
FROM pair JOIN wide_sample AS context USING (run_id, problem_id);
COMMENT ON VIEW flip_sample IS 'The samples of both runs of every flip (see flips), from the side of each run. Join rows of traces by run_id and sample_id to get only the flipped problem: FROM wide_step SEMI JOIN (FROM flip_sample WHERE …) AS flip USING (run_id, sample_id). A semi join counts each row once, even if the problem flips against several runs';
