-- Tables of the warehouse. Derived from run folders: any of it can be deleted and loaded again.
-- Times are TIMESTAMP in UTC without a zone, durations are seconds, column names are the trace's field names.
-- step, candidate and call have no enforced key: their indexes would cost most of the load, and their keys hold by
-- construction (each sample is taken from one file, its lists are numbered by position).

CREATE TABLE schema_version (version INTEGER NOT NULL, tables_hash VARCHAR NOT NULL, views_hash VARCHAR NOT NULL);
COMMENT ON TABLE schema_version IS 'Which version of the schema this database was made with; one row';
COMMENT ON COLUMN schema_version.version IS 'Number of the schema, for people';
COMMENT ON COLUMN schema_version.tables_hash IS 'SHA-256 of the tables'' definition; another one means: made anew by the next load';
COMMENT ON COLUMN schema_version.views_hash IS 'SHA-256 of the views'' definition; another one means: load again';

CREATE TABLE run (
    run_id VARCHAR PRIMARY KEY,
    spec_id VARCHAR NOT NULL,
    folder VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    params JSON NOT NULL,
    dataset VARCHAR NOT NULL,
    dataset_hash VARCHAR NOT NULL,
    dataset_size INTEGER NOT NULL,
    num_problems INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    temperature DOUBLE NOT NULL,
    top_p DOUBLE NOT NULL,
    token_budget INTEGER NOT NULL,
    draft_name VARCHAR,
    draft_path VARCHAR,
    draft_revision VARCHAR,
    draft_fingerprint VARCHAR,
    target_name VARCHAR,
    target_path VARCHAR,
    target_revision VARCHAR,
    target_fingerprint VARCHAR,
    engine_kind VARCHAR NOT NULL,
    engine_dtype VARCHAR NOT NULL,
    engine_max_context INTEGER,
    engine_draft_tensor_parallel INTEGER NOT NULL,
    engine_target_tensor_parallel INTEGER NOT NULL,
    engine_draft_memory DOUBLE,
    engine_target_memory DOUBLE,
    concurrency INTEGER NOT NULL,
    prompt_hash VARCHAR NOT NULL,
    preset VARCHAR,
    spec_version INTEGER NOT NULL,
    limited BOOLEAN NOT NULL,
    created_at TIMESTAMP NOT NULL,
    loaded_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE run IS 'A frozen specification and everything produced under it. Key: run_id';
COMMENT ON COLUMN run.run_id IS 'Name of the run folder';
COMMENT ON COLUMN run.spec_id IS 'Dataset, method and hash of the specification; equal for equal specifications';
COMMENT ON COLUMN run.folder IS 'Absolute path of the run folder when it was loaded';
COMMENT ON COLUMN run.method IS 'Algorithm over draft and target model';
COMMENT ON COLUMN run.params IS 'The method''s hyper-parameters under the paper''s names, defaults included';
COMMENT ON COLUMN run.dataset IS 'Benchmark';
COMMENT ON COLUMN run.dataset_hash IS 'Hash over the contents of the problems that are run, in order';
COMMENT ON COLUMN run.dataset_size IS 'Problems in the whole dataset';
COMMENT ON COLUMN run.num_problems IS 'Problems that are run (n)';
COMMENT ON COLUMN run.samples IS 'Samples per problem (k)';
COMMENT ON COLUMN run.seed IS 'The run''s seed';
COMMENT ON COLUMN run.temperature IS 'Sampling temperature';
COMMENT ON COLUMN run.top_p IS 'Nucleus sampling';
COMMENT ON COLUMN run.token_budget IS 'Emitted tokens a sample may have, its final answer included';
COMMENT ON COLUMN run.draft_name IS 'The small model; NULL where the method has none';
COMMENT ON COLUMN run.draft_path IS 'Local folder or hub id of the draft model';
COMMENT ON COLUMN run.draft_revision IS 'Revision of the draft model at the hub';
COMMENT ON COLUMN run.draft_fingerprint IS 'Content hash, or hub id and revision, of the draft model';
COMMENT ON COLUMN run.target_name IS 'The large model; NULL where the method has none';
COMMENT ON COLUMN run.target_path IS 'Local folder or hub id of the target model';
COMMENT ON COLUMN run.target_revision IS 'Revision of the target model at the hub';
COMMENT ON COLUMN run.target_fingerprint IS 'Content hash, or hub id and revision, of the target model';
COMMENT ON COLUMN run.engine_kind IS 'vllm, transformers or scripted';
COMMENT ON COLUMN run.engine_dtype IS 'Number format of the weights';
COMMENT ON COLUMN run.engine_max_context IS 'Longest prompt plus completion, in tokens; NULL: as needed';
COMMENT ON COLUMN run.engine_draft_tensor_parallel IS 'Devices that the draft model is split over';
COMMENT ON COLUMN run.engine_target_tensor_parallel IS 'Devices that the target model is split over';
COMMENT ON COLUMN run.engine_draft_memory IS 'Share of device memory for the draft engine; NULL: default split';
COMMENT ON COLUMN run.engine_target_memory IS 'Share of device memory for the target engine; NULL: default split';
COMMENT ON COLUMN run.concurrency IS 'Samples in flight at once on one worker';
COMMENT ON COLUMN run.prompt_hash IS 'Hash of the prompt templates';
COMMENT ON COLUMN run.preset IS 'Named preset that the run was made from';
COMMENT ON COLUMN run.spec_version IS 'Version of the specification''s format';
COMMENT ON COLUMN run.limited IS 'True where not every problem of the dataset is run: not a result for the benchmark';
COMMENT ON COLUMN run.created_at IS 'When spec.json was written (UTC, the file''s time)';
COMMENT ON COLUMN run.loaded_at IS 'When the run was last loaded (UTC)';

CREATE TABLE attempt (
    run_id VARCHAR,
    attempt_id VARCHAR,
    shard INTEGER,
    hostname VARCHAR,
    pid INTEGER,
    started_at TIMESTAMP,
    git_commit VARCHAR,
    slurm_job_id VARCHAR,
    device VARCHAR,
    num_devices INTEGER,
    versions JSON,
    hardware JSON,
    engines JSON,
    PRIMARY KEY (run_id, attempt_id)
);
COMMENT ON TABLE attempt IS 'One worker''s attempt at one shard that finished a sample. Key: run_id, attempt_id';
COMMENT ON COLUMN attempt.run_id IS 'The run';
COMMENT ON COLUMN attempt.attempt_id IS 'Name of the trace file without its ending';
COMMENT ON COLUMN attempt.shard IS 'Index of the shard';
COMMENT ON COLUMN attempt.hostname IS 'Node';
COMMENT ON COLUMN attempt.pid IS 'Process of the worker';
COMMENT ON COLUMN attempt.started_at IS 'When the worker started (UTC)';
COMMENT ON COLUMN attempt.git_commit IS 'Commit of the harness';
COMMENT ON COLUMN attempt.slurm_job_id IS 'Slurm''s job; NULL outside of Slurm';
COMMENT ON COLUMN attempt.device IS 'cpu, or the name of the GPU; NULL where the trace file does not say';
COMMENT ON COLUMN attempt.num_devices IS 'Devices of the worker';
COMMENT ON COLUMN attempt.versions IS 'Package versions';
COMMENT ON COLUMN attempt.hardware IS 'The node''s hardware';
COMMENT ON COLUMN attempt.engines IS 'Per model: KV-cache and context tokens, seconds to start';

CREATE TABLE problem (
    run_id VARCHAR,
    problem_id VARCHAR,
    problem_index INTEGER NOT NULL,
    dataset VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    answer VARCHAR NOT NULL,
    kind VARCHAR NOT NULL,
    answers VARCHAR[],
    alternatives VARCHAR[],
    choices VARCHAR[],
    level VARCHAR,
    subject VARCHAR,
    unit VARCHAR,
    tolerance DOUBLE,
    content_hash VARCHAR NOT NULL,
    PRIMARY KEY (run_id, problem_id)
);
COMMENT ON TABLE problem IS 'One benchmark item as the run had it. Key: run_id, problem_id';
COMMENT ON COLUMN problem.run_id IS 'The run';
COMMENT ON COLUMN problem.problem_id IS '<dataset>/<row>';
COMMENT ON COLUMN problem.problem_index IS 'Place in the run, from 0';
COMMENT ON COLUMN problem.dataset IS 'Benchmark';
COMMENT ON COLUMN problem.text IS 'The question as the model sees it, without instructions';
COMMENT ON COLUMN problem.answer IS 'The gold answer; the letter of the right option for kind choice';
COMMENT ON COLUMN problem.kind IS 'math or choice';
COMMENT ON COLUMN problem.answers IS 'Parts that are all required';
COMMENT ON COLUMN problem.alternatives IS 'Answers of which any one is right';
COMMENT ON COLUMN problem.choices IS 'Option texts in the order A, B, …';
COMMENT ON COLUMN problem.level IS 'Difficulty as the benchmark gives it';
COMMENT ON COLUMN problem.subject IS 'Subject as the benchmark gives it';
COMMENT ON COLUMN problem.unit IS 'Unit that belongs to the answer but is not part of it';
COMMENT ON COLUMN problem.tolerance IS 'Absolute error that the benchmark allows';
COMMENT ON COLUMN problem.content_hash IS 'Hash over everything that a model or a grader sees';

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
    trace_version INTEGER,
    PRIMARY KEY (run_id, sample_id)
);
COMMENT ON TABLE sample IS 'One planned answer to one problem, run or not yet: the denominator. Key: run_id, sample_id';
COMMENT ON COLUMN sample.run_id IS 'The run';
COMMENT ON COLUMN sample.sample_id IS 'Hash of problem, method, models, sampling and seed; runs that differ in speed only share it';
COMMENT ON COLUMN sample.problem_id IS 'The problem';
COMMENT ON COLUMN sample.sample_index IS 'From 0 to k − 1';
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
COMMENT ON COLUMN sample.trace_version IS 'Version of the trace''s format';

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
    num_wait INTEGER NOT NULL,
    num_but INTEGER NOT NULL,
    num_hmm INTEGER NOT NULL,
    num_offered INTEGER,
    finish VARCHAR,
    elapsed_seconds DOUBLE,
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
    verdict_accepted BOOLEAN
);
COMMENT ON TABLE step IS 'One accepted piece of a chain of thought, with the verdict that led to it. Key: run_id, sample_id, step_index';
COMMENT ON COLUMN step.run_id IS 'The run';
COMMENT ON COLUMN step.sample_id IS 'The sample';
COMMENT ON COLUMN step.step_index IS 'Place in the chain, from 0';
COMMENT ON COLUMN step.author IS 'draft or target';
COMMENT ON COLUMN step.role IS 'guidance, draft, fallback, rethink, chain or answer';
COMMENT ON COLUMN step.text IS 'What the chain contains';
COMMENT ON COLUMN step.num_tokens IS 'Emitted tokens: what the author generated for it. Token ids stay in the trace file';
COMMENT ON COLUMN step.num_characters IS 'Length of the text';
COMMENT ON COLUMN step.characters_after_thought IS 'Length of the text behind its last </think>, outer blanks left out; NULL where it has none';
COMMENT ON COLUMN step.num_wait IS 'How often the text says «wait», as a word, in any case';
COMMENT ON COLUMN step.num_but IS 'How often the text says «but»';
COMMENT ON COLUMN step.num_hmm IS 'How often the text says «hm», «hmm», …';
COMMENT ON COLUMN step.num_offered IS 'Distinct candidates that a verdict was asked about; NULL where nothing was proposed or offered';
COMMENT ON COLUMN step.finish IS 'stop, eos or length';
COMMENT ON COLUMN step.elapsed_seconds IS 'Active time of the sample until this step was accepted';
COMMENT ON COLUMN step.verdict_kind IS 'choice or score; NULL where no verdict was asked for';
COMMENT ON COLUMN step.verdict_question IS 'Text asked after the chain, exactly as sent';
COMMENT ON COLUMN step.verdict_options IS 'Option labels';
COMMENT ON COLUMN step.verdict_logprobs IS 'Log-probability of each option before any mask (nats)';
COMMENT ON COLUMN step.verdict_decision IS 'Index of the decided option, from 0';
COMMENT ON COLUMN step.verdict_probability IS 'Probability of the decided option, normalised over the options';
COMMENT ON COLUMN step.verdict_mass IS 'Probability of all options together; low: the question was not understood';
COMMENT ON COLUMN step.verdict_score IS 'Score that was compared with the threshold; NULL for a choice';
COMMENT ON COLUMN step.verdict_expected_score IS 'Probability-weighted mean of the digits; NULL for a choice';
COMMENT ON COLUMN step.verdict_acceptance_probability IS 'Probability of all candidates together, against reject; NULL for a score';
COMMENT ON COLUMN step.verdict_accepted IS 'Whether a candidate was accepted; false: all were refused';

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
    accepted BOOLEAN NOT NULL
);
COMMENT ON TABLE candidate IS 'One proposal for a step. Key: run_id, sample_id, step_index, candidate_index';
COMMENT ON COLUMN candidate.run_id IS 'The run';
COMMENT ON COLUMN candidate.sample_id IS 'The sample';
COMMENT ON COLUMN candidate.step_index IS 'The step it was proposed for';
COMMENT ON COLUMN candidate.candidate_index IS 'Place among the candidates, from 0';
COMMENT ON COLUMN candidate.text IS 'What was proposed';
COMMENT ON COLUMN candidate.num_tokens IS 'Generated tokens';
COMMENT ON COLUMN candidate.finish IS 'stop, eos or length';
COMMENT ON COLUMN candidate.mean_logprob IS 'Mean log-probability of its tokens (nats)';
COMMENT ON COLUMN candidate.option IS 'Index of the verdict''s option that stood for it; NULL: not offered';
COMMENT ON COLUMN candidate.accepted IS 'Whether it became the step';

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
    in_flight INTEGER NOT NULL
);
COMMENT ON TABLE call IS 'One request to an engine. Key: run_id, sample_id, call_index';
COMMENT ON COLUMN call.run_id IS 'The run';
COMMENT ON COLUMN call.sample_id IS 'The sample';
COMMENT ON COLUMN call.call_index IS 'Order within the sample, from 0';
COMMENT ON COLUMN call.step_index IS 'The step that the call worked for';
COMMENT ON COLUMN call.purpose IS 'guidance, draft, verdict, fallback, rethink, chain or answer';
COMMENT ON COLUMN call.model IS 'draft or target';
COMMENT ON COLUMN call.n IS 'Completions asked for in parallel';
COMMENT ON COLUMN call.prompt_tokens IS 'Tokens of the prompt';
COMMENT ON COLUMN call.cached_tokens IS 'Prompt tokens found in the prefix cache';
COMMENT ON COLUMN call.output_tokens IS 'Spent tokens: of all n completions together';
COMMENT ON COLUMN call.longest_output_tokens IS 'Critical path: tokens of the longest completion';
COMMENT ON COLUMN call.submitted_at IS 'When it was submitted (UTC)';
COMMENT ON COLUMN call.queued_seconds IS 'From submission to the first scheduling';
COMMENT ON COLUMN call.first_token_seconds IS 'From submission to the first token';
COMMENT ON COLUMN call.end_seconds IS 'From submission to the end';
COMMENT ON COLUMN call.in_flight IS 'Requests of this engine under way at submission, this one included';

