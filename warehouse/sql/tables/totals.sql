-- Totals: what the views would have to sum over every step and call again. Made by totals.sql from the tables above
-- while a run is loaded; a test compares them with the sums.

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
COMMENT ON TABLE graded_sample IS 'One verdict per planned sample for every grader version that graded the run, and for none (grader_version NULL); the view sample_grade shows the version that counts. Key: run_id, sample_id, grader_version';
COMMENT ON COLUMN graded_sample.run_id IS 'The run';
COMMENT ON COLUMN graded_sample.sample_id IS 'The sample';
COMMENT ON COLUMN graded_sample.problem_id IS 'The problem';
COMMENT ON COLUMN graded_sample.sample_index IS 'From 0 to k − 1';
COMMENT ON COLUMN graded_sample.stop_reason IS 'As in sample';
COMMENT ON COLUMN graded_sample.verdict IS 'One of the nine; not_run for what is not finished, or not graded and no error';
COMMENT ON COLUMN graded_sample.finished IS 'Whether the sample has been run';
COMMENT ON COLUMN graded_sample.graded IS 'Whether there is a grade, or an error that needs none';
COMMENT ON COLUMN graded_sample.grader_version IS 'Whose verdict it is; NULL: nobody''s';
COMMENT ON COLUMN graded_sample.extracted IS 'As in grade';
COMMENT ON COLUMN graded_sample.rule IS 'As in grade';
COMMENT ON COLUMN graded_sample.detail IS 'As in grade';

CREATE TABLE grade_total (
    run_id VARCHAR NOT NULL,
    grader_version VARCHAR NOT NULL,
    num_grades BIGINT NOT NULL,
    num_correct BIGINT NOT NULL,
    load_order INTEGER NOT NULL
);
COMMENT ON TABLE grade_total IS 'Grades of a run by grader version. Key: run_id, grader_version';
COMMENT ON COLUMN grade_total.run_id IS 'The run';
COMMENT ON COLUMN grade_total.grader_version IS 'Grader and the libraries under it';
COMMENT ON COLUMN grade_total.num_grades IS 'Grades';
COMMENT ON COLUMN grade_total.num_correct IS 'Grades with the verdict correct';
COMMENT ON COLUMN grade_total.load_order IS 'The version with the highest is the newest';

CREATE TABLE sample_tokens (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    model VARCHAR NOT NULL,
    emitted_tokens BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL,
    critical_path_tokens BIGINT NOT NULL
);
COMMENT ON TABLE sample_tokens IS 'The three token counts of each finished sample, by model. Key: run_id, sample_id, model';
COMMENT ON COLUMN sample_tokens.run_id IS 'The run';
COMMENT ON COLUMN sample_tokens.sample_id IS 'The sample';
COMMENT ON COLUMN sample_tokens.model IS 'draft or target';
COMMENT ON COLUMN sample_tokens.emitted_tokens IS 'In the accepted chain';
COMMENT ON COLUMN sample_tokens.spent_tokens IS 'Every output token of every call';
COMMENT ON COLUMN sample_tokens.critical_path_tokens IS 'Of parallel candidates the longest; of a discarded lookahead none';

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
COMMENT ON COLUMN sample_work.run_id IS 'The run';
COMMENT ON COLUMN sample_work.sample_id IS 'The sample';
COMMENT ON COLUMN sample_work.model IS 'draft or target';
COMMENT ON COLUMN sample_work.purpose IS 'As in call';
COMMENT ON COLUMN sample_work.num_calls IS 'Calls';
COMMENT ON COLUMN sample_work.longest_output_tokens IS 'Sum of call.longest_output_tokens';
COMMENT ON COLUMN sample_work.first_token_seconds IS 'Sum over the calls of the time from the first scheduling to the first token';
COMMENT ON COLUMN sample_work.decode_tokens IS 'Sum over the calls of the tokens of the longest completion after its first';
COMMENT ON COLUMN sample_work.decode_seconds IS 'Sum over the calls of the time from the first token to the end; 0 where the engine does not say when the first token came';

