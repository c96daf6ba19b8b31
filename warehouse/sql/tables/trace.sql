-- Samples and what their traces hold.
-- step, candidate and call have no enforced key: their indexes would cost most of the load, and their keys hold by
-- construction (each sample is taken from one file, its lists are numbered by position).

CREATE TABLE sample (
    run_id VARCHAR,
    sample_id VARCHAR,
    problem_id VARCHAR NOT NULL,
    sample_index INTEGER NOT NULL,
    shard INTEGER NOT NULL,
    attempt_id VARCHAR,
    seed BIGINT,
    started_at TIMESTAMP,
    draft_prompt VARCHAR,
    target_prompt VARCHAR,
    stop_reason VARCHAR,
    error VARCHAR,
    latency_seconds DOUBLE,
    num_attempts INTEGER,
    PRIMARY KEY (run_id, sample_id)
);
COMMENT ON TABLE sample IS 'One planned answer to one problem, run or not yet: the denominator. Key: run_id, sample_id';
COMMENT ON COLUMN sample.sample_id IS 'Hash of problem, method, models, sampling and seed; runs that differ in speed only share it';
COMMENT ON COLUMN sample.shard IS 'Shard that the sample is planned in';
COMMENT ON COLUMN sample.attempt_id IS 'Attempt that finished it; NULL while it is not finished';
COMMENT ON COLUMN sample.seed IS 'The sample''s seed';
COMMENT ON COLUMN sample.started_at IS 'Start of the first attempt (UTC)';
COMMENT ON COLUMN sample.draft_prompt IS 'Text that the draft model was given before any step';
COMMENT ON COLUMN sample.target_prompt IS 'Text that the target model was given before any step';
COMMENT ON COLUMN sample.stop_reason IS 'answered, budget, repeated, context or error; NULL while it is not finished';
COMMENT ON COLUMN sample.error IS 'Class and message of what ended the sample, for stop reason error';
COMMENT ON COLUMN sample.latency_seconds IS 'Wall time of work on the sample, all attempts together';
COMMENT ON COLUMN sample.num_attempts IS 'Worker attempts and engine restarts it lived through; above 1 the latency is not comparable';

CREATE TABLE step (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    author VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    num_tokens INTEGER NOT NULL,
    num_characters INTEGER NOT NULL,
    characters_after_thought INTEGER,
    tokens_after_thought INTEGER,
    num_wait INTEGER NOT NULL,
    num_but INTEGER NOT NULL,
    num_hmm INTEGER NOT NULL,
    num_offered INTEGER,
    finish VARCHAR,
    elapsed_seconds DOUBLE,
    verdict_model VARCHAR,
    verdict_kind VARCHAR,
    verdict_question VARCHAR,
    verdict_options VARCHAR[],
    verdict_logprobs DOUBLE[],
    verdict_decision INTEGER,
    verdict_probability DOUBLE,
    verdict_mass DOUBLE,
    verdict_score DOUBLE,
    verdict_expected_score DOUBLE,
    verdict_acceptance_probability DOUBLE,
    verdict_accepted BOOLEAN,
    earlier_verdicts STRUCT(
        kind VARCHAR, question VARCHAR, options VARCHAR[], logprobs DOUBLE[], decision INTEGER, score DOUBLE,
        accepted BOOLEAN, model VARCHAR)[],
    decision_kind VARCHAR,
    decision_value DOUBLE,
    decision_threshold DOUBLE,
    decision_accepts_below BOOLEAN,
    decision_accepted BOOLEAN
);
COMMENT ON TABLE step IS 'One accepted piece of a chain of thought, with the verdict and the decision that led to it. Key: run_id, sample_id, step_index';
COMMENT ON COLUMN step.step_index IS 'Place in the chain, from 0';
COMMENT ON COLUMN step.author IS 'draft or target';
COMMENT ON COLUMN step.role IS 'guidance, draft, fallback, rethink, chain, closing or answer, or a word of the method''s own';
COMMENT ON COLUMN step.text IS 'What the chain contains';
COMMENT ON COLUMN step.num_tokens IS 'Emitted tokens: what the author generated for it. Token ids stay in the trace file';
COMMENT ON COLUMN step.num_characters IS 'Length of the text';
COMMENT ON COLUMN step.characters_after_thought IS 'Length of the text behind its last </think>, outer blanks left out; NULL where it has none';
COMMENT ON COLUMN step.tokens_after_thought IS 'Tokens behind its last </think>, counted in the ids of the trace; NULL where it has none, or where the worker did not record the id of </think>';
COMMENT ON COLUMN step.num_wait IS 'How often the text says «wait», as a word, in any case';
COMMENT ON COLUMN step.num_but IS 'How often the text says «but»';
COMMENT ON COLUMN step.num_hmm IS 'How often the text says «hm», «hmm», …';
COMMENT ON COLUMN step.num_offered IS 'Distinct candidates that a verdict was asked about; NULL where nothing was proposed or offered';
COMMENT ON COLUMN step.finish IS 'stop, eos or length';
COMMENT ON COLUMN step.elapsed_seconds IS 'Active time of the sample until this step was accepted';
COMMENT ON COLUMN step.verdict_model IS 'Who gave the verdict: draft, target or reward; of several verdicts the last, which decided';
COMMENT ON COLUMN step.verdict_kind IS 'choice, score or reward; NULL where no verdict was asked for';
COMMENT ON COLUMN step.verdict_question IS 'Text asked after the chain, exactly as sent';
COMMENT ON COLUMN step.verdict_options IS 'Option labels';
COMMENT ON COLUMN step.verdict_logprobs IS 'Log-probability of each option before any mask (nats)';
COMMENT ON COLUMN step.verdict_decision IS 'Index of the decided option, from 0';
COMMENT ON COLUMN step.verdict_probability IS 'Probability of the decided option, normalised over the options';
COMMENT ON COLUMN step.verdict_mass IS 'Probability of all options together; low: the question was not understood';
COMMENT ON COLUMN step.verdict_score IS 'Score, or the probability by a reward model, that was compared with the threshold; NULL for a choice';
COMMENT ON COLUMN step.verdict_expected_score IS 'Probability-weighted mean of the digits; NULL but for a score';
COMMENT ON COLUMN step.verdict_acceptance_probability IS 'Probability of all candidates together, against reject; NULL but for a choice';
COMMENT ON COLUMN step.verdict_accepted IS 'Whether a candidate was accepted; false: all were refused';
COMMENT ON COLUMN step.earlier_verdicts IS 'Verdicts on this step before the last one, in their order; NULL where there was one or none. The view verdict has one row for each';
COMMENT ON COLUMN step.decision_kind IS 'What decided about the draft''s proposal: choice or score (a verdict), the method''s own word (confidence, agreement, reward, …), or unstated: candidates were accepted or refused without a record of how; NULL: nothing was decided';
COMMENT ON COLUMN step.decision_value IS 'Number that was decided by: of a choice the probability of all candidates together, of a score the score; NULL: there is none';
COMMENT ON COLUMN step.decision_threshold IS 'What the number was compared with; NULL where it was not compared';
COMMENT ON COLUMN step.decision_accepts_below IS 'Whether numbers up to the threshold are accepted, as of an entropy; false: from the threshold on';
COMMENT ON COLUMN step.decision_accepted IS 'Whether a proposal of the draft was accepted; false: all were refused';

