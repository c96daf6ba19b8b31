-- Totals, so that the views need not sum over all steps and calls. loading/insert_totals.sql computes them while a run
-- is loaded; a test compares them with the sums.

CREATE TABLE graded_sample (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    sample_index INTEGER NOT NULL,
    stop_reason VARCHAR,
    verdict VARCHAR NOT NULL,
    finished BOOLEAN NOT NULL,
    graded BOOLEAN NOT NULL,
    grader_version VARCHAR,
    extracted VARCHAR,
    rule VARCHAR,
    detail VARCHAR
);
COMMENT ON TABLE graded_sample IS 'One verdict per planned sample and grader version that graded the run, and one without grades (grader_version NULL); the view sample_grade shows the selected version. Key: run_id, sample_id, grader_version';
COMMENT ON COLUMN graded_sample.verdict IS 'One of the nine verdicts; not_run for unfinished samples, and for ungraded ones without an error';
COMMENT ON COLUMN graded_sample.finished IS 'Whether the sample has been run';
COMMENT ON COLUMN graded_sample.graded IS 'Whether there is a grade, or an error that needs none';
COMMENT ON COLUMN graded_sample.grader_version IS 'Version of the verdict; NULL: none';

CREATE TABLE grade_total (
    run_id VARCHAR NOT NULL,
    grader_version VARCHAR,
    num_samples BIGINT NOT NULL,
    num_correct BIGINT NOT NULL,
    num_not_run BIGINT NOT NULL,
    num_ungraded BIGINT NOT NULL,
    num_grades BIGINT NOT NULL,
    load_order INTEGER
);
COMMENT ON TABLE grade_total IS 'Sample counts of a run per grader version, and without grades (grader_version NULL). Key: run_id, grader_version';
COMMENT ON COLUMN grade_total.grader_version IS 'Versions of the grader and its libraries; NULL: none';
COMMENT ON COLUMN grade_total.num_samples IS 'Planned samples';
COMMENT ON COLUMN grade_total.num_grades IS 'Grades by this version';
COMMENT ON COLUMN grade_total.load_order IS 'The highest value is the newest version';

CREATE TABLE sample_tokens (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    emitted_tokens BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL,
    critical_path_tokens BIGINT NOT NULL
);
COMMENT ON TABLE sample_tokens IS 'The three token counts of each finished sample, by model. Key: run_id, sample_id, model';
COMMENT ON COLUMN sample_tokens.emitted_tokens IS 'In the accepted chain';
COMMENT ON COLUMN sample_tokens.spent_tokens IS 'Every output token of every call';
COMMENT ON COLUMN sample_tokens.critical_path_tokens IS 'Counts the longest of parallel candidates, and no discarded lookahead';

CREATE TABLE sample_work (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    purpose VARCHAR NOT NULL,
    num_calls BIGINT NOT NULL,
    longest_output_tokens BIGINT NOT NULL,
    first_token_seconds DOUBLE NOT NULL,
    decode_tokens BIGINT NOT NULL,
    decode_seconds DOUBLE NOT NULL
);
COMMENT ON TABLE sample_work IS 'Calls of each finished sample by model and purpose. Key: run_id, sample_id, model, purpose';
COMMENT ON COLUMN sample_work.first_token_seconds IS 'Sum over the calls of the time from the first scheduling to the first token';
COMMENT ON COLUMN sample_work.decode_tokens IS 'Sum over the calls of the longest completion''s tokens after the first token';
COMMENT ON COLUMN sample_work.decode_seconds IS 'Sum over the calls of the time from the first token to the end; 0 if the engine does not report the time of the first token';

CREATE TABLE timed_sample (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    attempt_id VARCHAR NOT NULL,
    latency_seconds DOUBLE NOT NULL,
    emitted_tokens BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL
);
COMMENT ON TABLE timed_sample IS 'Samples with a valid latency: finished in one attempt, without an error, and with a request to a model. Key: run_id, sample_id';
COMMENT ON COLUMN timed_sample.attempt_id IS 'The attempt';
COMMENT ON COLUMN timed_sample.latency_seconds IS 'As in sample';
COMMENT ON COLUMN timed_sample.emitted_tokens IS 'Of both models together';
COMMENT ON COLUMN timed_sample.spent_tokens IS 'Of both models together';