CREATE TABLE timed_sample (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    attempt_id VARCHAR NOT NULL,
    latency_seconds DOUBLE NOT NULL,
    emitted_tokens BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL
);
COMMENT ON TABLE timed_sample IS 'Samples whose latency means something: finished in one attempt, without an error, and with a request to a model. Key: run_id, sample_id';
COMMENT ON COLUMN timed_sample.run_id IS 'The run';
COMMENT ON COLUMN timed_sample.sample_id IS 'The sample';
COMMENT ON COLUMN timed_sample.problem_id IS 'The problem';
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
COMMENT ON COLUMN step_total.run_id IS 'The run';
COMMENT ON COLUMN step_total.author IS 'draft or target';
COMMENT ON COLUMN step_total.role IS 'As in step';
COMMENT ON COLUMN step_total.num_steps IS 'Steps';
COMMENT ON COLUMN step_total.num_tokens IS 'Emitted tokens';
COMMENT ON COLUMN step_total.num_verdicts IS 'Steps with a verdict';
COMMENT ON COLUMN step_total.num_decisions IS 'Steps with a decision, by a verdict or otherwise';
COMMENT ON COLUMN step_total.num_refused IS 'Decisions that refused all candidates';
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
COMMENT ON TABLE problem_total IS 'Sums over the samples of a problem, which the measures are ratios of (warehouse/measures.py). Key: run_id, problem_id';
COMMENT ON COLUMN problem_total.run_id IS 'The run';
COMMENT ON COLUMN problem_total.problem_id IS 'The problem';
COMMENT ON COLUMN problem_total.num_samples IS 'Planned samples';
COMMENT ON COLUMN problem_total.num_finished IS 'Those that have been run';
COMMENT ON COLUMN problem_total.num_steps IS 'Steps';
COMMENT ON COLUMN problem_total.num_draft_steps IS 'Steps that the draft wrote';
COMMENT ON COLUMN problem_total.num_decisions IS 'Steps with a decision';
COMMENT ON COLUMN problem_total.num_refused IS 'Decisions that rejected all candidates';
COMMENT ON COLUMN problem_total.num_scores IS 'Verdicts with a score';
COMMENT ON COLUMN problem_total.score IS 'Sum of step.verdict_score';
COMMENT ON COLUMN problem_total.draft_words IS 'wait, but and hmm in steps of role draft';
COMMENT ON COLUMN problem_total.draft_tokens_written IS 'Tokens of these steps';
COMMENT ON COLUMN problem_total.fallback_words IS 'wait, but and hmm in steps of role fallback';
COMMENT ON COLUMN problem_total.fallback_tokens_written IS 'Tokens of these steps';
COMMENT ON COLUMN problem_total.emitted_tokens IS 'Of all models, as in sample_tokens';
COMMENT ON COLUMN problem_total.spent_tokens IS 'Likewise';
COMMENT ON COLUMN problem_total.critical_path_tokens IS 'Likewise';
COMMENT ON COLUMN problem_total.draft_tokens IS 'Emitted tokens of the draft; NULL: the run has none';
COMMENT ON COLUMN problem_total.target_tokens IS 'Emitted tokens of the target';
COMMENT ON COLUMN problem_total.num_answered IS 'Samples with a final answer';
COMMENT ON COLUMN problem_total.answer_tokens IS 'Tokens of the final answers';
COMMENT ON COLUMN problem_total.target_answer_tokens IS 'Those of them that the target wrote';
COMMENT ON COLUMN problem_total.prompt_tokens IS 'Sum of call.prompt_tokens';
COMMENT ON COLUMN problem_total.cached_tokens IS 'Sum of call.cached_tokens';
COMMENT ON COLUMN problem_total.num_drafted IS 'Samples with a call of purpose draft';
COMMENT ON COLUMN problem_total.longest_draft_tokens IS 'Sum of call.longest_output_tokens over these calls';
COMMENT ON COLUMN problem_total.num_timed IS 'Samples in timed_sample, which what follows is over';
COMMENT ON COLUMN problem_total.timed_seconds IS 'Sum of their latency; NULL where one is infinite';
COMMENT ON COLUMN problem_total.timed_tokens IS 'Their emitted tokens';
COMMENT ON COLUMN problem_total.token_rates IS 'Sum over samples of emitted tokens per second';
COMMENT ON COLUMN problem_total.num_thoughts IS 'Samples whose thought took time';
COMMENT ON COLUMN problem_total.thought_rates IS 'Sum over these of tokens without the answer per second without the answer';
COMMENT ON COLUMN problem_total.waited_seconds IS 'Time of the calls that the samples waited for';
COMMENT ON COLUMN problem_total.drafting_seconds IS 'That of purpose draft';
COMMENT ON COLUMN problem_total.verdict_seconds IS 'That of purpose verdict';
COMMENT ON COLUMN problem_total.timed_answer_seconds IS 'That of the final answers';

