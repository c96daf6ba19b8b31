-- Tables of the warehouse. Derived from run folders: any of it can be deleted and loaded again.
-- What a run has of each model is generated from warehouse/sql/model_columns.py.
-- Times are TIMESTAMP in UTC without a zone, durations are seconds, column names are the trace's field names.

CREATE TABLE schema_version (digest VARCHAR NOT NULL);
COMMENT ON TABLE schema_version IS 'The format of this database; one row';
COMMENT ON COLUMN schema_version.digest IS 'SHA-256 of what defines tables and views and fills them; with another one the database is not used';

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
COMMENT ON COLUMN run.method_source IS 'Where a method that is not built in came from: file.py:Class or package.module:Class, and its distribution; NULL: it is built in';
COMMENT ON COLUMN run.method_code IS 'Hash of its code when the run began; NULL: it is built in, and code_hash of attempt holds it';
COMMENT ON COLUMN run.params IS 'The method''s hyper-parameters under the paper''s names, defaults included';
COMMENT ON COLUMN run.dataset IS 'Benchmark';
COMMENT ON COLUMN run.dataset_hash IS 'Hash over the contents of the problems that are run, in order';
COMMENT ON COLUMN run.dataset_size IS 'Problems in the whole dataset';
COMMENT ON COLUMN run.dataset_source IS 'Own dataset: the file, or the dataset of the hub with its commit, configuration and split; NULL for a known one';
COMMENT ON COLUMN run.dataset_title IS 'Own dataset: the title that its TOML file gives';
COMMENT ON COLUMN run.num_problems IS 'Problems that are run (n)';
COMMENT ON COLUMN run.samples IS 'Samples per problem (k)';
COMMENT ON COLUMN run.seed IS 'The run''s seed';
COMMENT ON COLUMN run.temperature IS 'Sampling temperature';
COMMENT ON COLUMN run.top_p IS 'Nucleus sampling';
-- comments of models
COMMENT ON COLUMN run.token_budget IS 'Emitted tokens a sample may have, its final answer included';
COMMENT ON COLUMN run.engine_kind IS 'vllm, transformers or scripted; served where servers run all models of the run';
COMMENT ON COLUMN run.engine_dtype IS 'Number format of the weights of all models; where they differ, of each';
COMMENT ON COLUMN run.engine_max_context IS 'Longest prompt plus completion, in tokens; NULL: as needed';
COMMENT ON COLUMN run.engine_spec_decode IS 'Who proposes tokens to the target: draft, ngram, suffix, eagle3 or mtp; NULL: no token-level speculation';
COMMENT ON COLUMN run.engine_spec_tokens IS 'Tokens proposed at a time';
COMMENT ON COLUMN run.engine_spec_sampling IS 'How a model draws the tokens that it proposes, greedy or probabilistic; NULL: no model proposes';
COMMENT ON COLUMN run.engine_logprobs IS 'Whether the mean log-probability of candidates was asked for (--logprobs); NULL: where the method reads it; runs from before there was this choice always asked';
COMMENT ON COLUMN run.engine_take_turns IS 'Whether draft and target never worked at once';
COMMENT ON COLUMN run.concurrency IS 'Samples in flight at once on one worker';
COMMENT ON COLUMN run.prompt_hash IS 'Hash of the prompt templates';
COMMENT ON COLUMN run.prompts IS 'The whole wording of a run with --prompts, by key; NULL: the built-in one';
COMMENT ON COLUMN run.prompt_date IS 'Day of the first launch (UTC), which chat templates take for today; attempt.engines says which models'' prompts hold it';
COMMENT ON COLUMN run.preset IS 'Named preset that the run was made from';
COMMENT ON COLUMN run.night IS 'Date that tag begins with: runs of a night are tagged with its date, its re-runs with a suffix; NULL: of no night';
COMMENT ON COLUMN run.tag IS 'Sets apart runs that are otherwise the same, a night''s for instance';
COMMENT ON COLUMN run.is_greedy IS 'True where no model that writes is sampled (temperature 0): every sample of a problem repeats the first, and together they count as one';
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
    code_hash VARCHAR,
    code_archive VARCHAR,
    other_codes JSON,
    load_at_start DOUBLE,
    load_at_end DOUBLE,
    PRIMARY KEY (run_id, attempt_id)
);
COMMENT ON TABLE attempt IS 'One worker''s attempt at one shard that finished a sample. Key: run_id, attempt_id';
COMMENT ON COLUMN attempt.attempt_id IS 'Name of the trace file without its ending';
COMMENT ON COLUMN attempt.shard IS 'Index of the shard';
COMMENT ON COLUMN attempt.hostname IS 'Node';
COMMENT ON COLUMN attempt.pid IS 'Process of the worker';
COMMENT ON COLUMN attempt.started_at IS 'When the worker started (UTC)';
COMMENT ON COLUMN attempt.git_commit IS 'Commit of the harness, -dirty where files differed; NULL outside of a checkout and its jobs';
COMMENT ON COLUMN attempt.slurm_job_id IS 'Slurm''s job; NULL outside of Slurm';
COMMENT ON COLUMN attempt.device IS 'cpu, or the name of the GPU, or unknown server for what a server holds; NULL where the trace file does not say';
COMMENT ON COLUMN attempt.num_devices IS 'Devices of the worker';
COMMENT ON COLUMN attempt.versions IS 'Package versions';
COMMENT ON COLUMN attempt.hardware IS 'The node''s hardware';
COMMENT ON COLUMN attempt.engines IS 'Per model: KV-cache and context tokens, how vLLM says that drafts are sampled (under token-level speculation), the start of its engine, which other runs may share, and its seconds; seconds that this attempt waited for starts';
COMMENT ON COLUMN attempt.code_hash IS 'Hash of the code that decides results (harness/code_hash.py); NULL: not recorded';
COMMENT ON COLUMN attempt.code_archive IS 'SHA-256 of the archive that Slurm''s job ran; NULL outside of Slurm, or not recorded';
COMMENT ON COLUMN attempt.other_codes IS 'Hashes of the other codes that worked on the run, or were allowed to (--accept-code-change); NULL: none';
COMMENT ON COLUMN attempt.load_at_start IS 'Processes of the whole machine that ran or waited to, mean of the minute before the attempt opened its engines; hardware has the number of cores. NULL: not recorded';
COMMENT ON COLUMN attempt.load_at_end IS 'The same when the attempt ended, its own work included; NULL: killed, or not recorded';

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
COMMENT ON TABLE problem IS 'One benchmark item as the run had it. Key: run_id, problem_id';
COMMENT ON COLUMN problem.problem_id IS '<dataset>/<row>; of an own dataset the id that it gives, or row/<row>';
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
COMMENT ON COLUMN problem.family IS 'Template, passage or question that several problems come from; NULL: the problem stands alone';
COMMENT ON COLUMN problem.unit IS 'Unit that belongs to the answer but is not part of it';
COMMENT ON COLUMN problem.tolerance IS 'Absolute error that the benchmark allows';
COMMENT ON COLUMN problem.beginning IS 'Reasoning that the reply begins with and that no model of the run has written; empty but for probes';
COMMENT ON COLUMN problem.content_hash IS 'Hash over everything that a model or a grader sees';

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
COMMENT ON COLUMN loaded_file.name IS 'Path within the run folder';
COMMENT ON COLUMN loaded_file.size_bytes IS 'Size';
COMMENT ON COLUMN loaded_file.sha256 IS 'Fingerprint of the content';
COMMENT ON COLUMN loaded_file.load_order IS 'Place among the run''s files in the order in which they were written, from 1';
COMMENT ON COLUMN loaded_file.num_rows IS 'Rows read, duplicates included';
COMMENT ON COLUMN loaded_file.error IS 'Why the file was skipped; NULL where it was read';
COMMENT ON COLUMN loaded_file.loaded_at IS 'When this content was first loaded (UTC)';
