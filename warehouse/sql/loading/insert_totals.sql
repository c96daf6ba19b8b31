-- Totals of the run in the variable loading_run, from the rows written by insert.sql. Fractions are summed as DECIMAL,
-- so the sums do not depend on the order of the rows, and a rebuilt database is identical to the last digit.

CREATE OR REPLACE TEMP TABLE version AS
SELECT grader_version, count(*) AS num_grades, max(load_order) AS load_order
FROM grade WHERE run_id = getvariable('loading_run') GROUP BY grader_version
UNION ALL SELECT NULL, 0, NULL;

INSERT INTO graded_sample BY NAME
SELECT sample.run_id, sample.sample_id, sample.problem_id, sample.sample_index, sample.stop_reason,
    CASE
        WHEN sample.stop_reason IS NULL THEN 'not_run'
        WHEN grade.verdict IS NOT NULL THEN grade.verdict
        WHEN sample.stop_reason = 'error' THEN 'error'
        ELSE 'not_run'
    END AS verdict,
    sample.stop_reason IS NOT NULL AS finished,
    sample.stop_reason IS NOT NULL AND (grade.verdict IS NOT NULL OR sample.stop_reason = 'error') AS graded,
    version.grader_version, grade.extracted, grade.rule, grade.detail
FROM sample CROSS JOIN version
LEFT JOIN grade ON grade.run_id = sample.run_id AND grade.sample_id = sample.sample_id
    AND grade.grader_version = version.grader_version
WHERE sample.run_id = getvariable('loading_run');

INSERT INTO grade_total BY NAME
SELECT run_id, version.grader_version, count(*) AS num_samples, count(*) FILTER (verdict = 'correct') AS num_correct,
    count(*) FILTER (NOT finished) AS num_not_run, count(*) FILTER (finished AND NOT graded) AS num_ungraded,
    any_value(num_grades) AS num_grades, any_value(load_order) AS load_order
FROM graded_sample JOIN version ON version.grader_version IS NOT DISTINCT FROM graded_sample.grader_version
WHERE run_id = getvariable('loading_run') GROUP BY run_id, version.grader_version;

-- Steps of each sample by author and role, and its calls by model and purpose. The statements below sum these tables.
CREATE OR REPLACE TEMP TABLE written AS
SELECT sample_id, author, role, count(*) AS num_steps, sum(num_tokens) AS num_tokens,
    count(verdict_kind) AS num_verdicts, count(decision_kind) AS num_decisions,
    count(*) FILTER (decision_kind IS NOT NULL AND NOT decision_accepted) AS num_refused,
    exact_sum(verdict_mass) AS option_mass, count(verdict_score) FILTER (verdict_kind = 'score') AS num_scores,
    exact_sum(CASE WHEN verdict_kind = 'score' THEN verdict_score END) AS score,
    sum(num_wait) AS num_wait, sum(num_but) AS num_but, sum(num_hmm) AS num_hmm
FROM step WHERE run_id = getvariable('loading_run') GROUP BY sample_id, author, role;

CREATE OR REPLACE TEMP TABLE worked AS
SELECT sample_id, model, purpose, count(*) AS num_calls, sum(prompt_tokens) AS prompt_tokens,
    sum(cached_tokens) AS cached_tokens, sum(output_tokens) AS output_tokens,
    sum(longest_output_tokens) AS longest_output_tokens,
    exact_sum(first_token_seconds - queued_seconds) AS first_token_seconds,
    sum(greatest(longest_output_tokens - 1, 0)) AS decode_tokens,
    exact_sum(end_seconds - first_token_seconds) AS decode_seconds,
    exact_sum(queued_seconds) AS queued_seconds, exact_sum(end_seconds) AS end_seconds,
    exact_sum(greatest(queued_seconds - overlapped_seconds, 0)) AS waited_queued_seconds,
    exact_sum(end_seconds - overlapped_seconds) AS waited_seconds,
    min(submitted_at) AS first_submitted_at,
    max(submitted_at + to_microseconds((end_seconds * 1e6)::BIGINT)) AS last_ended_at
