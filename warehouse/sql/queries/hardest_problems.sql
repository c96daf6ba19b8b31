-- Problems by the share of correct samples, hardest first, over all runs.
SELECT problem_id, any_value(level) AS level, count(DISTINCT run_id) AS num_runs, sum(num_correct)::BIGINT AS num_correct,
    sum(num_graded)::BIGINT AS num_graded, round(sum(num_correct) / sum(num_graded), 3) AS share
FROM problem_score GROUP BY problem_id HAVING sum(num_graded) > 0 ORDER BY share, problem_id;
