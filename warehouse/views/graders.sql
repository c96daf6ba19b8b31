-- Comparison of two graders. The second never counts: it serves to find grades that should be checked.

CREATE OR REPLACE VIEW grader_disagreements AS
WITH second AS (
    SELECT * FROM second_grade
    QUALIFY dense_rank() OVER (PARTITION BY run_id ORDER BY load_order DESC) = 1
)
SELECT sample_grade.run_id, sample_grade.problem_id, sample_grade.sample_index,
    CASE
        WHEN second.verdict IN ('unparsable', 'grader_timeout', 'bad_gold') THEN 'undecided'
        WHEN (sample_grade.verdict = 'correct') <> (second.verdict = 'correct') THEN 'score'
        ELSE 'kind'
    END AS matter,
    sample_grade.verdict, second.verdict AS second_verdict, problem.answer AS gold,
    sample_grade.extracted, second.extracted AS second_extracted,
    sample_grade.detail AS reason, second.detail AS second_reason,
    sample_grade.rule, second.rule AS second_rule,
    sample_grade.grader_version, second.grader_version AS second_grader_version, sample_grade.sample_id
FROM sample_grade
JOIN second USING (run_id, sample_id)
JOIN problem ON (problem.run_id, problem.problem_id) = (sample_grade.run_id, sample_grade.problem_id)
WHERE sample_grade.graded AND sample_grade.verdict <> second.verdict;
COMMENT ON VIEW grader_disagreements IS 'Samples on whose verdict the independent second grader disagrees, with both reasons. matter: score (one says correct, the other does not), kind (a different way of not being correct), undecided (the second grader cannot decide)';
