-- Counts of samples per problem, as one list per run and grader version.

WITH counted AS (
    SELECT run_id, grader_version, problem_index, level, family, count(*) AS samples,
        count(*) FILTER (verdict = 'correct') AS correct, count(*) FILTER (has_result) AS results,
        count(*) FILTER (has_result AND verdict = 'correct') AS right,
        count(*) FILTER (has_result AND sample_index < first) AS first_results,
        count(*) FILTER (has_result AND sample_index < first AND verdict = 'correct') AS first_right
    FROM result JOIN problem USING (run_id, problem_id) GROUP BY ALL
)
SELECT run_id, grader_version, list(level ORDER BY problem_index) AS levels,
    list(family ORDER BY problem_index) AS families,
    list(samples ORDER BY problem_index) AS samples, list(correct ORDER BY problem_index) AS correct,
    list(results ORDER BY problem_index) AS results, list("right" ORDER BY problem_index) AS "right",
    list(first_results ORDER BY problem_index) AS first_results,
    list(first_right ORDER BY problem_index) AS first_right,
    any_value(is_greedy) AS is_greedy
FROM counted JOIN (SELECT run_id, is_greedy FROM run) USING (run_id)
GROUP BY run_id, grader_version ORDER BY ALL
