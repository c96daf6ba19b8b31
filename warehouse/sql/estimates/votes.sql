-- Votes of the problems whose samples all have a result. Wrong answers are equal if their texts are. If a custom grader
-- does not return the text of a wrong answer, its run has no votes, because the answer could be any.

WITH answered AS (
    SELECT run_id, grader_version, problem_id, first, verdict = 'correct' AS is_right,
        CASE WHEN verdict <> 'correct' THEN trim(coalesce(extracted, ''), E' \n\t\r') END AS wrong,
        count(*) AS num_votes,
        bool_or(grader_version LIKE 'own %' AND verdict = 'wrong' AND extracted IS NULL) AS is_unknown
    FROM result WHERE has_result AND grader_version IS NOT NULL AND sample_index < first GROUP BY ALL
)
SELECT run_id, grader_version, any_value(first) AS k, any_value(problem_index) AS place,
    any_value(family) AS family,
    coalesce(list(num_votes ORDER BY num_votes, is_right) FILTER (is_right OR wrong <> ''), []) AS votes,
    coalesce(list(is_right ORDER BY num_votes, is_right) FILTER (is_right OR wrong <> ''), []) AS is_right,
    coalesce(sum(num_votes) FILTER (NOT is_right AND wrong = ''), 0)::BIGINT AS abstained
FROM answered JOIN problem USING (run_id, problem_id)
GROUP BY run_id, grader_version, problem_id HAVING sum(num_votes) = any_value(first)
QUALIFY NOT bool_or(bool_or(is_unknown)) OVER (PARTITION BY run_id, grader_version)
ORDER BY run_id, grader_version, place
