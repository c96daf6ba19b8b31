-- Points of a probe: decisions of another run, continued by the target with and without the draft's step
-- (python -m jobs probe).

CREATE TABLE probe_point (
    run_id VARCHAR NOT NULL,
    draft_problem_id VARCHAR NOT NULL,
    own_problem_id VARCHAR NOT NULL,
    source_run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    candidate_index INTEGER NOT NULL,
    num_steps INTEGER NOT NULL,
    kind VARCHAR NOT NULL,
    value DOUBLE,
    accepts_below BOOLEAN NOT NULL,
    accepted BOOLEAN NOT NULL,
    weight DOUBLE NOT NULL,
    num_ending INTEGER
);
COMMENT ON TABLE probe_point IS 'A decision of another run examined by a probe, from probe/ in the probe''s run folder. Key: run_id, draft_problem_id';
COMMENT ON COLUMN probe_point.run_id IS 'The probe''s run';
COMMENT ON COLUMN probe_point.draft_problem_id IS 'The problem of the probe that begins with the chain and the draft''s proposal';
COMMENT ON COLUMN probe_point.own_problem_id IS 'The problem of the probe that begins with the chain before the proposal';
COMMENT ON COLUMN probe_point.source_run_id IS 'The probed run';
COMMENT ON COLUMN probe_point.sample_id IS 'The sample of that run';
COMMENT ON COLUMN probe_point.step_index IS 'Step of the decision';
COMMENT ON COLUMN probe_point.candidate_index IS 'The accepted candidate, or the probed rejected one';
COMMENT ON COLUMN probe_point.num_steps IS 'Steps of the sample''s whole chain [count]';
COMMENT ON COLUMN probe_point.kind IS 'Basis of the decision: choice and score are verdicts';
COMMENT ON COLUMN probe_point.value IS 'Score used by the decision; for a choice the probability that a candidate is accepted [0 to 9, 0 to 1]';
COMMENT ON COLUMN probe_point.accepts_below IS 'Whether scores up to the threshold are accepted';
COMMENT ON COLUMN probe_point.accepted IS 'Whether the draft''s proposal was accepted';
COMMENT ON COLUMN probe_point.weight IS 'Number of the run''s decisions represented by the point [count]';
COMMENT ON COLUMN probe_point.num_ending IS 'Number of the run''s decisions on proposals that end the reply, so nothing can follow; equal in all rows [count]';