CREATE TABLE decision_total (
    run_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    num_decisions BIGINT NOT NULL,
    num_refused BIGINT NOT NULL,
    num_values BIGINT NOT NULL,
    lowest_value DOUBLE,
    median_value DOUBLE,
    highest_value DOUBLE,
    lowest_threshold DOUBLE,
    highest_threshold DOUBLE,
    accepts_below BOOLEAN NOT NULL
);
COMMENT ON TABLE decision_total IS 'Decisions of a run by kind. Key: run_id, kind';
COMMENT ON COLUMN decision_total.run_id IS 'The run';
COMMENT ON COLUMN decision_total.kind IS 'What decided, as in step.decision_kind';
COMMENT ON COLUMN decision_total.num_decisions IS 'Steps with a decision of this kind';
COMMENT ON COLUMN decision_total.num_refused IS 'Those that refused all candidates';
COMMENT ON COLUMN decision_total.num_values IS 'Those with a number';
COMMENT ON COLUMN decision_total.lowest_value IS 'Lowest number that was decided by';
COMMENT ON COLUMN decision_total.median_value IS 'Median of the numbers';
COMMENT ON COLUMN decision_total.highest_value IS 'Highest number';
COMMENT ON COLUMN decision_total.lowest_threshold IS 'Lowest threshold that was used; NULL: none';
COMMENT ON COLUMN decision_total.highest_threshold IS 'Highest threshold that was used';
COMMENT ON COLUMN decision_total.accepts_below IS 'Whether low numbers are accepted';

CREATE TABLE refusal_total (
    run_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    verdict_kind VARCHAR,
    is_begun BOOLEAN NOT NULL,
    num_verdicts BIGINT NOT NULL,
    num_decisions BIGINT NOT NULL,
    num_refused BIGINT NOT NULL,
    num_repeated BIGINT NOT NULL
);
COMMENT ON TABLE refusal_total IS 'Decisions of a run by whether the chain had begun the step before it was proposed. Key: run_id, kind, is_begun';
COMMENT ON COLUMN refusal_total.run_id IS 'The run';
COMMENT ON COLUMN refusal_total.kind IS 'What decided, as in step.decision_kind';
COMMENT ON COLUMN refusal_total.verdict_kind IS 'choice or score; NULL: no verdict decided';
COMMENT ON COLUMN refusal_total.is_begun IS 'Whether the step before ended without a blank line, as after guidance of a fixed number of tokens or after a step that its limit cut';
COMMENT ON COLUMN refusal_total.num_verdicts IS 'Decisions by a verdict';
COMMENT ON COLUMN refusal_total.num_decisions IS 'Steps with a decision';
COMMENT ON COLUMN refusal_total.num_refused IS 'Decisions that rejected all candidates';
COMMENT ON COLUMN refusal_total.num_repeated IS 'Those of them in which the target wrote exactly a text that it had rejected, up to outer blanks';

