-- Differences in nats per token between the two runs of each row of new_pair, as one list over problems.

WITH planned AS (
    SELECT run_id, sample_id, sample_index, family, problem_id || ' ' || content_hash AS problem
    FROM sample JOIN problem USING (run_id, problem_id)
    WHERE run_id IN (SELECT run_id FROM new_pair UNION SELECT baseline_run_id FROM new_pair)
), chain AS (
    SELECT planned.*, -logprob / num_tokens AS nats
    FROM planned LEFT JOIN sample_target_logprob USING (run_id, sample_id)
), side AS (
    SELECT *, true AS is_own, run_id AS own_id, baseline_run_id AS other_id FROM new_pair
    UNION ALL SELECT *, false, baseline_run_id, run_id FROM new_pair
), mean AS (
    SELECT side.run_id, side.baseline_run_id, is_own, chain.problem, any_value(family) AS family,
        exact_sum(nats) / count(*) AS nats
    FROM side JOIN chain ON chain.run_id = side.own_id AND chain.nats IS NOT NULL
    WHERE NOT EXISTS ( -- a sample that is planned but not scored in the other run
        FROM chain AS theirs WHERE theirs.run_id = side.other_id AND theirs.problem = chain.problem
            AND theirs.sample_index = chain.sample_index AND theirs.nats IS NULL)
    GROUP BY ALL
)
SELECT run_id, baseline_run_id, list(own.nats - base.nats ORDER BY problem) AS differences,
    list(coalesce(own.family, base.family) ORDER BY problem) AS family
FROM (FROM mean WHERE is_own) AS own JOIN (FROM mean WHERE NOT is_own) AS base USING (run_id, baseline_run_id, problem)
GROUP BY ALL ORDER BY ALL
