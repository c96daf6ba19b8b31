-- The target's log-probability of each accepted step, from derived/ in the run folder.

CREATE TABLE step_target_logprob (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    num_tokens INTEGER NOT NULL,
    logprob DOUBLE,
    lowest_logprob DOUBLE
);
COMMENT ON TABLE step_target_logprob IS 'Log-probability of one accepted step under the target, given its own prompt and all preceding steps, at temperature 1 and before any truncation (python -m jobs target-logprobs). Key: run_id, sample_id, step_index';
COMMENT ON COLUMN step_target_logprob.num_tokens IS 'Generated tokens of the step as the target''s tokenizer splits them: without the end of sequence, without text added by the harness, and without text beyond the target''s context';
COMMENT ON COLUMN step_target_logprob.logprob IS 'Sum over the num_tokens tokens (nats); NULL: missing or not finite';
COMMENT ON COLUMN step_target_logprob.lowest_logprob IS 'Log-probability of the least probable token (nats); NULL: no tokens';

CREATE TABLE sample_target_logprob (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    sample_index INTEGER NOT NULL,
    target VARCHAR NOT NULL,
    num_tokens BIGINT NOT NULL,
    logprob DOUBLE NOT NULL
);
COMMENT ON TABLE sample_target_logprob IS 'step_target_logprob summed over chains with a value for every step and at least one token. Key: run_id, sample_id';
COMMENT ON COLUMN sample_target_logprob.target IS 'Content hash, or hub id and revision, of the target that scored the chain: the run''s own, or another run''s if the run has only the draft';
COMMENT ON COLUMN sample_target_logprob.num_tokens IS 'Sum over the steps';
COMMENT ON COLUMN sample_target_logprob.logprob IS 'Sum over the steps (nats)';
