-- Timing samples: some samples of a run again, one at a time (--latency-sample). They are no samples of the run: no view
-- over samples, tokens or grades reads these tables.

CREATE TABLE timing_draw (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    stratum INTEGER NOT NULL,
    is_timed BOOLEAN NOT NULL
);
COMMENT ON TABLE timing_draw IS 'The samples that timing samples were drawn from: all that ended without an error. Key: run_id, sample_id';
COMMENT ON COLUMN timing_draw.stratum IS 'Stratum by level and length; strata of consecutive numbers are alike [from 0]';
COMMENT ON COLUMN timing_draw.is_timed IS 'Whether it was drawn to run again alone';

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
COMMENT ON TABLE timing_sample IS 'Samples that ran again, one at a time, with other random numbers. Key: run_id, sample_id';
COMMENT ON COLUMN timing_sample.sample_id IS 'The sample of the run that it repeats';
COMMENT ON COLUMN timing_sample.sample_index IS 'From 0 to k − 1, of the sample that it repeats';
COMMENT ON COLUMN timing_sample.attempt_id IS 'Attempt that timed it; no row of attempt, which are those of the samples';
COMMENT ON COLUMN timing_sample.hostname IS 'Node';
COMMENT ON COLUMN timing_sample.device IS 'cpu, or the name of the first GPU that the engines held';
COMMENT ON COLUMN timing_sample.seed IS 'Its own seed';
COMMENT ON COLUMN timing_sample.started_at IS 'Start (UTC)';
COMMENT ON COLUMN timing_sample.stop_reason IS 'answered, budget, repeated, context or error';
COMMENT ON COLUMN timing_sample.error IS 'Class and message of what ended it, for stop reason error';
COMMENT ON COLUMN timing_sample.latency_seconds IS 'Wall time';
COMMENT ON COLUMN timing_sample.num_attempts IS '1; above 1 an engine was restarted meanwhile, and the latency does not count';
COMMENT ON COLUMN timing_sample.emitted_tokens IS 'Tokens of its accepted chain';
COMMENT ON COLUMN timing_sample.answer_tokens IS 'Those of its final answer, as sample_answer counts them';
COMMENT ON COLUMN timing_sample.answer_seconds IS 'Time of its final answer, as sample_answer has it';

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
COMMENT ON COLUMN timing_call.unread_prompt_tokens IS 'Prompt tokens beyond the longest prompt that the model had read for this sample before: what a perfect cache lacks';

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
COMMENT ON TABLE timing_work IS 'Calls that a sample of timing_draw, or its repeat, waited for: what the latency model predicts from. It depends on the chain alone and not on the load, so that both are predicted alike. Key: run_id, sample_id, is_timed, part, model';
COMMENT ON COLUMN timing_work.sample_id IS 'The sample of the run';
COMMENT ON COLUMN timing_work.is_timed IS 'Whether it is the chain of the timing sample';
COMMENT ON COLUMN timing_work.part IS 'after: calls after all earlier ones; ahead: drafts that were begun under a verdict (--lookahead); under: these verdicts';
COMMENT ON COLUMN timing_work.model IS 'draft, target or reward';
COMMENT ON COLUMN timing_work.num_calls IS 'Calls';
COMMENT ON COLUMN timing_work.new_prompt_tokens IS 'Sum of what timing_call.unread_prompt_tokens says';
COMMENT ON COLUMN timing_work.output_tokens IS 'Tokens of each call''s longest completion';
COMMENT ON COLUMN timing_work.further_output_tokens IS 'The same, times the completions of the call beyond the first';