FROM call WHERE run_id = getvariable('loading_run') GROUP BY sample_id, model, purpose;

INSERT INTO sample_tokens BY NAME
WITH emitted AS (
    SELECT sample_id, author AS model, sum(num_tokens) AS tokens FROM written GROUP BY ALL
), called AS (
    SELECT sample_id, model, sum(output_tokens) AS spent,
        sum(longest_output_tokens) FILTER (purpose <> 'lookahead') AS critical_path
    FROM worked GROUP BY ALL
)
SELECT getvariable('loading_run') AS run_id, sample_id, model, coalesce(tokens, 0) AS emitted_tokens,
    coalesce(spent, 0) AS spent_tokens, coalesce(critical_path, 0) AS critical_path_tokens
FROM emitted FULL JOIN called USING (sample_id, model);

INSERT INTO sample_work BY NAME
SELECT getvariable('loading_run') AS run_id, sample_id, model, purpose, num_calls, longest_output_tokens,
    first_token_seconds, decode_tokens, decode_seconds
FROM worked;

INSERT INTO timed_sample BY NAME
SELECT sample.run_id, sample.sample_id, sample.problem_id, sample.attempt_id, sample.latency_seconds,
    coalesce(tokens.emitted_tokens, 0) AS emitted_tokens, coalesce(tokens.spent_tokens, 0) AS spent_tokens
FROM sample LEFT JOIN (
    SELECT sample_id, sum(emitted_tokens) AS emitted_tokens, sum(spent_tokens) AS spent_tokens
    FROM sample_tokens WHERE run_id = getvariable('loading_run') GROUP BY sample_id
) AS tokens USING (sample_id)
WHERE sample.run_id = getvariable('loading_run')
    AND sample.num_attempts = 1 AND sample.stop_reason <> 'error' AND sample.latency_seconds IS NOT NULL
    -- If the prompt fills the context, no model is called, so there is no time to measure.
    AND sample.sample_id IN (SELECT sample_id FROM sample_work WHERE run_id = getvariable('loading_run'));

INSERT INTO step_total BY NAME
SELECT getvariable('loading_run') AS run_id, author, role, sum(num_steps) AS num_steps, sum(num_tokens) AS num_tokens,
    sum(num_verdicts) AS num_verdicts, sum(num_decisions) AS num_decisions, sum(num_refused) AS num_refused,
    exact_sum(option_mass) AS option_mass, sum(num_wait) AS num_wait, sum(num_but) AS num_but, sum(num_hmm) AS num_hmm
FROM written GROUP BY author, role;

INSERT INTO sample_answer BY NAME
WITH ending AS (
    SELECT sample_id, max(step_index) AS step_index FROM step
    WHERE run_id = getvariable('loading_run') AND characters_after_thought IS NOT NULL GROUP BY sample_id
), answer AS (
    SELECT run_id, sample_id, author, step.step_index, step.num_tokens,
        CASE WHEN step.step_index = ending.step_index
            THEN CASE WHEN characters_after_thought = 0 THEN 0
                ELSE least(
                    coalesce(tokens_after_thought / step.num_tokens, characters_after_thought / num_characters), 1
                ) END::DECIMAL(18, 9) END AS share,
        step.step_index IS NOT DISTINCT FROM ending.step_index AND characters_after_thought > 0
            AND tokens_after_thought IS NULL AS is_estimated
    FROM step LEFT JOIN ending USING (sample_id)
    WHERE run_id = getvariable('loading_run')
        AND CASE WHEN ending.step_index IS NULL THEN role = 'answer' ELSE step.step_index >= ending.step_index END
), written AS (
    SELECT answer.sample_id, answer.author, exact_sum(CASE
        WHEN share IS NULL THEN end_seconds - overlapped_seconds
        WHEN model = author AND purpose NOT IN ('verdict', 'probe')
            THEN share * least(end_seconds - first_token_seconds, end_seconds - overlapped_seconds) END) AS seconds
    FROM answer JOIN call USING (run_id, sample_id, step_index)
    WHERE call.run_id = getvariable('loading_run') AND purpose <> 'lookahead' GROUP BY ALL
), counted AS (
    SELECT run_id, sample_id, author, sum(num_tokens::DECIMAL(18, 6) * coalesce(share, 1))::DOUBLE AS num_tokens,
        bool_or(is_estimated) AS is_estimated
    FROM answer GROUP BY run_id, sample_id, author
)
SELECT counted.*, coalesce(written.seconds, 0) AS seconds
FROM counted LEFT JOIN written USING (sample_id, author);

