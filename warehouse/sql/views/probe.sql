-- Probes: the value of a draft's proposal compared with the target's own step.

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
COMMENT ON VIEW probe IS 'Value of a draft''s proposal (python -m jobs probe): share of the target''s continuations with a correct answer after the proposal, and after the target''s own step instead. loss: difference of the two. Rates over these points require their weights; see the table estimate (metrics probe_…) and warehouse.probed';