CREATE TABLE step_total (
    run_id VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    role VARCHAR NOT NULL,
    num_steps BIGINT NOT NULL,
    num_tokens BIGINT NOT NULL,
    num_verdicts BIGINT NOT NULL,
    num_decisions BIGINT NOT NULL,
    num_refused BIGINT NOT NULL,
    option_mass DOUBLE,
    num_wait BIGINT NOT NULL,
    num_but BIGINT NOT NULL,
    num_hmm BIGINT NOT NULL
);
COMMENT ON TABLE step_total IS 'Steps of a run by author and role. Key: run_id, author, role';
COMMENT ON COLUMN step_total.num_steps IS 'Steps';
COMMENT ON COLUMN step_total.num_tokens IS 'Emitted tokens';
COMMENT ON COLUMN step_total.num_verdicts IS 'Steps with a verdict';
COMMENT ON COLUMN step_total.num_decisions IS 'Steps with a decision, by a verdict or otherwise';
COMMENT ON COLUMN step_total.num_refused IS 'Decisions that rejected all candidates';
COMMENT ON COLUMN step_total.option_mass IS 'Sum of verdict_mass; NULL without verdicts';
COMMENT ON COLUMN step_total.num_wait IS 'Sum of step.num_wait';
COMMENT ON COLUMN step_total.num_but IS 'Sum of step.num_but';
COMMENT ON COLUMN step_total.num_hmm IS 'Sum of step.num_hmm';

CREATE TABLE problem_total (
    run_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    num_samples BIGINT NOT NULL,
    num_finished BIGINT NOT NULL,
    num_steps BIGINT NOT NULL,
    num_draft_steps BIGINT NOT NULL,
    num_decisions BIGINT NOT NULL,
    num_refused BIGINT NOT NULL,
    num_scores BIGINT NOT NULL,
    score DOUBLE,
    draft_words BIGINT NOT NULL,
    draft_tokens_written BIGINT NOT NULL,
    fallback_words BIGINT NOT NULL,
    fallback_tokens_written BIGINT NOT NULL,
    emitted_tokens BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL,
    critical_path_tokens BIGINT NOT NULL,
    draft_tokens BIGINT,
    target_tokens BIGINT NOT NULL,
    num_answered BIGINT NOT NULL,
    answer_tokens DOUBLE NOT NULL,
    target_answer_tokens DOUBLE NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    num_drafted BIGINT NOT NULL,
    longest_draft_tokens BIGINT NOT NULL,
    num_timed BIGINT NOT NULL,
    timed_seconds DOUBLE,
    timed_tokens BIGINT NOT NULL,
    token_rates DOUBLE NOT NULL,
    num_thoughts BIGINT NOT NULL,
    thought_rates DOUBLE NOT NULL,
    waited_seconds DOUBLE NOT NULL,
    drafting_seconds DOUBLE NOT NULL,
    verdict_seconds DOUBLE NOT NULL,
    timed_answer_seconds DOUBLE NOT NULL
);
COMMENT ON TABLE problem_total IS 'Sums over the samples of a problem; the measures are ratios of them (warehouse/measures.py). Key: run_id, problem_id';
COMMENT ON COLUMN problem_total.num_samples IS 'Planned samples';
COMMENT ON COLUMN problem_total.num_finished IS 'Samples that have been run';
COMMENT ON COLUMN problem_total.num_steps IS 'Steps';
COMMENT ON COLUMN problem_total.num_draft_steps IS 'Steps that the draft wrote';
COMMENT ON COLUMN problem_total.num_decisions IS 'Steps with a decision';
COMMENT ON COLUMN problem_total.num_scores IS 'Verdicts with a score';
COMMENT ON COLUMN problem_total.score IS 'Sum of step.verdict_score';
COMMENT ON COLUMN problem_total.draft_words IS 'Occurrences of «wait», «but» and «hmm» in steps of role draft';
COMMENT ON COLUMN problem_total.draft_tokens_written IS 'Tokens of the steps of role draft';
COMMENT ON COLUMN problem_total.fallback_words IS 'Occurrences of «wait», «but» and «hmm» in steps of role fallback';
COMMENT ON COLUMN problem_total.fallback_tokens_written IS 'Tokens of the steps of role fallback';
COMMENT ON COLUMN problem_total.emitted_tokens IS 'Emitted tokens of all models, as in sample_tokens';
COMMENT ON COLUMN problem_total.spent_tokens IS 'Spent tokens of all models, as in sample_tokens';
COMMENT ON COLUMN problem_total.critical_path_tokens IS 'Critical-path tokens of all models, as in sample_tokens';
COMMENT ON COLUMN problem_total.draft_tokens IS 'Emitted tokens of the draft; NULL: the run has none';
COMMENT ON COLUMN problem_total.target_tokens IS 'Emitted tokens of the target';
COMMENT ON COLUMN problem_total.num_answered IS 'Samples with a final answer';
COMMENT ON COLUMN problem_total.answer_tokens IS 'Tokens of the final answers';
COMMENT ON COLUMN problem_total.target_answer_tokens IS 'Tokens of the final answers written by the target';
COMMENT ON COLUMN problem_total.prompt_tokens IS 'Sum of call.prompt_tokens';
COMMENT ON COLUMN problem_total.cached_tokens IS 'Sum of call.cached_tokens';
COMMENT ON COLUMN problem_total.num_drafted IS 'Samples with a call of purpose draft';
COMMENT ON COLUMN problem_total.longest_draft_tokens IS 'Sum of call.longest_output_tokens over the calls of purpose draft';
COMMENT ON COLUMN problem_total.num_timed IS 'Samples in timed_sample; the following columns cover only them';
COMMENT ON COLUMN problem_total.timed_seconds IS 'Sum of the latencies; NULL if one is infinite';
COMMENT ON COLUMN problem_total.timed_tokens IS 'Emitted tokens of the timed samples';
COMMENT ON COLUMN problem_total.token_rates IS 'Sum over samples of emitted tokens per second';
COMMENT ON COLUMN problem_total.num_thoughts IS 'Samples with a positive reasoning time';
COMMENT ON COLUMN problem_total.thought_rates IS 'Sum over the num_thoughts samples of reasoning tokens per second, without the answer';
COMMENT ON COLUMN problem_total.waited_seconds IS 'Time of the calls that the samples waited for';
COMMENT ON COLUMN problem_total.drafting_seconds IS 'Part of waited_seconds for calls of purpose draft';
COMMENT ON COLUMN problem_total.verdict_seconds IS 'Part of waited_seconds for calls of purpose verdict';
COMMENT ON COLUMN problem_total.timed_answer_seconds IS 'Time of the final answers';