INSERT INTO problem_total BY NAME
WITH chain AS (
    SELECT sample_id, sum(num_steps) AS num_steps, sum(num_steps) FILTER (author = 'draft') AS num_draft_steps,
        sum(num_decisions) AS num_decisions, sum(num_refused) AS num_refused, sum(num_scores) AS num_scores,
        exact_sum(score) AS score,
        sum(num_wait + num_but + num_hmm) FILTER (role = 'draft') AS draft_words,
        sum(num_tokens) FILTER (role = 'draft') AS draft_tokens_written,
        sum(num_wait + num_but + num_hmm) FILTER (role = 'fallback') AS fallback_words,
        sum(num_tokens) FILTER (role = 'fallback') AS fallback_tokens_written
    FROM written GROUP BY sample_id
), token AS (
    SELECT sample_id, sum(emitted_tokens) AS emitted_tokens, sum(spent_tokens) AS spent_tokens,
        sum(critical_path_tokens) AS critical_path_tokens, sum(emitted_tokens) FILTER (model = 'draft') AS draft_tokens,
        sum(emitted_tokens) FILTER (model = 'target') AS target_tokens
    FROM sample_tokens WHERE run_id = getvariable('loading_run') GROUP BY sample_id
), answer AS (
    SELECT sample_id, sum(num_tokens) AS answer_tokens, sum(num_tokens) FILTER (author = 'target') AS target_answer_tokens,
        exact_sum(seconds) AS answer_seconds
    FROM sample_answer WHERE run_id = getvariable('loading_run') GROUP BY sample_id
), called AS (
    SELECT sample_id, sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
        sum(longest_output_tokens) FILTER (purpose = 'draft') AS longest_draft_tokens,
        exact_sum(CASE WHEN purpose <> 'lookahead' THEN waited_seconds END) AS waited_seconds,
        exact_sum(CASE WHEN purpose = 'draft' THEN waited_seconds END) AS drafting_seconds,
        exact_sum(CASE WHEN purpose = 'verdict' THEN waited_seconds END) AS verdict_seconds
    FROM worked GROUP BY sample_id
), timed AS (
    SELECT sample_id, latency_seconds AS timed_seconds, emitted_tokens AS timed_tokens
    FROM timed_sample WHERE run_id = getvariable('loading_run')
), counted AS (
    SELECT problem_id, stop_reason, * EXCLUDE (problem_id, stop_reason), timed_seconds IS NOT NULL AS is_timed,
        nullif(greatest(timed_seconds - coalesce(answer_seconds, 0), 0), 0) AS thought_seconds
    FROM (SELECT problem_id, sample_id, stop_reason FROM sample WHERE run_id = getvariable('loading_run')) AS sample
    LEFT JOIN chain USING (sample_id) LEFT JOIN token USING (sample_id) LEFT JOIN answer USING (sample_id)
    LEFT JOIN called USING (sample_id) LEFT JOIN timed USING (sample_id)
), summed AS (
    SELECT problem_id, count(*) AS num_samples, count(stop_reason) AS num_finished,
        coalesce(sum(COLUMNS('^(num_.*|draft_.*|fallback_.*|(?:emitted|spent|critical_path|target)_tokens)$')), 0) AS '\1',
        coalesce(sum(COLUMNS('^((?:prompt|cached|longest_draft|timed)_tokens)$')), 0) AS '\1',
        exact_sum(score) AS score,
        count(answer_tokens) AS num_answered, count(longest_draft_tokens) AS num_drafted,
        count(*) FILTER (is_timed) AS num_timed,
        CASE WHEN bool_and(isfinite(timed_seconds)) THEN exact_sum(timed_seconds) END AS timed_seconds,
        coalesce(exact_sum(COLUMNS('^((?:target_)?answer_tokens)$')), 0) AS '\1',
        coalesce(exact_sum(timed_tokens / nullif(timed_seconds, 0)), 0) AS token_rates,
        count(thought_seconds) AS num_thoughts,
        coalesce(exact_sum((emitted_tokens - coalesce(answer_tokens, 0)) / thought_seconds), 0) AS thought_rates,
        coalesce(exact_sum(CASE WHEN is_timed THEN COLUMNS('^((?:waited|drafting|verdict)_seconds)$') END), 0) AS '\1',
        coalesce(exact_sum(CASE WHEN is_timed THEN answer_seconds END), 0) AS timed_answer_seconds
    FROM counted GROUP BY problem_id
)
SELECT run_id, summed.* REPLACE (CASE WHEN draft_name IS NOT NULL THEN draft_tokens END AS draft_tokens)
FROM summed CROSS JOIN (FROM run WHERE run_id = getvariable('loading_run')) AS run;