CREATE TABLE candidate (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    candidate_index INTEGER NOT NULL,
    text VARCHAR NOT NULL,
    num_tokens INTEGER NOT NULL,
    finish VARCHAR,
    mean_logprob DOUBLE,
    option INTEGER,
    accepted BOOLEAN NOT NULL,
    verdict_score DOUBLE
);
COMMENT ON TABLE candidate IS 'One proposal for a step. Key: run_id, sample_id, step_index, candidate_index';
COMMENT ON COLUMN candidate.step_index IS 'The step it was proposed for';
COMMENT ON COLUMN candidate.candidate_index IS 'Place among the candidates, from 0';
COMMENT ON COLUMN candidate.text IS 'What was proposed';
COMMENT ON COLUMN candidate.num_tokens IS 'Generated tokens';
COMMENT ON COLUMN candidate.finish IS 'stop, eos or length';
COMMENT ON COLUMN candidate.mean_logprob IS 'Mean log-probability of its tokens (nats); NULL where the engines were not asked for it (--logprobs)';
COMMENT ON COLUMN candidate.option IS 'Index of the verdict''s option that stood for it; NULL: not offered';
COMMENT ON COLUMN candidate.accepted IS 'Whether it became the step';
COMMENT ON COLUMN candidate.verdict_score IS 'Score by the target, 0 to 9, where each candidate had a verdict of its own (SpecCoT, --verdict separate)';

CREATE TABLE call (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    call_index INTEGER NOT NULL,
    step_index INTEGER NOT NULL,
    purpose VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    n INTEGER NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    longest_output_tokens INTEGER NOT NULL,
    submitted_at TIMESTAMP NOT NULL,
    queued_seconds DOUBLE NOT NULL,
    first_token_seconds DOUBLE NOT NULL,
    end_seconds DOUBLE NOT NULL,
    in_flight INTEGER NOT NULL,
    proposed_tokens INTEGER,
    confirmed_tokens INTEGER,
    overlapped_seconds DOUBLE NOT NULL
);
COMMENT ON TABLE call IS 'One request to an engine. Key: run_id, sample_id, call_index';
COMMENT ON COLUMN call.call_index IS 'Order within the sample, from 0';
COMMENT ON COLUMN call.step_index IS 'The step that the call worked for';
COMMENT ON COLUMN call.purpose IS 'guidance, draft, verdict, fallback, rethink, chain or answer; probe: what the chain does not keep; lookahead: a draft begun before its turn and thrown away';
COMMENT ON COLUMN call.model IS 'draft or target';
COMMENT ON COLUMN call.n IS 'Completions asked for in parallel';
COMMENT ON COLUMN call.prompt_tokens IS 'Tokens of the prompt';
COMMENT ON COLUMN call.cached_tokens IS 'Prompt tokens found in the prefix cache';
COMMENT ON COLUMN call.output_tokens IS 'Spent tokens: of all n completions together';
COMMENT ON COLUMN call.longest_output_tokens IS 'Tokens of the longest completion: the critical path, but for a lookahead';
COMMENT ON COLUMN call.submitted_at IS 'When it was submitted (UTC)';
COMMENT ON COLUMN call.queued_seconds IS 'From submission to the first scheduling';
COMMENT ON COLUMN call.first_token_seconds IS 'From submission to the first token';
COMMENT ON COLUMN call.end_seconds IS 'From submission to the end';
COMMENT ON COLUMN call.in_flight IS 'Requests of this engine under way at submission, this one included';
COMMENT ON COLUMN call.proposed_tokens IS 'Tokens that token-level speculation proposed; NULL: there was none, or this vLLM does not count';
COMMENT ON COLUMN call.confirmed_tokens IS 'How many of these the model confirmed';
COMMENT ON COLUMN call.overlapped_seconds IS 'Of end_seconds, from submission on: how long the sample did not wait for it (specreason --lookahead); all of a lookahead';