CREATE TABLE sample_answer (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    author VARCHAR NOT NULL,
    num_tokens DOUBLE NOT NULL,
    is_estimated BOOLEAN NOT NULL,
    seconds DOUBLE NOT NULL
);
COMMENT ON TABLE sample_answer IS 'Length of the final answer: what follows the last </think>, else the steps of role answer; samples without either have none. Key: run_id, sample_id, author';
COMMENT ON COLUMN sample_answer.run_id IS 'The run';
COMMENT ON COLUMN sample_answer.sample_id IS 'The sample';
COMMENT ON COLUMN sample_answer.author IS 'draft or target';
COMMENT ON COLUMN sample_answer.num_tokens IS 'Emitted tokens; of a step that holds thought and answer, those behind </think> by their ids or, in runs that did not record the id of </think>, the share that its characters have';
COMMENT ON COLUMN sample_answer.is_estimated IS 'Whether a share of characters is in it; false: the number is exact';
COMMENT ON COLUMN sample_answer.seconds IS 'Time for which the sample waited for it; of a step that holds thought and answer, that share of the time after its first token';

CREATE TABLE sample_verdicts (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    num_steps INTEGER NOT NULL,
    num_verdicts INTEGER NOT NULL,
    mean_score DOUBLE NOT NULL,
    lowest_score DOUBLE NOT NULL,
    own_threshold DOUBLE,
    greedy_change INTEGER[] NOT NULL,
    average_change INTEGER[] NOT NULL
);
COMMENT ON TABLE sample_verdicts IS 'Score verdicts (SpecReason) of one sample, and where another rule would have decided otherwise. Key: run_id, sample_id';
COMMENT ON COLUMN sample_verdicts.run_id IS 'The run';
COMMENT ON COLUMN sample_verdicts.sample_id IS 'The sample';
COMMENT ON COLUMN sample_verdicts.num_steps IS 'Steps of the sample, with and without a verdict';
COMMENT ON COLUMN sample_verdicts.num_verdicts IS 'Score verdicts';
COMMENT ON COLUMN sample_verdicts.mean_score IS 'Mean of verdict_score';
COMMENT ON COLUMN sample_verdicts.lowest_score IS 'Least verdict_score';
COMMENT ON COLUMN sample_verdicts.own_threshold IS 'The run''s threshold; NULL where the method has none';
COMMENT ON COLUMN sample_verdicts.greedy_change IS 'For thresholds 0, 1, … 9 and the run''s own: index of the first step that the most probable digit would have decided otherwise; NULL: none';
COMMENT ON COLUMN sample_verdicts.average_change IS 'For thresholds 0, 0.5, … 9 and the run''s own: likewise for the probability-weighted mean of the digits';

CREATE TABLE sample_decisions (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    num_steps INTEGER NOT NULL,
    num_decisions INTEGER NOT NULL,
    accepts_below BOOLEAN NOT NULL,
    mean_value DOUBLE NOT NULL,
    worst_value DOUBLE NOT NULL,
    thresholds DOUBLE[] NOT NULL,
    changes INTEGER[] NOT NULL
);
COMMENT ON TABLE sample_decisions IS 'Decisions with a number that no verdict gave, of one sample by kind, and where another threshold would have decided otherwise. Key: run_id, sample_id, kind';
COMMENT ON COLUMN sample_decisions.run_id IS 'The run';
COMMENT ON COLUMN sample_decisions.sample_id IS 'The sample';
COMMENT ON COLUMN sample_decisions.kind IS 'What decided, as in step.decision_kind';
COMMENT ON COLUMN sample_decisions.num_steps IS 'Steps of the sample, with and without a decision';
COMMENT ON COLUMN sample_decisions.num_decisions IS 'Decisions of this kind with a number';
COMMENT ON COLUMN sample_decisions.accepts_below IS 'Whether low numbers are accepted';
COMMENT ON COLUMN sample_decisions.mean_value IS 'Mean of step.decision_value';
COMMENT ON COLUMN sample_decisions.worst_value IS 'The least acceptable of these: the lowest, or the highest where low numbers are accepted';
COMMENT ON COLUMN sample_decisions.thresholds IS 'The quantiles 0, 0.05, … 1 of the numbers of the whole run, and the thresholds that the run used, up to ten';
COMMENT ON COLUMN sample_decisions.changes IS 'For each of thresholds: index of the first step that it would have decided otherwise; NULL: none';