-- rating: two decimals of a verdict's score; three significant digits of any other score, because its scale is unknown.
CREATE OR REPLACE TEMP TABLE judged AS
SELECT sample_id, step_index, num_steps, decision_kind AS kind, decision_value AS value,
    decision_threshold AS threshold, decision_accepts_below AS accepts_below, decision_accepted AS accepted,
    kind IN ('choice', 'score') AS is_verdict,
    CASE WHEN is_verdict THEN round(value, 2) ELSE rounded(value) END AS rating,
    CASE WHEN kind = 'score' THEN round(verdict_expected_score, 2) ELSE rating END AS expected_rating,
    CASE WHEN kind = 'score' THEN verdict_score END AS verdict_score,
    try_cast(verdict_options[verdict_decision + 1] AS DOUBLE) AS digit,
    CASE WHEN rule.score = 'average' THEN verdict_score ELSE verdict_expected_score END AS average,
    coalesce(rule.threshold, decision_threshold) AS own_threshold
FROM (FROM step WHERE run_id = getvariable('loading_run') AND decision_kind IS NOT NULL) AS step
JOIN (SELECT sample_id, sum(num_steps)::INTEGER AS num_steps FROM written GROUP BY sample_id) AS chain USING (sample_id)
CROSS JOIN (
    SELECT json_extract_string(params, '$.score') AS score,
        try_cast(json_extract_string(params, '$.threshold') AS DOUBLE) AS threshold
    FROM run WHERE run_id = getvariable('loading_run')
) AS rule;

INSERT INTO decision_kinds BY NAME
SELECT getvariable('loading_run') AS run_id, kind, count(*) AS num_decisions, count(*) FILTER (NOT accepted) AS num_refused,
    num_refused / num_decisions AS fallback_rate, count(value) AS num_values, min(value) AS lowest_value,
    median(value) AS median_value, max(value) AS highest_value, min(threshold) AS lowest_threshold,
    max(threshold) AS highest_threshold, bool_or(accepts_below) AS accepts_below
FROM judged GROUP BY kind;