CREATE TABLE grade (
    run_id VARCHAR,
    sample_id VARCHAR,
    grader_version VARCHAR,
    verdict VARCHAR NOT NULL,
    extracted VARCHAR,
    rule VARCHAR,
    detail VARCHAR,
    seconds DOUBLE,
    load_order INTEGER NOT NULL,
    PRIMARY KEY (run_id, sample_id, grader_version)
);
COMMENT ON TABLE grade IS 'What one grader version said of one sample. Key: run_id, sample_id, grader_version';
COMMENT ON COLUMN grade.run_id IS 'The run';
COMMENT ON COLUMN grade.sample_id IS 'The sample';
COMMENT ON COLUMN grade.grader_version IS 'Grader and the libraries under it';
COMMENT ON COLUMN grade.verdict IS 'correct, wrong, no_answer, unparsable, truncated, error, grader_timeout or bad_gold';
COMMENT ON COLUMN grade.extracted IS 'The answer as it stands in the text';
COMMENT ON COLUMN grade.rule IS 'The rule that found the answer';
COMMENT ON COLUMN grade.detail IS 'One line for a person: what decided';
COMMENT ON COLUMN grade.seconds IS 'Time that grading took';
COMMENT ON COLUMN grade.load_order IS 'The version with the highest is the newest: it graded last';

