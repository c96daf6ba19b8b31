-- Finished samples whose verdict is neither correct nor wrong, with the rule that decided.
SELECT run_id, problem_id, sample_index, verdict, stop_reason, extracted, rule, detail
FROM sample_grade WHERE finished AND verdict NOT IN ('correct', 'wrong') ORDER BY run_id, problem_id, sample_index;
