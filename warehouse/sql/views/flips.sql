-- Problems that are right under one run and wrong under another.

CREATE OR REPLACE VIEW flips AS
WITH shown AS (
    SELECT run_id, problem_id, arg_min(sample_index, sample_index) FILTER (verdict = 'correct') AS right_index,
        arg_min(sample_index, sample_index) FILTER (verdict <> 'correct') AS wrong_index,
        count(*) FILTER (verdict = 'correct') / count(*) AS score, any_value(grader_version) AS grader_version
    FROM sample_grade WHERE graded GROUP BY run_id, problem_id
), marked AS (
    SELECT shown.*, run.dataset, run.method, problem.content_hash
    FROM shown JOIN run USING (run_id) JOIN problem USING (run_id, problem_id) WHERE score <> 0.5
)
SELECT good.dataset, good.problem_id, good.run_id AS right_run_id, bad.run_id AS wrong_run_id,
    good.method AS right_method, bad.method AS wrong_method, good.score AS right_score, bad.score AS wrong_score,
    good.right_index AS right_sample_index, bad.wrong_index AS wrong_sample_index,
    good.grader_version IS NOT DISTINCT FROM bad.grader_version AS same_grader
FROM (FROM marked WHERE score > 0.5) AS good JOIN (FROM marked WHERE score < 0.5) AS bad
    ON good.problem_id = bad.problem_id AND good.content_hash = bad.content_hash;
COMMENT ON VIEW flips IS 'Problems that most graded samples of one run answer correctly and most of another do not, for every two runs that share problems of equal content (also a partial and a whole run), with the first right and the first wrong sample. same_grader: the same grader version graded both. See flip_traces(right_run_id, wrong_run_id) for the traces, and flip_sample to join rows of traces: a join by run_id alone gives all of the run''s problems';

CREATE OR REPLACE MACRO flip_traces(right_run, wrong_run) AS TABLE
WITH pair AS (
    SELECT * FROM flips WHERE right_run_id = right_run AND wrong_run_id = wrong_run
), trace AS (
    SELECT run_id, problem_id, sample_index, string_agg('[' || role || ' by ' || author || '] ' || text, '' ORDER BY step_index)
            AS text,
        min(step_index) FILTER (author = 'draft' AND decision_accepted) AS first_accepted_draft,
        any_value(extracted) AS extracted, any_value(verdict) AS verdict
    FROM step JOIN sample_grade USING (run_id, sample_id)
    SEMI JOIN (
        SELECT right_run_id AS run_id, problem_id, right_sample_index AS sample_index FROM pair
        UNION ALL SELECT wrong_run_id, problem_id, wrong_sample_index FROM pair
    ) AS wanted USING (run_id, problem_id, sample_index)
    WHERE step.run_id IN (right_run, wrong_run)
    GROUP BY run_id, problem_id, sample_index
)
SELECT pair.problem_id, problem.text AS question, problem.answer AS gold,
    good.sample_index AS right_sample_index, good.extracted AS right_answer, good.text AS right_trace,
    bad.sample_index AS wrong_sample_index, bad.verdict AS wrong_verdict, bad.extracted AS wrong_answer,
    bad.first_accepted_draft AS wrong_first_accepted_draft, bad.text AS wrong_trace
FROM pair
JOIN problem ON problem.run_id = pair.right_run_id AND problem.problem_id = pair.problem_id
LEFT JOIN trace AS good ON (good.run_id, good.problem_id) = (pair.right_run_id, pair.problem_id)
LEFT JOIN trace AS bad ON (bad.run_id, bad.problem_id) = (pair.wrong_run_id, pair.problem_id);
COMMENT ON MACRO TABLE flip_traces IS 'The flips between two runs with both traces, in which every step is marked with role and author. wrong_first_accepted_draft: index of the first accepted draft step in the incorrect trace';