CREATE TABLE position_total (
    run_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    num_verdicts BIGINT NOT NULL,
    num_decisions BIGINT NOT NULL,
    num_accepted BIGINT NOT NULL
);
COMMENT ON TABLE position_total IS 'Decisions of a run by their place in the chain. Key: run_id, step_index';
COMMENT ON COLUMN position_total.run_id IS 'The run';
COMMENT ON COLUMN position_total.step_index IS 'Place in the chain, from 0';
COMMENT ON COLUMN position_total.num_verdicts IS 'Decisions by a verdict';
COMMENT ON COLUMN position_total.num_decisions IS 'Steps with a decision';
COMMENT ON COLUMN position_total.num_accepted IS 'Decisions that accepted a candidate';

CREATE TABLE option_total (
    run_id VARCHAR NOT NULL,
    num_offered INTEGER NOT NULL,
    option_index INTEGER NOT NULL,
    num_verdicts BIGINT NOT NULL,
    num_chosen BIGINT NOT NULL,
    probability DOUBLE NOT NULL
);
COMMENT ON TABLE option_total IS 'Options of the choices of a run. Key: run_id, num_offered, option_index';
COMMENT ON COLUMN option_total.run_id IS 'The run';
COMMENT ON COLUMN option_total.num_offered IS 'Distinct candidates offered; 0: the trace does not say';
COMMENT ON COLUMN option_total.option_index IS 'The option, from 0';
COMMENT ON COLUMN option_total.num_verdicts IS 'Verdicts with this option';
COMMENT ON COLUMN option_total.num_chosen IS 'How often it was decided for';
COMMENT ON COLUMN option_total.probability IS 'Sum of its probability, normalised over the options; a verdict without any probability on its options adds none';