CREATE TABLE second_grade (
    run_id VARCHAR,
    sample_id VARCHAR,
    grader_version VARCHAR,
    verdict VARCHAR NOT NULL,
    extracted VARCHAR,
    rule VARCHAR,
    detail VARCHAR,
    seconds DOUBLE,
    load_order INTEGER NOT NULL,
    PRIMARY KEY (run_id, sample_id, grader_version)
);
COMMENT ON TABLE second_grade IS 'What one version of the independent second grader said of one sample; no result counts it. Key: run_id, sample_id, grader_version';
COMMENT ON COLUMN second_grade.run_id IS 'The run';
COMMENT ON COLUMN second_grade.sample_id IS 'The sample';
COMMENT ON COLUMN second_grade.grader_version IS 'Second grader and the library under it';
COMMENT ON COLUMN second_grade.verdict IS 'As in grade; unparsable: the second grader does not understand gold or answer';
COMMENT ON COLUMN second_grade.extracted IS 'The answer that it found in the text';
COMMENT ON COLUMN second_grade.rule IS 'The rule that found the answer';
COMMENT ON COLUMN second_grade.detail IS 'One line for a person: what decided';
COMMENT ON COLUMN second_grade.seconds IS 'Time that grading took';
COMMENT ON COLUMN second_grade.load_order IS 'The version with the highest is the newest';