INSERT INTO refusals BY NAME
WITH before AS ( -- is_begun is a column, because as a filter it would read the texts of all steps
    SELECT sample_id, step_index + 1 AS step_index, regexp_matches(split_part(text, E'\n\n', -1), '\S') AS is_begun
    FROM (FROM step WHERE run_id = getvariable('loading_run')) AS step
    SEMI JOIN (SELECT sample_id, step_index - 1 AS step_index FROM judged) AS decided USING (sample_id, step_index)
), refused AS (
    SELECT sample_id, step_index, bool_or(trim(candidate.text, E' \n\t') = trim(step.text, E' \n\t')) AS is_repeated
    FROM (FROM step WHERE run_id = getvariable('loading_run') AND NOT decision_accepted) AS step
    JOIN (FROM candidate WHERE run_id = getvariable('loading_run') AND option IS NOT NULL) AS candidate
        USING (sample_id, step_index)
    GROUP BY sample_id, step_index
)
SELECT getvariable('loading_run') AS run_id, kind,
    CASE WHEN is_begun THEN 'begun step' ELSE 'new step' END AS place, count(*) AS num_decisions,
    count(*) FILTER (NOT accepted) AS num_refused, num_refused / num_decisions AS refusal_rate,
    count(*) FILTER (is_repeated) AS num_repeated, num_repeated / nullif(num_refused, 0) AS share_repeated
FROM judged LEFT JOIN before USING (sample_id, step_index) LEFT JOIN refused USING (sample_id, step_index)
GROUP BY ALL;

INSERT INTO rating_total BY NAME
SELECT graded.run_id, grader_version, kind, accepted, accepts_below, rating, expected_rating,
    count(*) FILTER (verdict = 'correct') AS num_correct, count(*) FILTER (verdict <> 'correct') AS num_incorrect
FROM judged JOIN (FROM graded_sample WHERE run_id = getvariable('loading_run')) AS graded USING (sample_id)
WHERE graded AND grader_version IS NOT NULL AND isfinite(rating) AND isfinite(expected_rating) GROUP BY ALL;

INSERT INTO draft_selection BY NAME
WITH option AS (
    SELECT coalesce(num_offered, 0) AS num_offered, verdict_decision,
        generate_subscripts(verdict_logprobs, 1) - 1 AS option_index,
        unnest(list_transform(verdict_logprobs, lambda x: exp(x) / verdict_mass)) AS probability
    FROM step WHERE run_id = getvariable('loading_run') AND verdict_kind = 'choice'
)
SELECT getvariable('loading_run') AS run_id, num_offered, option_index, option_index >= num_offered AS is_reject,
    count(*) AS num_verdicts, count(*) FILTER (verdict_decision = option_index) AS num_chosen,
    num_chosen / num_verdicts AS share, coalesce(exact_sum(probability), 0) / num_verdicts AS mean_probability
FROM option GROUP BY num_offered, option_index;

