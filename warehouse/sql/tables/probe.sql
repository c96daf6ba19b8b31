-- What a probe looked at: decisions of another run, from which the target went on twice (python -m jobs probe).

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
COMMENT ON TABLE probe_point IS 'A decision of another run that a probe looks at, from probe/ in the run folder of the probe. Key: run_id, draft_problem_id';
COMMENT ON COLUMN probe_point.run_id IS 'The probe''s run';
COMMENT ON COLUMN probe_point.draft_problem_id IS 'The problem of the probe that begins with the chain and the draft''s proposal';
COMMENT ON COLUMN probe_point.own_problem_id IS 'The problem of the probe that begins with the chain before the proposal';
COMMENT ON COLUMN probe_point.source_run_id IS 'The run that decided';
COMMENT ON COLUMN probe_point.sample_id IS 'The sample of that run';
COMMENT ON COLUMN probe_point.step_index IS 'The step that was decided about';
COMMENT ON COLUMN probe_point.candidate_index IS 'The accepted candidate, or the refused one that is probed';
COMMENT ON COLUMN probe_point.num_steps IS 'Steps of the sample''s whole chain [count]';
COMMENT ON COLUMN probe_point.kind IS 'What decided: choice and score are verdicts';
COMMENT ON COLUMN probe_point.value IS 'The number that was decided by; of a choice the probability that some candidate is accepted [0 to 9, 0 to 1]';
COMMENT ON COLUMN probe_point.accepts_below IS 'Whether numbers up to the threshold are accepted';
COMMENT ON COLUMN probe_point.accepted IS 'Whether the draft''s proposal was accepted';
COMMENT ON COLUMN probe_point.weight IS 'Decisions of the run that the point stands for [count]';
COMMENT ON COLUMN probe_point.num_ending IS 'Decisions of the run about the end of the reply, which no probe can continue, the same in every row [count]';