CREATE TABLE candidate_grade (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    candidate_index INTEGER NOT NULL,
    grader_version VARCHAR NOT NULL,
    verdict VARCHAR NOT NULL,
    extracted VARCHAR,
    detail VARCHAR,
    load_order INTEGER NOT NULL
);
COMMENT ON TABLE candidate_grade IS 'What one grader version said of one candidate that is a whole chain (python -m warehouse.candidates). Key: run_id, sample_id, step_index, candidate_index, grader_version';
COMMENT ON COLUMN candidate_grade.run_id IS 'The run';
COMMENT ON COLUMN candidate_grade.sample_id IS 'The sample';
COMMENT ON COLUMN candidate_grade.step_index IS 'The step it was proposed for';
COMMENT ON COLUMN candidate_grade.candidate_index IS 'Place among the candidates, from 0';
COMMENT ON COLUMN candidate_grade.grader_version IS 'Grader and the libraries under it';
COMMENT ON COLUMN candidate_grade.verdict IS 'As in grade';
COMMENT ON COLUMN candidate_grade.extracted IS 'The answer as it stands in the candidate';
COMMENT ON COLUMN candidate_grade.detail IS 'One line for a person: what decided';
COMMENT ON COLUMN candidate_grade.load_order IS 'The version with the highest is the newest';