-- Score verdicts are replayed at integer thresholds (most probable digit) and at halves (average of the digits), both
-- also at the run's own; other scores at the quantiles of the run's scores and at up to ten thresholds of the run.
CREATE OR REPLACE TEMP TABLE replayed AS
WITH scored AS (
    SELECT sample_id, any_value(num_steps) AS num_steps, any_value(own_threshold) AS own_threshold,
        [
            first_changed(step_index, accepted, digit, 0), first_changed(step_index, accepted, digit, 1),
            first_changed(step_index, accepted, digit, 2), first_changed(step_index, accepted, digit, 3),
            first_changed(step_index, accepted, digit, 4), first_changed(step_index, accepted, digit, 5),
            first_changed(step_index, accepted, digit, 6), first_changed(step_index, accepted, digit, 7),
            first_changed(step_index, accepted, digit, 8), first_changed(step_index, accepted, digit, 9),
            first_changed(step_index, accepted, digit, own_threshold)
        ] AS greedy,
        [
            first_changed(step_index, accepted, average, 0), first_changed(step_index, accepted, average, 0.5),
            first_changed(step_index, accepted, average, 1), first_changed(step_index, accepted, average, 1.5),
            first_changed(step_index, accepted, average, 2), first_changed(step_index, accepted, average, 2.5),
            first_changed(step_index, accepted, average, 3), first_changed(step_index, accepted, average, 3.5),
            first_changed(step_index, accepted, average, 4), first_changed(step_index, accepted, average, 4.5),
            first_changed(step_index, accepted, average, 5), first_changed(step_index, accepted, average, 5.5),
            first_changed(step_index, accepted, average, 6), first_changed(step_index, accepted, average, 6.5),
            first_changed(step_index, accepted, average, 7), first_changed(step_index, accepted, average, 7.5),
            first_changed(step_index, accepted, average, 8), first_changed(step_index, accepted, average, 8.5),
            first_changed(step_index, accepted, average, 9), first_changed(step_index, accepted, average, own_threshold)
        ] AS average
    FROM judged WHERE kind = 'score' AND isfinite(verdict_score) GROUP BY sample_id
), change AS (
    SELECT sample_id, num_steps, 'greedy' AS score, unnest([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, own_threshold]) AS threshold,
        unnest(range(11)) = 10 AS is_own, unnest(greedy) AS step_index
    FROM scored
    UNION ALL
    SELECT sample_id, num_steps, 'average',
        unnest(list_append(list_transform(range(19), lambda half: half / 2), own_threshold)),
        unnest(range(20)) = 19, unnest(average)
    FROM scored
), numbered AS (
    FROM judged WHERE NOT is_verdict AND value IS NOT NULL
), used AS (
    SELECT kind, threshold, row_number() OVER (PARTITION BY kind ORDER BY count(*) DESC, threshold) AS place
    FROM numbered WHERE threshold IS NOT NULL GROUP BY kind, threshold
), swept AS (
    SELECT kind, threshold FROM used WHERE place <= 10
    UNION
    SELECT kind, unnest(quantile_disc(value, list_transform(range(21), lambda twentieth: twentieth / 20)))
    FROM numbered GROUP BY kind
)
SELECT sample_id, num_steps, score, threshold::DOUBLE AS threshold, step_index FROM change
WHERE NOT is_own OR threshold NOT BETWEEN 0 AND 9
    OR threshold <> CASE score WHEN 'greedy' THEN round(threshold) ELSE round(2 * threshold) / 2 END
UNION ALL
SELECT sample_id, any_value(num_steps), kind, swept.threshold,
    min(CASE WHEN accepted <> CASE WHEN accepts_below THEN value <= swept.threshold ELSE value >= swept.threshold END
        THEN step_index END)
FROM numbered JOIN swept USING (kind) GROUP BY sample_id, kind, swept.threshold;

INSERT INTO replay_total BY NAME
WITH problem_replay AS (
    SELECT grader_version, problem_id, score, threshold, count(*) AS num_samples, count(step_index) AS num_changed,
        sum(num_steps) AS num_steps, sum(coalesce(step_index, num_steps)) AS num_exact_steps,
        nullif(count(*) FILTER (graded), 0) AS num_graded, count(step_index) FILTER (graded) AS num_changed_graded,
        count(*) FILTER (verdict = 'correct') AS num_correct,
        count(*) FILTER (verdict = 'correct' AND step_index IS NULL) AS num_unchanged_correct
    FROM replayed JOIN (FROM graded_sample WHERE run_id = getvariable('loading_run')) AS graded USING (sample_id)
    GROUP BY ALL
), single AS (
    SELECT kind AS score, min(threshold) AS own_threshold FROM judged WHERE NOT is_verdict AND value IS NOT NULL
    GROUP BY kind HAVING min(threshold) = max(threshold) AND count(threshold) = count(*)
)
SELECT run_id, grader_version, score, threshold,
    coalesce(CASE
        WHEN score IN ('greedy', 'average') THEN json_extract_string(run.params, '$.score') = score
            AND try_cast(json_extract_string(run.params, '$.threshold') AS DOUBLE) = threshold
            AND coalesce(try_cast(json_extract_string(run.params, '$.threshold_slope') AS DOUBLE), 0) = 0
        ELSE threshold = single.own_threshold
    END, false) AS is_own, count(*) AS num_problems,
    count(*) FILTER (num_changed = 0) AS num_exact_problems, sum(num_samples) AS num_samples,
    sum(num_changed) AS num_changed_samples, sum(num_steps) AS num_steps, sum(num_exact_steps) AS num_exact_steps,
    exact_sum(num_unchanged_correct / num_graded) / nullif(count(num_graded), 0) AS accuracy_at_least,
    exact_sum((num_unchanged_correct + num_changed_graded) / num_graded) / nullif(count(num_graded), 0)
        AS accuracy_at_most,
    exact_sum(num_correct / num_graded) / nullif(count(num_graded), 0) AS accuracy_of_run
