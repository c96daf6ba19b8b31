-- Points of probes with grades of both kinds of continuations. Problems and families are numbered within a run.
-- Continuations are halved by even and odd index, so one half can select a step and the other half measure it.

WITH half AS (
    SELECT run_id, problem_id, avg((verdict = 'correct')::INTEGER) FILTER (graded AND sample_index % 2 = 0) AS even,
        avg((verdict = 'correct')::INTEGER) FILTER (graded AND sample_index % 2 = 1) AS odd
    FROM sample_grade SEMI JOIN probe_point USING (run_id)
    WHERE list_contains($run_ids::VARCHAR[], run_id) GROUP BY run_id, problem_id
)
SELECT probe.run_id, grader_version, probe.kind, accepts_below, dense_rank() OVER texts AS problem,
    dense_rank() OVER families AS family, weight, accepted, third, CASE WHEN accepts_below THEN -value ELSE value END
    AS rating, num_draft_correct AS draft_right, num_draft_rollouts AS draft_total, num_own_correct AS own_right,
    num_own_rollouts AS own_total, draft.even AS draft_even, draft.odd AS draft_odd, own.even AS own_even,
    own.odd AS own_odd
FROM probe JOIN (SELECT run_id, draft_problem_id, own_problem_id FROM probe_point) AS point USING (run_id, draft_problem_id)
JOIN half AS draft ON (draft.run_id, draft.problem_id) = (probe.run_id, probe.draft_problem_id)
JOIN half AS own ON (own.run_id, own.problem_id) = (probe.run_id, point.own_problem_id)
JOIN problem ON (problem.run_id, problem.problem_id) = (probe.run_id, probe.draft_problem_id)
JOIN counted_version ON counted_version.run_id = probe.run_id
WHERE list_contains($run_ids::VARCHAR[], probe.run_id) AND num_draft_rollouts > 0 AND num_own_rollouts > 0
WINDOW texts AS (PARTITION BY probe.run_id ORDER BY problem.text),
    families AS (PARTITION BY probe.run_id ORDER BY coalesce(family, problem.text))
ORDER BY probe.run_id, draft_problem_id