CREATE TABLE step_score (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    scorer VARCHAR NOT NULL,
    score DOUBLE NOT NULL
);
COMMENT ON TABLE step_score IS 'Quality of one step as a process reward model sees it, from scores/ in the run folder. Key: run_id, sample_id, step_index, scorer';
COMMENT ON COLUMN step_score.run_id IS 'The run';
COMMENT ON COLUMN step_score.sample_id IS 'The sample';
COMMENT ON COLUMN step_score.step_index IS 'The step';
COMMENT ON COLUMN step_score.scorer IS 'The model that scored, with its revision';
COMMENT ON COLUMN step_score.score IS 'From 0 to 1; higher is better';

CREATE TABLE candidate_score (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    candidate_index INTEGER NOT NULL,
    scorer VARCHAR NOT NULL,
    score DOUBLE NOT NULL
);
COMMENT ON TABLE candidate_score IS 'Quality of one candidate as a process reward model sees it. Key: run_id, sample_id, step_index, candidate_index, scorer';
COMMENT ON COLUMN candidate_score.run_id IS 'The run';
COMMENT ON COLUMN candidate_score.sample_id IS 'The sample';
COMMENT ON COLUMN candidate_score.step_index IS 'The step it was proposed for';
COMMENT ON COLUMN candidate_score.candidate_index IS 'Place among the candidates, from 0';
COMMENT ON COLUMN candidate_score.scorer IS 'The model that scored, with its revision';
COMMENT ON COLUMN candidate_score.score IS 'From 0 to 1; higher is better';

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
COMMENT ON COLUMN sample_tokens.critical_path_tokens IS 'Of parallel candidates the longest';

