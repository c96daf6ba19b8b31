-- Probes: what a draft's proposal was worth, next to the target's own step at the same place.

CREATE OR REPLACE VIEW probe AS
WITH continued AS (
    SELECT run_id, problem_id, count(*) FILTER (graded) AS num_rollouts, count(*) FILTER (verdict = 'correct') AS num_correct
    FROM sample_grade SEMI JOIN probe_point USING (run_id) GROUP BY run_id, problem_id
)
SELECT point.run_id, point.draft_problem_id, source_run_id, point.sample_id, point.step_index, point.candidate_index,
    source.problem_id, least(3 * point.step_index // point.num_steps, 2) + 1 AS third, point.num_steps, point.kind, point.value,
    point.accepts_below, point.accepted, point.weight,
    draft.num_rollouts AS num_draft_rollouts, draft.num_correct AS num_draft_correct,
    own.num_rollouts AS num_own_rollouts, own.num_correct AS num_own_correct,
    num_draft_correct / nullif(num_draft_rollouts, 0) AS draft_worth, num_own_correct / nullif(num_own_rollouts, 0) AS own_worth,
    own_worth - draft_worth AS loss, point.num_ending
FROM probe_point AS point
JOIN continued AS draft ON (draft.run_id, draft.problem_id) = (point.run_id, point.draft_problem_id)
JOIN continued AS own ON (own.run_id, own.problem_id) = (point.run_id, point.own_problem_id)
LEFT JOIN sample AS source ON (source.run_id, source.sample_id) = (point.source_run_id, point.sample_id);
COMMENT ON VIEW probe IS 'What a draft''s proposal was worth (python -m jobs probe): the share of the target''s continuations behind it that end right, and of those from where it began, so that the step there is the target''s own. loss: how much less the proposal is worth. Rates over these points need their weights: they are in the table estimate (metrics probe_…) and in warehouse.probed';