CREATE TABLE sample_answer (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    num_tokens DOUBLE NOT NULL,
    is_estimated BOOLEAN NOT NULL,
    seconds DOUBLE NOT NULL
);
COMMENT ON TABLE sample_answer IS 'Length of the final answer: the text after the last </think>, or else the steps of role answer; samples without either have no row. Key: run_id, sample_id, author';
COMMENT ON COLUMN sample_answer.num_tokens IS 'Emitted tokens; for a step with reasoning and answer, the tokens after </think> by their ids, or by the share of characters if the id of </think> was not recorded';
COMMENT ON COLUMN sample_answer.is_estimated IS 'Whether a share of characters was used; false: exact';
COMMENT ON COLUMN sample_answer.seconds IS 'Time that the sample waited for the answer; for a step with reasoning and answer, the answer''s share of the time after the first token';

CREATE TABLE decision_kinds (
    run_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    num_decisions BIGINT NOT NULL,
    num_refused BIGINT NOT NULL,
    fallback_rate DOUBLE NOT NULL,
    num_values BIGINT NOT NULL,
    lowest_value DOUBLE,
    median_value DOUBLE,
    highest_value DOUBLE,
    lowest_threshold DOUBLE,
    highest_threshold DOUBLE,
    accepts_below BOOLEAN NOT NULL
);
COMMENT ON TABLE decision_kinds IS 'Decisions of a run by kind: their number, rejections of all candidates, scores and thresholds. Over steps, not over problems. Key: run_id, kind';
COMMENT ON COLUMN decision_kinds.num_decisions IS 'Steps with a decision of this kind';
COMMENT ON COLUMN decision_kinds.num_refused IS 'Number that rejected all candidates';
COMMENT ON COLUMN decision_kinds.fallback_rate IS 'num_refused divided by num_decisions';
COMMENT ON COLUMN decision_kinds.num_values IS 'Decisions with a score';
COMMENT ON COLUMN decision_kinds.lowest_value IS 'Lowest score of a decision';
COMMENT ON COLUMN decision_kinds.median_value IS 'Median score';
COMMENT ON COLUMN decision_kinds.highest_value IS 'Highest score';
COMMENT ON COLUMN decision_kinds.lowest_threshold IS 'Lowest threshold; NULL: none';
COMMENT ON COLUMN decision_kinds.highest_threshold IS 'Highest threshold';
COMMENT ON COLUMN decision_kinds.accepts_below IS 'Whether low scores are accepted';