CREATE TABLE timed_sample (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    attempt_id VARCHAR NOT NULL,
    latency_seconds DOUBLE NOT NULL,
    emitted_tokens BIGINT NOT NULL,
    spent_tokens BIGINT NOT NULL
);
COMMENT ON TABLE timed_sample IS 'Samples whose latency means something: finished in one attempt and without an error. Key: run_id, sample_id';
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
COMMENT ON COLUMN step_total.num_refused IS 'Steps whose verdict refused all candidates';
COMMENT ON COLUMN step_total.option_mass IS 'Sum of verdict_mass; NULL without verdicts';
COMMENT ON COLUMN step_total.num_wait IS 'Sum of step.num_wait';
COMMENT ON COLUMN step_total.num_but IS 'Sum of step.num_but';
COMMENT ON COLUMN step_total.num_hmm IS 'Sum of step.num_hmm';

CREATE TABLE sample_answer (
    run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    num_tokens DOUBLE NOT NULL,
    is_estimated BOOLEAN NOT NULL
);
COMMENT ON TABLE sample_answer IS 'Length of the final answer: what follows the last </think>, else the steps of role answer; samples without either have none. Key: run_id, sample_id';
COMMENT ON COLUMN sample_answer.run_id IS 'The run';
COMMENT ON COLUMN sample_answer.sample_id IS 'The sample';
COMMENT ON COLUMN sample_answer.num_tokens IS 'Emitted tokens; of a step that holds thought and answer, the share that its characters have';
COMMENT ON COLUMN sample_answer.is_estimated IS 'Whether such a step is in it; false: the number is exact';

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

CREATE TABLE position_total (
    run_id VARCHAR NOT NULL,
    step_index INTEGER NOT NULL,
    tenth INTEGER NOT NULL,
    num_verdicts BIGINT NOT NULL,
    num_accepted BIGINT NOT NULL
);
COMMENT ON TABLE position_total IS 'Verdicts of a run by their place in the chain. Key: run_id, step_index, tenth';
COMMENT ON COLUMN position_total.run_id IS 'The run';
COMMENT ON COLUMN position_total.step_index IS 'Place in the chain, from 0';
COMMENT ON COLUMN position_total.tenth IS 'Tenth of the chain, 1 to 10';
COMMENT ON COLUMN position_total.num_verdicts IS 'Verdicts';
COMMENT ON COLUMN position_total.num_accepted IS 'Verdicts that accepted a candidate';

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
COMMENT ON COLUMN option_total.num_offered IS 'Distinct candidates offered';
COMMENT ON COLUMN option_total.option_index IS 'The option, from 0';
COMMENT ON COLUMN option_total.num_verdicts IS 'Verdicts with this option';
COMMENT ON COLUMN option_total.num_chosen IS 'How often it was decided for';
COMMENT ON COLUMN option_total.probability IS 'Sum of its probability';

CREATE TABLE rating_total (
    run_id VARCHAR NOT NULL,
    grader_version VARCHAR NOT NULL,
    is_correct BOOLEAN NOT NULL,
    verdict_kind VARCHAR NOT NULL,
    accepted BOOLEAN NOT NULL,
    tenth INTEGER NOT NULL,
    rating DOUBLE NOT NULL,
    expected_rating DOUBLE NOT NULL,
    num_verdicts BIGINT NOT NULL
);
COMMENT ON TABLE rating_total IS 'Verdicts of a run by what they said and whether the sample ended correct, for every grader version; ungraded samples left out. Key: all but num_verdicts';
COMMENT ON COLUMN rating_total.run_id IS 'The run';
COMMENT ON COLUMN rating_total.grader_version IS 'Whose grade is_correct is';
COMMENT ON COLUMN rating_total.is_correct IS 'Whether the sample''s final answer is correct';
COMMENT ON COLUMN rating_total.verdict_kind IS 'choice or score';
COMMENT ON COLUMN rating_total.accepted IS 'Whether a candidate was accepted';
COMMENT ON COLUMN rating_total.tenth IS 'Tenth of the chain, 1 to 10';
COMMENT ON COLUMN rating_total.rating IS 'score: verdict_score; choice: verdict_acceptance_probability. Two decimals';
COMMENT ON COLUMN rating_total.expected_rating IS 'score: verdict_expected_score; choice: as rating. Two decimals';
COMMENT ON COLUMN rating_total.num_verdicts IS 'Verdicts';

