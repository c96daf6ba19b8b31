-- From the staged tables of one run (database connection's temporary schema) into the warehouse's tables.
-- staged_trace holds each finished sample once.

INSERT INTO run BY NAME SELECT * FROM staged_run;

INSERT INTO attempt BY NAME SELECT * FROM staged_attempt;

INSERT INTO problem BY NAME SELECT * FROM staged_problem;

INSERT INTO sample BY NAME
SELECT unit.run_id, unit.sample_id, unit.problem_id, unit.sample_index, unit.shard,
    trace.attempt_id, trace.seed,
    CASE WHEN trace.started_at > 0 THEN make_timestamp((trace.started_at * 1e6)::BIGINT) END AS started_at,
    trace.draft_prompt, trace.target_prompt, trace.stop_reason, trace.error, trace.latency_seconds,
    trace.num_attempts, trace.version AS trace_version
FROM staged_unit AS unit LEFT JOIN staged_trace AS trace USING (sample_id);

INSERT INTO step BY NAME
WITH numbered AS (
    SELECT run_id, sample_id, generate_subscripts(steps, 1) - 1 AS step_index, unnest(steps) AS step
    FROM staged_trace SEMI JOIN staged_unit USING (sample_id)
)
SELECT run_id, sample_id, step_index, step.author, step.role, step.text, step.num_tokens, step.finish,
    step.elapsed_seconds,
    step.verdict.kind AS verdict_kind,
    step.verdict.question AS verdict_question,
    step.verdict.options AS verdict_options,
    step.verdict.logprobs AS verdict_logprobs,
    step.verdict.decision AS verdict_decision,
    probabilities(step.verdict.logprobs)[step.verdict.decision + 1] AS verdict_probability,
    list_sum(list_transform(step.verdict.logprobs, lambda x: exp(x))) AS verdict_mass,
    step.verdict.score AS verdict_score,
    step.verdict.accepted AS verdict_accepted
FROM numbered;

INSERT INTO candidate BY NAME
WITH numbered_step AS (
    SELECT run_id, sample_id, generate_subscripts(steps, 1) - 1 AS step_index, unnest(steps) AS step
    FROM staged_trace SEMI JOIN staged_unit USING (sample_id)
), numbered AS (
    SELECT run_id, sample_id, step_index, generate_subscripts(step.candidates, 1) - 1 AS candidate_index,
        unnest(step.candidates) AS candidate
    FROM numbered_step
)
SELECT run_id, sample_id, step_index, candidate_index, candidate.* FROM numbered;

INSERT INTO call BY NAME
WITH numbered AS (
    SELECT run_id, sample_id, generate_subscripts(calls, 1) - 1 AS call_index, unnest(calls) AS call
    FROM staged_trace SEMI JOIN staged_unit USING (sample_id)
)
SELECT run_id, sample_id, call_index, call.step AS step_index,
    make_timestamp((call.submitted_at * 1e6)::BIGINT) AS submitted_at,
    call.purpose, call.model, call.n, call.prompt_tokens, call.cached_tokens, call.output_tokens,
    call.longest_output_tokens, call.queued_seconds, call.first_token_seconds, call.end_seconds, call.in_flight
FROM numbered;

INSERT INTO grade BY NAME
SELECT * FROM staged_grade SEMI JOIN staged_unit USING (sample_id)
QUALIFY row_number() OVER (PARTITION BY sample_id, grader_version ORDER BY load_order DESC) = 1;

INSERT INTO second_grade BY NAME
SELECT * FROM staged_second_grade SEMI JOIN staged_unit USING (sample_id)
QUALIFY row_number() OVER (PARTITION BY sample_id, grader_version ORDER BY load_order DESC) = 1;

INSERT INTO loaded_file BY NAME SELECT * FROM staged_file;
