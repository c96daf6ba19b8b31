-- Tables of the warehouse. Derived from run folders: any of it can be deleted and loaded again.
-- The columns for the models of a run are generated from warehouse/sql/model_columns.py.
-- Times are TIMESTAMP in UTC without a zone, durations are seconds, column names are the trace's field names.

CREATE TABLE schema_version (digest VARCHAR NOT NULL);
COMMENT ON TABLE schema_version IS 'The format of this database; one row';
COMMENT ON COLUMN schema_version.digest IS 'SHA-256 of the definitions of tables and views and of the statements that fill them; databases with another digest are not used';

CREATE TABLE run (
    run_id VARCHAR PRIMARY KEY,
    spec_id VARCHAR NOT NULL,
    folder VARCHAR NOT NULL,
    method VARCHAR NOT NULL,
    method_source VARCHAR,
    method_code VARCHAR,
    params JSON NOT NULL,
    dataset VARCHAR NOT NULL,
    dataset_hash VARCHAR NOT NULL,
    dataset_size INTEGER NOT NULL,
    dataset_source VARCHAR,
    dataset_title VARCHAR,
    num_problems INTEGER NOT NULL,
    samples INTEGER NOT NULL,
    seed BIGINT NOT NULL,
    temperature DOUBLE NOT NULL,
    top_p DOUBLE NOT NULL,
    token_budget INTEGER NOT NULL,
    -- columns of models
    engine_kind VARCHAR NOT NULL,
    engine_dtype VARCHAR NOT NULL,
    engine_max_context INTEGER,
    engine_spec_decode VARCHAR,
    engine_spec_tokens INTEGER,
    engine_spec_sampling VARCHAR,
    engine_logprobs BOOLEAN,
    engine_take_turns BOOLEAN NOT NULL,
    concurrency INTEGER NOT NULL,
    prompt_hash VARCHAR NOT NULL,
    prompts JSON,
    prompt_date VARCHAR,
    preset VARCHAR,
    night DATE,
    tag VARCHAR,
    limited BOOLEAN NOT NULL,
    is_greedy BOOLEAN NOT NULL,
    created_at TIMESTAMP NOT NULL,
    loaded_at TIMESTAMP NOT NULL
);
COMMENT ON TABLE run IS 'A frozen specification and everything produced under it. Key: run_id';
COMMENT ON COLUMN run.run_id IS 'Name of the run folder';
COMMENT ON COLUMN run.spec_id IS 'Dataset, method and hash of the specification; equal for equal specifications';
COMMENT ON COLUMN run.folder IS 'Absolute path of the run folder when it was loaded';
COMMENT ON COLUMN run.method IS 'Algorithm over draft and target model';
COMMENT ON COLUMN run.method_source IS 'Source of a custom method: file.py:Class or package.module:Class, and its distribution; NULL: built in';
COMMENT ON COLUMN run.method_code IS 'Hash of the custom method''s code when the run began; NULL: built in, see attempt.code_hash';
COMMENT ON COLUMN run.params IS 'The method''s hyper-parameters under the paper''s names, defaults included';
COMMENT ON COLUMN run.dataset IS 'Benchmark';
COMMENT ON COLUMN run.dataset_hash IS 'Hash of the contents of the run''s problems, in order';
COMMENT ON COLUMN run.dataset_size IS 'Problems in the whole dataset';
COMMENT ON COLUMN run.dataset_source IS 'Custom dataset: the file, or the Hub dataset with its commit, configuration and split; NULL: built in';
COMMENT ON COLUMN run.dataset_title IS 'Custom dataset: title from its TOML file';
COMMENT ON COLUMN run.num_problems IS 'Number of problems in the run (n)';
COMMENT ON COLUMN run.samples IS 'Samples per problem (k)';
COMMENT ON COLUMN run.seed IS 'The run''s seed';
COMMENT ON COLUMN run.temperature IS 'Sampling temperature';
COMMENT ON COLUMN run.top_p IS 'Sampling top-p';
-- comments of models
COMMENT ON COLUMN run.token_budget IS 'Maximum emitted tokens per sample, including the final answer';
COMMENT ON COLUMN run.engine_kind IS 'vllm, transformers or scripted; served if servers run all models of the run';
COMMENT ON COLUMN run.engine_dtype IS 'Number format of the weights of all models, per model if they differ';
COMMENT ON COLUMN run.engine_max_context IS 'Maximum length of prompt plus completion, in tokens; NULL: as needed';
COMMENT ON COLUMN run.engine_spec_decode IS 'Proposer of tokens for the target: draft, ngram, suffix, eagle3 or mtp; NULL: no token-level speculation';
COMMENT ON COLUMN run.engine_spec_tokens IS 'Tokens proposed at a time';
COMMENT ON COLUMN run.engine_spec_sampling IS 'Sampling of proposed tokens by a model, greedy or probabilistic; NULL: no model proposes';
COMMENT ON COLUMN run.engine_logprobs IS 'Whether the mean log-probability of candidates was requested (--logprobs); NULL: only if the method uses it, or always for runs older than this option';
COMMENT ON COLUMN run.engine_take_turns IS 'Whether draft and target never ran at the same time';
COMMENT ON COLUMN run.concurrency IS 'Samples in flight at once on one worker';
COMMENT ON COLUMN run.prompt_hash IS 'Hash of the prompt templates';
COMMENT ON COLUMN run.prompts IS 'The whole wording of a run with --prompts, by key; NULL: the built-in one';
COMMENT ON COLUMN run.prompt_date IS 'Day of the first launch (UTC), used as today''s date by chat templates; attempt.engines lists the models whose prompts contain it';
COMMENT ON COLUMN run.preset IS 'Preset of the run';
COMMENT ON COLUMN run.night IS 'Date at the beginning of the tag; runs of a night are tagged with its date, reruns also with a suffix. NULL: not a nightly run';
COMMENT ON COLUMN run.tag IS 'Distinguishes runs with equal settings, for example of different nights';
COMMENT ON COLUMN run.is_greedy IS 'True if all models that write decode greedily (temperature 0 or top_k 1): all samples of a problem are equal and count as one';
COMMENT ON COLUMN run.limited IS 'True for a partial run, without all problems of the dataset: not a result for the benchmark';
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
    code_hash VARCHAR,
    code_archive VARCHAR,
    other_codes JSON,
    load_at_start DOUBLE,
    load_at_end DOUBLE,
    PRIMARY KEY (run_id, attempt_id)
);
COMMENT ON TABLE attempt IS 'One worker''s attempt at one shard, if it finished a sample. Key: run_id, attempt_id';
COMMENT ON COLUMN attempt.attempt_id IS 'Name of the trace file without extension';
COMMENT ON COLUMN attempt.shard IS 'Index of the shard';
COMMENT ON COLUMN attempt.hostname IS 'Node';
COMMENT ON COLUMN attempt.pid IS 'Process id of the worker';
COMMENT ON COLUMN attempt.started_at IS 'When the worker started (UTC)';
COMMENT ON COLUMN attempt.git_commit IS 'Commit of the harness, with -dirty if files differed; NULL outside a checkout and its jobs';
COMMENT ON COLUMN attempt.slurm_job_id IS 'Slurm''s job; NULL outside of Slurm';
COMMENT ON COLUMN attempt.device IS 'cpu, the name of the GPU, or unknown server for a server''s devices; NULL: not recorded';
COMMENT ON COLUMN attempt.num_devices IS 'Devices of the worker';
COMMENT ON COLUMN attempt.versions IS 'Package versions';
COMMENT ON COLUMN attempt.hardware IS 'The node''s hardware';
COMMENT ON COLUMN attempt.engines IS 'Per model: KV-cache and context tokens, draft sampling reported by vLLM (token-level speculation), the engine start (may be shared by runs) and its seconds; also the seconds that this attempt waited for starts';
COMMENT ON COLUMN attempt.code_hash IS 'Hash of the code that decides results (harness/code_hash.py); NULL: not recorded';
COMMENT ON COLUMN attempt.code_archive IS 'SHA-256 of the code archive of the Slurm job; NULL outside of Slurm, or not recorded';
COMMENT ON COLUMN attempt.other_codes IS 'Hashes of other code versions used for the run, or accepted for it (--accept-code-change); NULL: none';
COMMENT ON COLUMN attempt.load_at_start IS 'Load average of the machine over the minute before the attempt started its engines; hardware has the number of cores. NULL: not recorded';
COMMENT ON COLUMN attempt.load_at_end IS 'Load average when the attempt ended, including its own work; NULL: killed, or not recorded';

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
    family VARCHAR,
    unit VARCHAR,
    tolerance DOUBLE,
    beginning VARCHAR,
    content_hash VARCHAR NOT NULL,
    PRIMARY KEY (run_id, problem_id)
);
COMMENT ON TABLE problem IS 'One benchmark item, as used by the run. Key: run_id, problem_id';
COMMENT ON COLUMN problem.problem_id IS '<dataset>/<row>; for a custom dataset the problem''s own id, or row/<row>';
COMMENT ON COLUMN problem.problem_index IS 'Place in the run, from 0';
COMMENT ON COLUMN problem.dataset IS 'Benchmark';
COMMENT ON COLUMN problem.text IS 'The question as the model sees it, without instructions';
COMMENT ON COLUMN problem.answer IS 'The gold answer; the letter of the correct option for kind choice';
COMMENT ON COLUMN problem.kind IS 'math or choice';
COMMENT ON COLUMN problem.answers IS 'Parts that are all required';
COMMENT ON COLUMN problem.alternatives IS 'Alternative answers, each correct';
COMMENT ON COLUMN problem.choices IS 'Option texts in the order A, B, …';
COMMENT ON COLUMN problem.level IS 'Difficulty level from the benchmark';
COMMENT ON COLUMN problem.subject IS 'Subject from the benchmark';
COMMENT ON COLUMN problem.family IS 'Common template, passage or question of several problems; NULL: none';
COMMENT ON COLUMN problem.unit IS 'Unit of the answer, which is not part of its text';
COMMENT ON COLUMN problem.tolerance IS 'Absolute error allowed by the benchmark';
COMMENT ON COLUMN problem.beginning IS 'Given reasoning at the start of the reply, not written by a model of this run; only for probes and budget sweeps';
COMMENT ON COLUMN problem.content_hash IS 'Hash of all content used by models or graders';

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
COMMENT ON TABLE loaded_file IS 'Loaded files; a run is reloaded if a fingerprint changes. Key: run_id, name';
COMMENT ON COLUMN loaded_file.name IS 'Path within the run folder';
COMMENT ON COLUMN loaded_file.size_bytes IS 'Size';
COMMENT ON COLUMN loaded_file.sha256 IS 'Fingerprint of the content';
COMMENT ON COLUMN loaded_file.load_order IS 'Position among the run''s files in writing order, from 1';
COMMENT ON COLUMN loaded_file.num_rows IS 'Rows read, duplicates included';
COMMENT ON COLUMN loaded_file.error IS 'Why the file was skipped; NULL: it was read';
COMMENT ON COLUMN loaded_file.loaded_at IS 'When this content was first loaded (UTC)';
