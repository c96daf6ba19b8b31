-- Points of probes with grades of both kinds of continuations. Problems and families are numbered within a run.

SELECT probe.run_id, grader_version, probe.kind, accepts_below, dense_rank() OVER texts AS problem,
    dense_rank() OVER families AS family, weight, accepted, third, CASE WHEN accepts_below THEN -value ELSE value END
    AS rating, num_draft_correct AS draft_right, num_draft_rollouts AS draft_total, num_own_correct AS own_right,
    num_own_rollouts AS own_total
FROM probe JOIN problem ON (problem.run_id, problem.problem_id) = (probe.run_id, probe.draft_problem_id)
JOIN counted_version ON counted_version.run_id = probe.run_id
WHERE list_contains($run_ids::VARCHAR[], probe.run_id) AND num_draft_rollouts > 0 AND num_own_rollouts > 0
WINDOW texts AS (PARTITION BY probe.run_id ORDER BY problem.text),
    families AS (PARTITION BY probe.run_id ORDER BY coalesce(family, problem.text))
ORDER BY probe.run_id, draft_problem_id