FROM problem_replay CROSS JOIN (SELECT run_id, params FROM run WHERE run_id = getvariable('loading_run')) AS run
LEFT JOIN single USING (score)
GROUP BY ALL;

INSERT INTO call_total BY NAME
SELECT getvariable('loading_run') AS run_id, sample.attempt_id, timed.sample_id IS NOT NULL AS is_timed, model, purpose,
    sum(COLUMNS('^(num_calls|(?:prompt|cached|output)_tokens)$')) AS '\1',
    exact_sum(COLUMNS('^(queued_seconds|end_seconds|waited_queued_seconds|waited_seconds)$')) AS '\1',
    min(first_submitted_at) AS first_submitted_at, max(last_ended_at) AS last_ended_at
FROM worked
JOIN (FROM sample WHERE run_id = getvariable('loading_run')) AS sample USING (sample_id)
LEFT JOIN (FROM timed_sample WHERE run_id = getvariable('loading_run')) AS timed USING (sample_id)
GROUP BY ALL;

-- The content of prefix caches depends on the load, so prompt tokens are counted from the chain alone.
CREATE OR REPLACE TEMP TABLE timing_chain AS
WITH called AS (
    SELECT sample_id, false AS is_timed, call_index, purpose, model, n, prompt_tokens, longest_output_tokens,
        overlapped_seconds
    FROM call SEMI JOIN (FROM timing_draw WHERE run_id = getvariable('loading_run')) AS drawn USING (run_id, sample_id)
    UNION ALL
    SELECT sample_id, true, call_index, purpose, model, n, prompt_tokens, longest_output_tokens, overlapped_seconds
    FROM staged_timing_call
), read AS (
    SELECT *, greatest(0, prompt_tokens - coalesce(max(prompt_tokens) OVER (
            PARTITION BY is_timed, sample_id, model ORDER BY call_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0)) AS unread_prompt_tokens
    FROM called
)
SELECT *, last_value(CASE WHEN purpose = 'verdict' THEN struct_pack(
        model := model, prompt := unread_prompt_tokens, output := longest_output_tokens, n := n
    ) END IGNORE NULLS) OVER (
        PARTITION BY is_timed, sample_id ORDER BY call_index ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS before, purpose = 'draft' AND overlapped_seconds > 0 AND before IS NOT NULL AS is_ahead
FROM read;

INSERT INTO timing_call BY NAME
SELECT staged.*, unread_prompt_tokens
FROM (SELECT * EXCLUDE (unread_prompt_tokens) FROM staged_timing_call) AS staged
JOIN (FROM timing_chain WHERE is_timed) AS chain USING (sample_id, call_index);

INSERT INTO timing_work BY NAME
WITH work AS (
    SELECT sample_id, is_timed, CASE WHEN is_ahead THEN 'ahead' ELSE 'after' END AS part, model,
        unread_prompt_tokens AS prompt, longest_output_tokens AS output, n
    FROM timing_chain WHERE purpose <> 'lookahead'
    UNION ALL
    SELECT sample_id, is_timed, 'under', before.model, before.prompt, before.output, before.n
    FROM timing_chain WHERE is_ahead
)
SELECT getvariable('loading_run') AS run_id, sample_id, is_timed, part, model, count(*) AS num_calls,
    sum(prompt) AS new_prompt_tokens, sum(output) AS output_tokens, sum(output * (n - 1)) AS further_output_tokens
FROM work GROUP BY ALL;