CREATE TABLE replay_total (
    run_id VARCHAR NOT NULL,
    grader_version VARCHAR,
    score VARCHAR NOT NULL,
    threshold DOUBLE NOT NULL,
    num_problems BIGINT NOT NULL,
    num_exact_problems BIGINT NOT NULL,
    num_samples BIGINT NOT NULL,
    num_changed_samples BIGINT NOT NULL,
    num_steps BIGINT NOT NULL,
    num_exact_steps BIGINT NOT NULL,
    accuracy_at_least DOUBLE NOT NULL,
    accuracy_at_most DOUBLE NOT NULL,
    accuracy_of_run DOUBLE NOT NULL
);
COMMENT ON TABLE replay_total IS 'Score verdicts of a run under another rule, for every grader version and for none; see the view threshold_replay. Key: run_id, grader_version, score, threshold';
COMMENT ON COLUMN replay_total.run_id IS 'The run';
COMMENT ON COLUMN replay_total.grader_version IS 'Whose grades the accuracies are of; NULL: nobody''s';
COMMENT ON COLUMN replay_total.score IS 'greedy or average';
COMMENT ON COLUMN replay_total.threshold IS 'Lowest accepted score';
COMMENT ON COLUMN replay_total.num_problems IS 'Problems with a sample that has a score verdict';
COMMENT ON COLUMN replay_total.num_exact_problems IS 'Problems of which no sample changes';
COMMENT ON COLUMN replay_total.num_samples IS 'Samples with a score verdict';
COMMENT ON COLUMN replay_total.num_changed_samples IS 'Samples with a changed decision';
COMMENT ON COLUMN replay_total.num_steps IS 'Steps of the samples';
COMMENT ON COLUMN replay_total.num_exact_steps IS 'Steps before the first changed decision';
COMMENT ON COLUMN replay_total.accuracy_at_least IS 'Mean over problems if every changed sample were wrong';
COMMENT ON COLUMN replay_total.accuracy_at_most IS 'Mean over problems if every changed sample were right';
COMMENT ON COLUMN replay_total.accuracy_of_run IS 'Mean over problems as it was';

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
COMMENT ON COLUMN call_total.first_submitted_at IS 'When the first was submitted (UTC)';
COMMENT ON COLUMN call_total.last_ended_at IS 'When the last ended (UTC)';

CREATE TABLE loaded_file (
    run_id VARCHAR,
    name VARCHAR,
    size_bytes BIGINT NOT NULL,
    sha256 VARCHAR NOT NULL,
    load_order INTEGER NOT NULL,
    num_rows INTEGER NOT NULL,
    error VARCHAR,
    loaded_at TIMESTAMP NOT NULL,
    PRIMARY KEY (run_id, name)
);
COMMENT ON TABLE loaded_file IS 'What was read: a run is loaded again when a fingerprint changes. Key: run_id, name';
COMMENT ON COLUMN loaded_file.run_id IS 'The run';
COMMENT ON COLUMN loaded_file.name IS 'Path within the run folder';
COMMENT ON COLUMN loaded_file.size_bytes IS 'Size';
COMMENT ON COLUMN loaded_file.sha256 IS 'Fingerprint of the content';
COMMENT ON COLUMN loaded_file.load_order IS 'Place among the run''s files in the order in which they were written, from 1';
COMMENT ON COLUMN loaded_file.num_rows IS 'Rows read, duplicates included';
COMMENT ON COLUMN loaded_file.error IS 'Why the file was skipped; NULL where it was read';
COMMENT ON COLUMN loaded_file.loaded_at IS 'When this content was first loaded (UTC)';