CREATE TABLE refusals (
    run_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    place VARCHAR NOT NULL,
    num_decisions BIGINT NOT NULL,
    num_refused BIGINT NOT NULL,
    refusal_rate DOUBLE NOT NULL,
    num_repeated BIGINT NOT NULL,
    share_repeated DOUBLE
);
COMMENT ON TABLE refusals IS 'Rejections of new steps and of begun steps. A judge with a good question rarely rejects the text that the target then writes. A high share_repeated, or a much higher refusal_rate for begun steps, indicates a bad question. Key: run_id, kind, place';
COMMENT ON COLUMN refusals.place IS 'begun step: the previous step ended without a blank line, for example after guidance of fixed length or a truncated step; otherwise new step';
COMMENT ON COLUMN refusals.num_decisions IS 'Steps with a decision';
COMMENT ON COLUMN refusals.refusal_rate IS 'Share of the decisions that reject';
COMMENT ON COLUMN refusals.num_repeated IS 'Rejections after which the target wrote exactly a rejected text, up to outer blanks';
COMMENT ON COLUMN refusals.share_repeated IS 'num_repeated as a share of the rejections; NULL: no rejections';

CREATE TABLE draft_selection (
    run_id VARCHAR NOT NULL,
    num_offered INTEGER NOT NULL,
    option_index INTEGER NOT NULL,
    is_reject BOOLEAN NOT NULL,
    num_verdicts BIGINT NOT NULL,
    num_chosen BIGINT NOT NULL,
    share DOUBLE NOT NULL,
    mean_probability DOUBLE NOT NULL
);
COMMENT ON TABLE draft_selection IS 'How often each option of a choice was selected, by the number of distinct candidates offered; equal candidates share an option. Unequal shares indicate a position bias. Key: run_id, num_offered, option_index';
COMMENT ON COLUMN draft_selection.num_offered IS 'Distinct candidates offered; 0: unknown';
COMMENT ON COLUMN draft_selection.option_index IS 'The option, from 0';
COMMENT ON COLUMN draft_selection.is_reject IS 'Whether the option rejects all candidates';
COMMENT ON COLUMN draft_selection.num_verdicts IS 'Verdicts with this option';
COMMENT ON COLUMN draft_selection.num_chosen IS 'How often the option was chosen';
COMMENT ON COLUMN draft_selection.share IS 'num_chosen divided by num_verdicts';
COMMENT ON COLUMN draft_selection.mean_probability IS 'Mean probability of the option, normalised over the options; verdicts without probability on their options count as 0';

CREATE TABLE rating_total (
    run_id VARCHAR NOT NULL,
    grader_version VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    accepted BOOLEAN NOT NULL,
    accepts_below BOOLEAN NOT NULL,
    rating DOUBLE NOT NULL,
    expected_rating DOUBLE NOT NULL,
    num_correct BIGINT NOT NULL,
    num_incorrect BIGINT NOT NULL
);
COMMENT ON TABLE rating_total IS 'Decisions of a run by score and correctness of the sample, for every grader version; without ungraded samples and decisions without a score. Key: all columns except num_correct and num_incorrect';
COMMENT ON COLUMN rating_total.accepted IS 'Whether a candidate was accepted';
COMMENT ON COLUMN rating_total.accepts_below IS 'Whether low scores are accepted';
COMMENT ON COLUMN rating_total.rating IS 'decision_value: with two decimals for score and choice, with three significant digits for other kinds';
COMMENT ON COLUMN rating_total.expected_rating IS 'score: verdict_expected_score, with two decimals; other kinds: as rating';
COMMENT ON COLUMN rating_total.num_correct IS 'Decisions whose sample is correct';
COMMENT ON COLUMN rating_total.num_incorrect IS 'Decisions whose sample is not correct';

