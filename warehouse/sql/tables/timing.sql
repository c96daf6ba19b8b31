-- Timing samples: some samples of a run repeated one at a time (--latency-sample). They are not samples of the run: no
-- view over samples, tokens or grades reads these tables.

CREATE TABLE timing_draw (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    stratum INTEGER NOT NULL,
    is_timed BOOLEAN NOT NULL
);
COMMENT ON TABLE timing_draw IS 'Candidates for timing samples: all samples that ended without an error. Key: run_id, sample_id';
COMMENT ON COLUMN timing_draw.stratum IS 'Stratum by level and length; strata of consecutive numbers are alike [from 0]';
COMMENT ON COLUMN timing_draw.is_timed IS 'Whether it was drawn to be repeated alone';

CREATE TABLE timing_sample (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    sample_index INTEGER NOT NULL,
    attempt_id VARCHAR NOT NULL,
    hostname VARCHAR,
    device VARCHAR,
    seed BIGINT,
    started_at TIMESTAMP,
    stop_reason VARCHAR NOT NULL,
    error VARCHAR,
    latency_seconds DOUBLE,
    num_attempts INTEGER,
    emitted_tokens BIGINT NOT NULL,
    answer_tokens DOUBLE NOT NULL,
    answer_seconds DOUBLE NOT NULL
);
COMMENT ON TABLE timing_sample IS 'Samples repeated one at a time, with other random numbers. Key: run_id, sample_id';
COMMENT ON COLUMN timing_sample.sample_id IS 'The sample of the run that it repeats';
COMMENT ON COLUMN timing_sample.sample_index IS 'Index of the repeated sample, from 0 to k − 1';
COMMENT ON COLUMN timing_sample.attempt_id IS 'Attempt that timed it; not in the table attempt';
COMMENT ON COLUMN timing_sample.hostname IS 'Node';
COMMENT ON COLUMN timing_sample.device IS 'cpu, or the name of the first GPU that the engines held';
COMMENT ON COLUMN timing_sample.seed IS 'Its own seed';
COMMENT ON COLUMN timing_sample.started_at IS 'Start (UTC)';
COMMENT ON COLUMN timing_sample.stop_reason IS 'answered, budget, repeated, context or error';
COMMENT ON COLUMN timing_sample.error IS 'Class and message of the exception, for stop reason error';
COMMENT ON COLUMN timing_sample.latency_seconds IS 'Wall time';
COMMENT ON COLUMN timing_sample.num_attempts IS '1; if above 1, an engine was restarted, and the latency does not count';
COMMENT ON COLUMN timing_sample.emitted_tokens IS 'Tokens of its accepted chain';
COMMENT ON COLUMN timing_sample.answer_tokens IS 'Tokens of its final answer, as in sample_answer';
COMMENT ON COLUMN timing_sample.answer_seconds IS 'Time of its final answer, as in sample_answer';

CREATE TABLE timing_call (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    call_index INTEGER NOT NULL,
    step_index INTEGER NOT NULL,
    purpose VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    n INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    unread_prompt_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    longest_output_tokens INTEGER NOT NULL,
    queued_seconds DOUBLE NOT NULL,
    first_token_seconds DOUBLE NOT NULL,
    end_seconds DOUBLE NOT NULL,
    overlapped_seconds DOUBLE NOT NULL
);
COMMENT ON TABLE timing_call IS 'One request to an engine by a timing sample, as in call. Key: run_id, sample_id, call_index';
COMMENT ON COLUMN timing_call.sample_id IS 'The sample of the run that the timing sample repeats';
COMMENT ON COLUMN timing_call.unread_prompt_tokens IS 'Prompt tokens beyond the longest earlier prompt of this sample and model: misses of a perfect cache';

CREATE TABLE timing_work (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    is_timed BOOLEAN NOT NULL,
    part VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    num_calls BIGINT NOT NULL,
    new_prompt_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    further_output_tokens BIGINT NOT NULL
);
COMMENT ON TABLE timing_work IS 'Calls that a sample of timing_draw, or its repeat, waited for: inputs of the latency model. The inputs depend only on the chain, not on the load, so predictions for a sample and its repeat are comparable. Key: run_id, sample_id, is_timed, part, model';
COMMENT ON COLUMN timing_work.sample_id IS 'The sample of the run';
COMMENT ON COLUMN timing_work.is_timed IS 'Whether it is the chain of the timing sample';
COMMENT ON COLUMN timing_work.part IS 'after: calls after all earlier ones; ahead: drafts begun during a verdict (--lookahead); under: the verdicts during which these drafts began';
COMMENT ON COLUMN timing_work.model IS 'draft, target or reward';
COMMENT ON COLUMN timing_work.num_calls IS 'Calls';
COMMENT ON COLUMN timing_work.new_prompt_tokens IS 'Sum of timing_call.unread_prompt_tokens';
COMMENT ON COLUMN timing_work.output_tokens IS 'Tokens of each call''s longest completion';
COMMENT ON COLUMN timing_work.further_output_tokens IS 'Tokens of each call''s longest completion, times its completions beyond the first';
