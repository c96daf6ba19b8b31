-- Insert the staged tables of one run (in the connection's temporary schema) into the warehouse's tables.
-- staged_trace has each finished sample of the plan once; it may be a view of the trace files.

INSERT INTO run BY NAME SELECT * FROM staged_run;

INSERT INTO attempt BY NAME SELECT * FROM staged_attempt;

INSERT INTO problem BY NAME SELECT * FROM staged_problem;

INSERT INTO sample BY NAME
SELECT unit.run_id, unit.sample_id, unit.problem_id, unit.sample_index, unit.shard,
    trace.attempt_id, trace.seed,
    CASE WHEN trace.started_at > 0 THEN make_timestamp((trace.started_at * 1e6)::BIGINT) END AS started_at,
    trace.draft_prompt, trace.target_prompt, trace.stop_reason, trace.error, trace.latency_seconds,
    trace.num_attempts
FROM staged_unit AS unit LEFT JOIN staged_trace AS trace USING (sample_id);

-- peak, weights, total: used for all probabilities of the verdict, so its options are read only once.
-- A decision recorded in the trace takes precedence over the verdict. SpecCoT accepts drafts without a decision if they
-- agree or no verdict is requested, and SCoT may rethink without one. In other methods, candidates imply a decision.
INSERT INTO step BY NAME
WITH numbered AS (
    -- A map in one row, because a join might hash the large traces.
    SELECT run_id, sample_id, engines_of[attempt_id] AS engines, generate_subscripts(steps, 1) - 1 AS step_index,
        unnest(steps) AS step
    FROM staged_trace CROSS JOIN (SELECT map(list(attempt_id), list(engines::VARCHAR)) AS engines_of FROM staged_attempt)
), read AS (
    SELECT run_id, sample_id, step_index, step, step.verdicts[-1] AS verdict,
        try_cast(json_extract_string(engines, '$.' || step.author || '.think_end_id') AS INTEGER) AS think_end_id,
        list_max(step.verdicts[-1].logprobs) AS peak,
        list_max(list_transform(step.candidates, lambda candidate: candidate.option)) + 1 AS num_offered,
        list_transform(
            regexp_extract_all(step.text, '(?i)\b(?:wait|but|hm+)\b'), lambda word: lower(word[1])
        ) AS reflections
    FROM numbered
), weighed AS (
    SELECT *, list_transform(verdict.logprobs, lambda x: exp(x - peak)) AS weights, list_sum(weights) AS total FROM read
)
SELECT weighed.run_id, sample_id, step_index, step.author, step.role, step.text, step.num_tokens, step.finish,
    step.elapsed_seconds,
    length(step.text) AS num_characters,
    CASE WHEN contains(step.text, '</think>') THEN length(trim(split_part(step.text, '</think>', -1), E' \n\t\r')) END
        AS characters_after_thought,
    CASE WHEN contains(step.text, '</think>')
        THEN nullif(list_position(list_reverse(step.token_ids), think_end_id), 0) - 1 END AS tokens_after_thought,
    len(list_filter(reflections, lambda letter: letter = 'w')) AS num_wait,
    len(list_filter(reflections, lambda letter: letter = 'b')) AS num_but,
    len(list_filter(reflections, lambda letter: letter = 'h')) AS num_hmm,
    num_offered,
    verdict.model AS verdict_model,
    verdict.kind AS verdict_kind,
    verdict.question AS verdict_question,
    verdict.options AS verdict_options,
    verdict.logprobs AS verdict_logprobs,
    verdict.decision AS verdict_decision,
    weights[verdict.decision + 1] / total AS verdict_probability,
    exp(peak) * total AS verdict_mass,
    verdict.score AS verdict_score,
    CASE WHEN verdict.kind = 'score'
        THEN list_dot_product(weights, try_cast(verdict.options AS DOUBLE[])) / total END AS verdict_expected_score,
    CASE WHEN verdict.kind = 'choice' THEN list_sum(weights[:num_offered]) / total END
        AS verdict_acceptance_probability,
    verdict.accepted AS verdict_accepted,
    nullif(step.verdicts[:-2], []) AS earlier_verdicts,
    CASE
        WHEN step.decision.kind IS NOT NULL THEN step.decision.kind
        WHEN verdict.kind IS NOT NULL THEN verdict.kind
        WHEN step.role IN ('draft', 'fallback') AND len(step.candidates) > 0 AND rule.method NOT IN ('speccot', 'scot')
            THEN 'unstated'
    END AS decision_kind,
    if_finite(CASE
        WHEN step.decision.kind IS NOT NULL THEN step.decision.value
        ELSE coalesce(verdict.score, verdict_acceptance_probability)
    END) AS decision_value,
    if_finite(CASE
        WHEN step.decision.kind IS NOT NULL THEN step.decision.threshold
        WHEN verdict.kind = 'score' THEN least(9, greatest(0, rule.threshold + rule.slope * step_index))
    END) AS decision_threshold,
    CASE WHEN decision_kind IS NOT NULL THEN coalesce(step.decision.accepts_below, false) END AS decision_accepts_below,
    CASE
        WHEN step.decision.kind IS NOT NULL THEN coalesce(step.decision.accepted, false)
        WHEN verdict.kind IS NOT NULL THEN verdict.accepted
        WHEN decision_kind IS NOT NULL THEN list_bool_or(list_transform(step.candidates, lambda candidate: candidate.accepted))
    END AS decision_accepted
FROM weighed CROSS JOIN (
    SELECT method, try_cast(json_extract_string(params, '$.threshold') AS DOUBLE) AS threshold,
        coalesce(try_cast(json_extract_string(params, '$.threshold_slope') AS DOUBLE), 0) AS slope
    FROM staged_run
) AS rule;

INSERT INTO candidate BY NAME
WITH numbered_step AS (
    SELECT run_id, sample_id, generate_subscripts(steps, 1) - 1 AS step_index, unnest(steps) AS step
    FROM staged_trace
), numbered AS (
    SELECT run_id, sample_id, step_index, generate_subscripts(step.candidates, 1) - 1 AS candidate_index,
        unnest(step.candidates) AS candidate
    FROM numbered_step
)
SELECT run_id, sample_id, step_index, candidate_index, candidate.* FROM numbered;

INSERT INTO call BY NAME
WITH numbered AS (
    SELECT run_id, sample_id, generate_subscripts(calls, 1) - 1 AS call_index, unnest(calls) AS call
    FROM staged_trace
)
SELECT run_id, sample_id, call_index, call.step AS step_index,
    make_timestamp((call.submitted_at * 1e6)::BIGINT) AS submitted_at,
    call.purpose, call.model, call.n, call.prompt_tokens, call.cached_tokens, call.output_tokens,
    call.longest_output_tokens, call.queued_seconds, call.first_token_seconds, call.end_seconds, call.in_flight,
    call.proposed_tokens, call.accepted_tokens,
    coalesce(call.overlapped_seconds, 0) AS overlapped_seconds
FROM numbered;

-- A grade `error` is from an earlier try if the sample's valid record has no error.
CREATE OR REPLACE TEMP TABLE succeeded AS
SELECT sample_id FROM sample WHERE run_id = getvariable('loading_run') AND stop_reason <> 'error';

INSERT INTO grade BY NAME
SELECT * FROM staged_grade SEMI JOIN staged_unit USING (sample_id)
WHERE verdict <> 'error' OR sample_id NOT IN (FROM succeeded)
QUALIFY row_number() OVER (PARTITION BY sample_id, grader_version ORDER BY load_order DESC) = 1;

INSERT INTO candidate_grade BY NAME
SELECT * FROM staged_candidate_grade SEMI JOIN staged_unit USING (sample_id)
QUALIFY row_number() OVER (
    PARTITION BY sample_id, step_index, candidate_index, grader_version ORDER BY load_order DESC) = 1;

INSERT INTO step_score BY NAME
SELECT run_id, sample_id, step_index, scorer, score, missing FROM staged_score SEMI JOIN staged_unit USING (sample_id)
WHERE candidate_index IS NULL
QUALIFY row_number() OVER (PARTITION BY sample_id, step_index, scorer ORDER BY load_order DESC) = 1;

INSERT INTO candidate_score BY NAME
SELECT run_id, sample_id, step_index, candidate_index, scorer, score, missing
FROM staged_score SEMI JOIN staged_unit USING (sample_id)
WHERE candidate_index IS NOT NULL
QUALIFY row_number() OVER (PARTITION BY sample_id, step_index, candidate_index, scorer ORDER BY load_order DESC) = 1;

INSERT INTO probe_point BY NAME SELECT * EXCLUDE (load_order) FROM staged_probe_point;
INSERT INTO budget_cut BY NAME SELECT * EXCLUDE (load_order) FROM staged_budget_cut;

-- Of several files, the first one with a sample counts, and only if its rows fit the valid chain: the same steps, of the
-- same lengths. One target scores all chains of a run: the run's own or, if it has none, that of the first file.
INSERT INTO step_target_logprob BY NAME
WITH first_target AS (
    SELECT coalesce(any_value(run.target_fingerprint), arg_min(staged.target, staged.load_order)) AS target
    FROM staged_target_logprob AS staged CROSS JOIN staged_run AS run
), first_file AS (
    FROM staged_target_logprob SEMI JOIN first_target USING (target)
    QUALIFY load_order = min(load_order) OVER (PARTITION BY sample_id)
), fits AS (
    SELECT sample_id FROM step LEFT JOIN first_file USING (sample_id, step_index)
    WHERE step.run_id = getvariable('loading_run') AND sample_id IN (SELECT sample_id FROM first_file)
    GROUP BY sample_id
    HAVING bool_and(coalesce(first_file.num_characters = step.num_characters, false)) AND count(*) = (
        SELECT count(*) FROM first_file AS own WHERE own.sample_id = step.sample_id)
)
SELECT first_file.run_id, sample_id, step_index, num_tokens,
    if_finite(CASE WHEN logprob <= 0 THEN logprob END) AS logprob,
    if_finite(CASE WHEN lowest_logprob <= 0 THEN lowest_logprob END) AS lowest_logprob
FROM first_file SEMI JOIN fits USING (sample_id);

INSERT INTO sample_target_logprob BY NAME
SELECT sample.run_id, sample_id, sample.problem_id, sample.sample_index, any_value(read.target) AS target,
    sum(own.num_tokens)::BIGINT AS num_tokens, exact_sum(own.logprob) AS logprob
FROM step_target_logprob AS own JOIN sample USING (run_id, sample_id)
JOIN (SELECT sample_id, arg_min(target, load_order) AS target FROM staged_target_logprob GROUP BY sample_id) AS read
    USING (sample_id)
WHERE own.run_id = getvariable('loading_run') AND sample.stop_reason <> 'error'
GROUP BY sample.run_id, sample_id, sample.problem_id, sample.sample_index
HAVING bool_and(own.logprob IS NOT NULL) AND sum(own.num_tokens) > 0;

INSERT INTO timing_draw BY NAME SELECT * FROM staged_timing_draw;

INSERT INTO timing_sample BY NAME SELECT * FROM staged_timing_sample;

INSERT INTO loaded_file BY NAME SELECT * FROM staged_loaded_file;