CREATE TABLE replay_total (
    run_id VARCHAR NOT NULL,
    grader_version VARCHAR,
    score VARCHAR NOT NULL,
    threshold DOUBLE NOT NULL,
    is_own BOOLEAN NOT NULL,
    num_problems BIGINT NOT NULL,
    num_exact_problems BIGINT NOT NULL,
    num_samples BIGINT NOT NULL,
    num_changed_samples BIGINT NOT NULL,
    num_steps BIGINT NOT NULL,
    num_exact_steps BIGINT NOT NULL,
    accuracy_at_least DOUBLE,
    accuracy_at_most DOUBLE,
    accuracy_of_run DOUBLE
);
COMMENT ON TABLE replay_total IS 'Score verdicts and other numeric decisions of a run under another rule, per grader version and without grades; see the view threshold_replay. Key: run_id, grader_version, score, threshold';
COMMENT ON COLUMN replay_total.grader_version IS 'Version of the grades; NULL: none';
COMMENT ON COLUMN replay_total.score IS 'What is compared with the threshold: greedy or average (the scores of verdicts), or the kind of the decision';
COMMENT ON COLUMN replay_total.threshold IS 'Lowest accepted score, or the highest if low scores are accepted';
COMMENT ON COLUMN replay_total.is_own IS 'Whether this is the run''s own rule';
COMMENT ON COLUMN replay_total.num_problems IS 'Problems with a sample that has this kind of score';
COMMENT ON COLUMN replay_total.num_exact_problems IS 'Problems in which no sample changes';
COMMENT ON COLUMN replay_total.num_samples IS 'Samples with this kind of score';
COMMENT ON COLUMN replay_total.num_changed_samples IS 'Samples with a changed decision';
COMMENT ON COLUMN replay_total.num_steps IS 'Steps of the samples';
COMMENT ON COLUMN replay_total.num_exact_steps IS 'Steps before the first changed decision';
COMMENT ON COLUMN replay_total.accuracy_at_least IS 'Accuracy over graded samples (mean over problems) if all changed samples are wrong; NULL: no grades';
COMMENT ON COLUMN replay_total.accuracy_at_most IS 'Accuracy as in accuracy_at_least, but if all changed samples are right';
COMMENT ON COLUMN replay_total.accuracy_of_run IS 'Accuracy as in accuracy_at_least, but without changes';

CREATE TABLE call_total (
    run_id VARCHAR NOT NULL,
    attempt_id VARCHAR NOT NULL,
    is_timed BOOLEAN NOT NULL,
    model VARCHAR NOT NULL,
    purpose VARCHAR NOT NULL,
    num_calls BIGINT NOT NULL,
    prompt_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL,
    output_tokens BIGINT NOT NULL,
    queued_seconds DOUBLE NOT NULL,
    end_seconds DOUBLE NOT NULL,
    waited_queued_seconds DOUBLE NOT NULL,
    waited_seconds DOUBLE NOT NULL,
    first_submitted_at TIMESTAMP NOT NULL,
    last_ended_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE call_total IS 'Calls of a run by attempt, model and purpose, separately for timed and other samples. Key: run_id, attempt_id, is_timed, model, purpose';
COMMENT ON COLUMN call_total.queued_seconds IS 'Sum of call.queued_seconds';
COMMENT ON COLUMN call_total.end_seconds IS 'Sum of call.end_seconds, queueing included';
COMMENT ON COLUMN call_total.waited_queued_seconds IS 'Part of queued_seconds for which the samples waited, without the time spent waiting for another call';
COMMENT ON COLUMN call_total.waited_seconds IS 'Part of end_seconds for which the samples waited';
COMMENT ON COLUMN call_total.first_submitted_at IS 'When the first call was submitted (UTC)';
COMMENT ON COLUMN call_total.last_ended_at IS 'When the last call ended (UTC)';
