-- What the target gives each accepted step, from derived/ in the run folder.

CREATE TABLE step_target_logprob (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    num_tokens INTEGER NOT NULL,
    logprob DOUBLE,
    lowest_logprob DOUBLE
);
COMMENT ON TABLE step_target_logprob IS 'Log-probability of one accepted step under the target, given its own prompt and all steps before, at temperature 1 and before any truncation (python -m jobs target-logprobs). Key: run_id, sample_id, step_index';
COMMENT ON COLUMN step_target_logprob.num_tokens IS 'Generated tokens of the step as the target''s tokenizer splits them: without the end of sequence, without text that the harness added, and without what the target''s context did not hold';
COMMENT ON COLUMN step_target_logprob.logprob IS 'Sum over these tokens (nats); NULL where the engine gave none, or one that is not finite';
COMMENT ON COLUMN step_target_logprob.lowest_logprob IS 'That of the least probable token (nats); NULL without any';

CREATE TABLE sample_target_logprob (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    sample_index INTEGER NOT NULL,
    target VARCHAR NOT NULL,
    num_tokens BIGINT NOT NULL,
    logprob DOUBLE NOT NULL
);
COMMENT ON TABLE sample_target_logprob IS 'step_target_logprob summed over the chains that have a number for every step and a token at all. Key: run_id, sample_id';
COMMENT ON COLUMN sample_target_logprob.target IS 'Content hash, or hub id and revision, of the target that read the chain: the run''s own, or for a run by the draft alone that of another run';
COMMENT ON COLUMN sample_target_logprob.num_tokens IS 'Sum over the steps';
COMMENT ON COLUMN sample_target_logprob.logprob IS 'Sum over the steps (nats)';