CREATE TABLE rating_total (
    run_id VARCHAR NOT NULL,
    grader_version VARCHAR NOT NULL,
    is_correct BOOLEAN NOT NULL,
    kind VARCHAR NOT NULL,
    verdict_kind VARCHAR,
    accepted BOOLEAN NOT NULL,
    accepts_below BOOLEAN NOT NULL,
    tenth INTEGER NOT NULL,
    rating DOUBLE NOT NULL,
    expected_rating DOUBLE NOT NULL,
    num_verdicts BIGINT NOT NULL,
    num_decisions BIGINT NOT NULL
);
COMMENT ON TABLE rating_total IS 'Decisions of a run by their number and whether the sample ended correct, for every grader version; ungraded samples, and decisions without a number, left out. Key: all but num_verdicts and num_decisions';
COMMENT ON COLUMN rating_total.run_id IS 'The run';
COMMENT ON COLUMN rating_total.grader_version IS 'Whose grade is_correct is';
COMMENT ON COLUMN rating_total.is_correct IS 'Whether the sample''s final answer is correct';
COMMENT ON COLUMN rating_total.kind IS 'What decided, as in step.decision_kind';
COMMENT ON COLUMN rating_total.verdict_kind IS 'choice or score; NULL: no verdict decided';
COMMENT ON COLUMN rating_total.accepted IS 'Whether a candidate was accepted';
COMMENT ON COLUMN rating_total.accepts_below IS 'Whether low numbers are accepted';
COMMENT ON COLUMN rating_total.tenth IS 'Tenth of the chain, 1 to 10';
COMMENT ON COLUMN rating_total.rating IS 'decision_value: of score and choice with two decimals, of any other kind with three significant digits';
COMMENT ON COLUMN rating_total.expected_rating IS 'score: verdict_expected_score, with two decimals; any other kind: as rating';
COMMENT ON COLUMN rating_total.num_verdicts IS 'Decisions by a verdict';
COMMENT ON COLUMN rating_total.num_decisions IS 'Decisions';

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
COMMENT ON TABLE replay_total IS 'Score verdicts, and decisions by other numbers, of a run under another rule, for every grader version and for none; see the view threshold_replay. Key: run_id, grader_version, score, threshold';
COMMENT ON COLUMN replay_total.run_id IS 'The run';
COMMENT ON COLUMN replay_total.grader_version IS 'Whose grades the accuracies are of; NULL: nobody''s';
COMMENT ON COLUMN replay_total.score IS 'What is compared with the threshold: greedy or average (the scores of verdicts), or the kind of the decision';
COMMENT ON COLUMN replay_total.threshold IS 'Lowest accepted score; of a decision that accepts low numbers the highest accepted one';
COMMENT ON COLUMN replay_total.is_own IS 'Whether the run itself decided so';
COMMENT ON COLUMN replay_total.num_problems IS 'Problems with a sample that has such a score or number';
COMMENT ON COLUMN replay_total.num_exact_problems IS 'Problems of which no sample changes';
COMMENT ON COLUMN replay_total.num_samples IS 'Samples with such a score or number';
COMMENT ON COLUMN replay_total.num_changed_samples IS 'Samples with a changed decision';
COMMENT ON COLUMN replay_total.num_steps IS 'Steps of the samples';
COMMENT ON COLUMN replay_total.num_exact_steps IS 'Steps before the first changed decision';
COMMENT ON COLUMN replay_total.accuracy_at_least IS 'Mean over problems with graded samples, over these, if every changed one were wrong; NULL: nothing is graded';
COMMENT ON COLUMN replay_total.accuracy_at_most IS 'Likewise if every changed one were right';
COMMENT ON COLUMN replay_total.accuracy_of_run IS 'Likewise as it was';

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
COMMENT ON TABLE call_total IS 'Calls of a run by attempt, model and purpose, apart for timed and other samples. Key: run_id, attempt_id, is_timed, model, purpose';
COMMENT ON COLUMN call_total.run_id IS 'The run';
COMMENT ON COLUMN call_total.attempt_id IS 'The attempt that finished the sample';
COMMENT ON COLUMN call_total.is_timed IS 'Whether the sample is in timed_sample';
COMMENT ON COLUMN call_total.model IS 'draft or target';
COMMENT ON COLUMN call_total.purpose IS 'As in call';
COMMENT ON COLUMN call_total.num_calls IS 'Calls';
COMMENT ON COLUMN call_total.prompt_tokens IS 'Sum of call.prompt_tokens';
COMMENT ON COLUMN call_total.cached_tokens IS 'Sum of call.cached_tokens';
COMMENT ON COLUMN call_total.output_tokens IS 'Sum of call.output_tokens: spent';
COMMENT ON COLUMN call_total.queued_seconds IS 'Sum of call.queued_seconds';
COMMENT ON COLUMN call_total.end_seconds IS 'Sum of call.end_seconds, queueing included';
COMMENT ON COLUMN call_total.waited_queued_seconds IS 'Of queued_seconds, what the samples waited for: all but what passed while they waited for another call';
COMMENT ON COLUMN call_total.waited_seconds IS 'Of end_seconds, what the samples waited for';
COMMENT ON COLUMN call_total.first_submitted_at IS 'When the first was submitted (UTC)';
COMMENT ON COLUMN call_total.last_ended_at IS 'When the last ended (UTC)';
