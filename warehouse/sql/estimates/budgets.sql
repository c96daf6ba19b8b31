-- Counts of samples per problem, as one list per run and token budget.

WITH counted AS (
    SELECT run_id, source_run_id, budget, problem_id, count(*) AS samples, count(*) FILTER (verdict = 'correct') AS correct,
        count(*) FILTER (graded) AS results, count(*) FILTER (graded AND verdict = 'correct') AS right
    FROM budget_point WHERE list_contains($run_ids::VARCHAR[], run_id) GROUP BY ALL
)
SELECT counted.run_id, budget, any_value(grader_version) AS grader_version, list(family ORDER BY counted.problem_id) AS families,
    list(counted.samples ORDER BY counted.problem_id) AS samples, list(correct ORDER BY counted.problem_id) AS correct,
    list(results ORDER BY counted.problem_id) AS results, list("right" ORDER BY counted.problem_id) AS "right",
    list(results ORDER BY counted.problem_id) AS first_results, list("right" ORDER BY counted.problem_id) AS first_right,
    any_value(is_greedy) AS is_greedy
FROM counted JOIN counted_version USING (run_id) JOIN run USING (run_id)
LEFT JOIN problem ON (problem.run_id, problem.problem_id) = (source_run_id, counted.problem_id)
GROUP BY counted.run_id, budget ORDER BY ALL
