-- Totals of the run that the variable loading_run names, from the rows that insert.sql wrote. Sums of fractions go
-- through DECIMAL, so they do not depend on the order of the rows and a rebuilt database is the same to the last digit.

INSERT INTO grade_total BY NAME
SELECT run_id, grader_version, count(*) AS num_grades, count(*) FILTER (verdict = 'correct') AS num_correct,
    max(load_order) AS load_order
FROM grade WHERE run_id = getvariable('loading_run') GROUP BY run_id, grader_version;

INSERT INTO graded_sample BY NAME
WITH version AS (
    SELECT grader_version FROM grade_total WHERE run_id = getvariable('loading_run') UNION ALL SELECT NULL
)
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

INSERT INTO sample_tokens BY NAME
WITH emitted AS (
    SELECT run_id, sample_id, author AS model, sum(num_tokens) AS tokens FROM step
    WHERE run_id = getvariable('loading_run') GROUP BY ALL
), worked AS (
    SELECT run_id, sample_id, model, sum(output_tokens) AS spent,
        coalesce(sum(longest_output_tokens) FILTER (purpose <> 'lookahead'), 0) AS critical_path
    FROM call WHERE run_id = getvariable('loading_run') GROUP BY ALL
)
SELECT run_id, sample_id, model, coalesce(emitted.tokens, 0) AS emitted_tokens,
    coalesce(worked.spent, 0) AS spent_tokens, coalesce(worked.critical_path, 0) AS critical_path_tokens
FROM emitted FULL JOIN worked USING (run_id, sample_id, model);

INSERT INTO sample_work BY NAME
SELECT run_id, sample_id, model, purpose, count(*) AS num_calls, sum(longest_output_tokens) AS longest_output_tokens,
    exact_sum(first_token_seconds - queued_seconds) AS first_token_seconds,
    sum(greatest(longest_output_tokens - 1, 0)) AS decode_tokens,
    exact_sum(end_seconds - first_token_seconds) AS decode_seconds
FROM call WHERE run_id = getvariable('loading_run') GROUP BY run_id, sample_id, model, purpose;

INSERT INTO timed_sample BY NAME
SELECT sample.run_id, sample.sample_id, sample.problem_id, sample.attempt_id, sample.latency_seconds,
    coalesce(tokens.emitted_tokens, 0) AS emitted_tokens, coalesce(tokens.spent_tokens, 0) AS spent_tokens
FROM sample LEFT JOIN (
    SELECT sample_id, sum(emitted_tokens) AS emitted_tokens, sum(spent_tokens) AS spent_tokens
    FROM sample_tokens WHERE run_id = getvariable('loading_run') GROUP BY sample_id
) AS tokens USING (sample_id)
WHERE sample.run_id = getvariable('loading_run')
    AND sample.num_attempts = 1 AND sample.stop_reason <> 'error' AND sample.latency_seconds IS NOT NULL
    -- Where the prompt fills the context nothing is asked of a model, and there is no time to measure.
    AND sample.sample_id IN (SELECT sample_id FROM sample_work WHERE run_id = getvariable('loading_run'));

INSERT INTO step_total BY NAME
SELECT run_id, author, role, count(*) AS num_steps, sum(num_tokens) AS num_tokens,
    count(verdict_kind) AS num_verdicts, count(decision_kind) AS num_decisions,
    count(*) FILTER (decision_kind IS NOT NULL AND NOT decision_accepted) AS num_refused,
    exact_sum(verdict_mass) AS option_mass,
    sum(num_wait) AS num_wait, sum(num_but) AS num_but, sum(num_hmm) AS num_hmm
FROM step WHERE run_id = getvariable('loading_run') GROUP BY run_id, author, role;

INSERT INTO decision_total BY NAME
SELECT run_id, decision_kind AS kind, count(*) AS num_decisions, count(*) FILTER (NOT decision_accepted) AS num_refused,
    count(decision_value) AS num_values, min(decision_value) AS lowest_value, median(decision_value) AS median_value,
    max(decision_value) AS highest_value, min(decision_threshold) AS lowest_threshold,
    max(decision_threshold) AS highest_threshold, bool_or(decision_accepts_below) AS accepts_below
FROM step WHERE run_id = getvariable('loading_run') AND decision_kind IS NOT NULL GROUP BY run_id, decision_kind;

INSERT INTO refusal_total BY NAME
WITH placed AS (
    SELECT run_id, sample_id, step_index, text, decision_kind AS kind, verdict_kind, decision_accepted AS accepted,
        lag(text, 1, '') OVER (PARTITION BY sample_id ORDER BY step_index) AS previous,
        regexp_matches(split_part(previous, E'\n\n', -1), '\S') AS is_begun
    FROM step WHERE run_id = getvariable('loading_run')
), refused AS (
    SELECT sample_id, step_index, bool_or(trim(candidate.text, E' \n\t') = trim(placed.text, E' \n\t')) AS is_repeated
    FROM placed JOIN (FROM candidate WHERE run_id = getvariable('loading_run')) AS candidate USING (sample_id, step_index)
    WHERE kind IS NOT NULL AND NOT placed.accepted AND candidate.option IS NOT NULL
    GROUP BY sample_id, step_index
)
SELECT run_id, kind, CASE WHEN kind = verdict_kind THEN verdict_kind END AS verdict_kind, is_begun,
    count(*) FILTER (kind = verdict_kind) AS num_verdicts, count(*) AS num_decisions,
    count(*) FILTER (NOT accepted) AS num_refused, count(*) FILTER (is_repeated) AS num_repeated
FROM placed LEFT JOIN refused USING (sample_id, step_index)
WHERE kind IS NOT NULL GROUP BY ALL;

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
        WHEN model = author AND purpose <> 'verdict'
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
    SELECT sample_id, count(*) AS num_steps, count(*) FILTER (author = 'draft') AS num_draft_steps,
        count(*) FILTER (decision_kind IS NOT NULL) AS num_decisions,
        count(*) FILTER (decision_kind IS NOT NULL AND NOT decision_accepted) AS num_refused,
        count(verdict_score) AS num_scores, exact_sum(verdict_score) AS score,
        sum(num_wait + num_but + num_hmm) FILTER (role = 'draft') AS draft_words,
        sum(num_tokens) FILTER (role = 'draft') AS draft_tokens_written,
        sum(num_wait + num_but + num_hmm) FILTER (role = 'fallback') AS fallback_words,
        sum(num_tokens) FILTER (role = 'fallback') AS fallback_tokens_written
    FROM step WHERE run_id = getvariable('loading_run') GROUP BY sample_id
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
        exact_sum(CASE WHEN purpose <> 'lookahead' THEN end_seconds - overlapped_seconds END) AS waited_seconds,
        exact_sum(CASE WHEN purpose = 'draft' THEN end_seconds - overlapped_seconds END) AS drafting_seconds,
        exact_sum(CASE WHEN purpose = 'verdict' THEN end_seconds - overlapped_seconds END) AS verdict_seconds
    FROM call WHERE run_id = getvariable('loading_run') GROUP BY sample_id
), timed AS (
    SELECT sample_id, latency_seconds AS timed_seconds, emitted_tokens AS timed_tokens
    FROM timed_sample WHERE run_id = getvariable('loading_run')
), counted AS (
    SELECT sample.run_id, problem_id, stop_reason, * EXCLUDE (run_id, problem_id, stop_reason),
        timed_seconds IS NOT NULL AS is_timed,
        nullif(greatest(timed_seconds - coalesce(answer_seconds, 0), 0), 0) AS thought_seconds
    FROM (SELECT run_id, problem_id, sample_id, stop_reason FROM sample WHERE run_id = getvariable('loading_run')) AS sample
    LEFT JOIN chain USING (sample_id) LEFT JOIN token USING (sample_id) LEFT JOIN answer USING (sample_id)
    LEFT JOIN called USING (sample_id) LEFT JOIN timed USING (sample_id)
), summed AS (
    SELECT run_id, problem_id, count(*) AS num_samples, count(stop_reason) AS num_finished,
        coalesce(sum(num_steps), 0) AS num_steps, coalesce(sum(num_draft_steps), 0) AS num_draft_steps,
        coalesce(sum(num_decisions), 0) AS num_decisions, coalesce(sum(num_refused), 0) AS num_refused,
        coalesce(sum(num_scores), 0) AS num_scores, exact_sum(score) AS score,
        coalesce(sum(draft_words), 0) AS draft_words, coalesce(sum(draft_tokens_written), 0) AS draft_tokens_written,
        coalesce(sum(fallback_words), 0) AS fallback_words,
        coalesce(sum(fallback_tokens_written), 0) AS fallback_tokens_written,
        coalesce(sum(emitted_tokens), 0) AS emitted_tokens, coalesce(sum(spent_tokens), 0) AS spent_tokens,
        coalesce(sum(critical_path_tokens), 0) AS critical_path_tokens,
        coalesce(sum(draft_tokens), 0) AS draft_tokens, coalesce(sum(target_tokens), 0) AS target_tokens,
        count(answer_tokens) AS num_answered, coalesce(exact_sum(answer_tokens), 0) AS answer_tokens,
        coalesce(exact_sum(target_answer_tokens), 0) AS target_answer_tokens,
        coalesce(sum(prompt_tokens), 0) AS prompt_tokens, coalesce(sum(cached_tokens), 0) AS cached_tokens,
        count(longest_draft_tokens) AS num_drafted, coalesce(sum(longest_draft_tokens), 0) AS longest_draft_tokens,
        count(*) FILTER (is_timed) AS num_timed,
        CASE WHEN bool_and(isfinite(timed_seconds)) THEN exact_sum(timed_seconds) END AS timed_seconds,
        coalesce(sum(timed_tokens), 0) AS timed_tokens,
        coalesce(exact_sum(timed_tokens / nullif(timed_seconds, 0)), 0) AS token_rates,
        count(thought_seconds) AS num_thoughts,
        coalesce(exact_sum((emitted_tokens - coalesce(answer_tokens, 0)) / thought_seconds), 0) AS thought_rates,
        coalesce(exact_sum(CASE WHEN is_timed THEN waited_seconds END), 0) AS waited_seconds,
        coalesce(exact_sum(CASE WHEN is_timed THEN drafting_seconds END), 0) AS drafting_seconds,
        coalesce(exact_sum(CASE WHEN is_timed THEN verdict_seconds END), 0) AS verdict_seconds,
        coalesce(exact_sum(CASE WHEN is_timed THEN answer_seconds END), 0) AS timed_answer_seconds
    FROM counted GROUP BY run_id, problem_id
)
SELECT summed.* REPLACE (CASE WHEN draft_name IS NOT NULL THEN draft_tokens END AS draft_tokens)
FROM summed JOIN run USING (run_id);

-- rating: two decimals of a verdict's number, as ever; three significant digits of any other, whose scale is not known.
CREATE OR REPLACE TEMP TABLE judged AS
SELECT step.run_id, step.sample_id, step.step_index, chain.num_steps,
    1 + (10 * step.step_index) // chain.num_steps AS tenth,
    decision_kind AS kind, decision_value AS value, decision_threshold AS threshold,
    decision_accepts_below AS accepts_below, decision_accepted AS accepted, kind IN ('choice', 'score') AS is_verdict,
    CASE WHEN is_verdict THEN round(value, 2) ELSE rounded(value) END AS rating,
    CASE WHEN kind = 'score' THEN round(verdict_expected_score, 2) ELSE rating END AS expected_rating,
    CASE WHEN kind = 'score' THEN verdict_score END AS verdict_score,
    try_cast(verdict_options[verdict_decision + 1] AS DOUBLE) AS digit, verdict_expected_score,
    CASE WHEN json_extract_string(run.params, '$.score') = 'average' THEN verdict_score ELSE verdict_expected_score END
        AS average,
    coalesce(try_cast(json_extract_string(run.params, '$.threshold') AS DOUBLE), decision_threshold) AS own_threshold
FROM step
JOIN run USING (run_id)
JOIN (
    SELECT sample_id, count(*)::INTEGER AS num_steps FROM step
    WHERE run_id = getvariable('loading_run') GROUP BY sample_id
) AS chain USING (sample_id)
WHERE step.run_id = getvariable('loading_run') AND decision_kind IS NOT NULL;

INSERT INTO position_total BY NAME
SELECT run_id, step_index, count(*) FILTER (is_verdict) AS num_verdicts, count(*) AS num_decisions,
    count(*) FILTER (accepted) AS num_accepted
FROM judged GROUP BY run_id, step_index;

INSERT INTO sample_verdicts BY NAME
SELECT run_id, sample_id, any_value(num_steps) AS num_steps, count(*) AS num_verdicts,
    exact_sum(verdict_score) / count(*) AS mean_score, min(verdict_score) AS lowest_score,
    any_value(own_threshold) AS own_threshold,
    [
        first_changed(step_index, accepted, digit, 0),
        first_changed(step_index, accepted, digit, 1),
        first_changed(step_index, accepted, digit, 2),
        first_changed(step_index, accepted, digit, 3),
        first_changed(step_index, accepted, digit, 4),
        first_changed(step_index, accepted, digit, 5),
        first_changed(step_index, accepted, digit, 6),
        first_changed(step_index, accepted, digit, 7),
        first_changed(step_index, accepted, digit, 8),
        first_changed(step_index, accepted, digit, 9),
        first_changed(step_index, accepted, digit, own_threshold)
    ] AS greedy_change,
    [
        first_changed(step_index, accepted, average, 0),
        first_changed(step_index, accepted, average, 0.5),
        first_changed(step_index, accepted, average, 1),
        first_changed(step_index, accepted, average, 1.5),
        first_changed(step_index, accepted, average, 2),
        first_changed(step_index, accepted, average, 2.5),
        first_changed(step_index, accepted, average, 3),
        first_changed(step_index, accepted, average, 3.5),
        first_changed(step_index, accepted, average, 4),
        first_changed(step_index, accepted, average, 4.5),
        first_changed(step_index, accepted, average, 5),
        first_changed(step_index, accepted, average, 5.5),
        first_changed(step_index, accepted, average, 6),
        first_changed(step_index, accepted, average, 6.5),
        first_changed(step_index, accepted, average, 7),
        first_changed(step_index, accepted, average, 7.5),
        first_changed(step_index, accepted, average, 8),
        first_changed(step_index, accepted, average, 8.5),
        first_changed(step_index, accepted, average, 9),
        first_changed(step_index, accepted, average, own_threshold)
    ] AS average_change
FROM judged WHERE kind = 'score' AND isfinite(verdict_score) GROUP BY run_id, sample_id;

INSERT INTO sample_decisions BY NAME
WITH numbered AS (
    FROM judged WHERE NOT is_verdict AND value IS NOT NULL
), used AS (
    SELECT kind, threshold, row_number() OVER (PARTITION BY kind ORDER BY count(*) DESC, threshold) AS place
    FROM numbered WHERE threshold IS NOT NULL GROUP BY kind, threshold
), swept AS (
    SELECT DISTINCT kind, threshold FROM (
        SELECT kind, threshold FROM used WHERE place <= 10
        UNION ALL
        SELECT kind, unnest(quantile_disc(value, list_transform(range(21), lambda twentieth: twentieth / 20)))
        FROM numbered GROUP BY kind
    )
), changed AS (
    SELECT run_id, sample_id, kind, swept.threshold,
        min(CASE WHEN accepted <> CASE WHEN accepts_below THEN value <= swept.threshold ELSE value >= swept.threshold END
            THEN step_index END) AS step_index
    FROM numbered JOIN swept USING (kind) GROUP BY ALL
), replayed AS (
    SELECT run_id, sample_id, kind, list(threshold ORDER BY threshold) AS thresholds,
        list(step_index ORDER BY threshold) AS changes
    FROM changed GROUP BY run_id, sample_id, kind
), counted AS (
    SELECT run_id, sample_id, kind, any_value(num_steps) AS num_steps, count(*) AS num_decisions,
        bool_or(accepts_below) AS accepts_below, list_sum(list_sort(list(value))) / count(*) AS mean_value,
        CASE WHEN bool_or(accepts_below) THEN max(value) ELSE min(value) END AS worst_value
    FROM numbered GROUP BY run_id, sample_id, kind
)
FROM counted JOIN replayed USING (run_id, sample_id, kind);

CREATE OR REPLACE TEMP TABLE graded_decision AS
SELECT run_id, grader_version, problem_id, verdict = 'correct' AS is_correct, kind, is_verdict, accepted, accepts_below,
    tenth, rating, expected_rating
FROM judged JOIN graded_sample AS graded USING (run_id, sample_id)
WHERE graded.graded AND graded.grader_version IS NOT NULL AND isfinite(rating) AND isfinite(expected_rating);

INSERT INTO rating_total BY NAME
SELECT run_id, grader_version, is_correct, kind, CASE WHEN is_verdict THEN kind END AS verdict_kind, accepted,
    accepts_below, tenth, rating, expected_rating, count(*) FILTER (is_verdict) AS num_verdicts,
    count(*) AS num_decisions
FROM graded_decision GROUP BY ALL;

INSERT INTO option_total BY NAME
WITH option AS (
    SELECT run_id, coalesce(num_offered, 0) AS num_offered, verdict_decision, generate_subscripts(verdict_logprobs, 1) - 1 AS option_index,
        unnest(list_transform(verdict_logprobs, lambda x: exp(x) / verdict_mass)) AS probability
    FROM step WHERE run_id = getvariable('loading_run') AND verdict_kind = 'choice'
)
SELECT run_id, num_offered, option_index, count(*) AS num_verdicts,
    count(*) FILTER (verdict_decision = option_index) AS num_chosen, coalesce(exact_sum(probability), 0) AS probability
FROM option GROUP BY run_id, num_offered, option_index;

INSERT INTO replay_total BY NAME
WITH rule AS (
    SELECT sample_id, num_steps, score, threshold, step_index FROM sample_change
    WHERE run_id = getvariable('loading_run')
), problem_replay AS (
    SELECT graded.run_id, graded.grader_version, graded.problem_id, score, threshold, count(*) AS num_samples,
        count(step_index) AS num_changed, sum(num_steps) AS num_steps,
        sum(coalesce(step_index, num_steps)) AS num_exact_steps,
        nullif(count(*) FILTER (graded.graded), 0) AS num_graded,
        count(step_index) FILTER (graded.graded) AS num_changed_graded,
        count(*) FILTER (graded.verdict = 'correct') AS num_correct,
        count(*) FILTER (graded.verdict = 'correct' AND step_index IS NULL) AS num_unchanged_correct
    FROM rule JOIN graded_sample AS graded USING (sample_id)
    WHERE graded.run_id = getvariable('loading_run') GROUP BY ALL
)
SELECT problem_replay.run_id, grader_version, score, threshold,
    coalesce(CASE
        WHEN score IN ('greedy', 'average') THEN json_extract_string(run.params, '$.score') = score
            AND try_cast(json_extract_string(run.params, '$.threshold') AS DOUBLE) = threshold
        ELSE threshold = single.own_threshold
    END, false) AS is_own, count(*) AS num_problems,
    count(*) FILTER (num_changed = 0) AS num_exact_problems, sum(num_samples) AS num_samples,
    sum(num_changed) AS num_changed_samples, sum(num_steps) AS num_steps, sum(num_exact_steps) AS num_exact_steps,
    exact_sum(num_unchanged_correct / num_graded) / nullif(count(num_graded), 0) AS accuracy_at_least,
    exact_sum((num_unchanged_correct + num_changed_graded) / num_graded) / nullif(count(num_graded), 0)
        AS accuracy_at_most,
    exact_sum(num_correct / num_graded) / nullif(count(num_graded), 0) AS accuracy_of_run
FROM problem_replay JOIN run USING (run_id) LEFT JOIN (
    SELECT kind AS score, min(threshold) AS own_threshold FROM judged WHERE NOT is_verdict AND value IS NOT NULL GROUP BY kind
    HAVING min(threshold) = max(threshold) AND count(threshold) = count(*)
) AS single USING (score)
GROUP BY ALL;

INSERT INTO call_total BY NAME
SELECT call.run_id, sample.attempt_id, timed.sample_id IS NOT NULL AS is_timed, model, purpose,
    count(*) AS num_calls, sum(prompt_tokens) AS prompt_tokens, sum(cached_tokens) AS cached_tokens,
    sum(output_tokens) AS output_tokens,
    exact_sum(queued_seconds) AS queued_seconds, exact_sum(end_seconds) AS end_seconds,
    exact_sum(greatest(queued_seconds - overlapped_seconds, 0)) AS waited_queued_seconds,
    exact_sum(end_seconds - overlapped_seconds) AS waited_seconds,
    min(submitted_at) AS first_submitted_at,
    max(submitted_at + to_microseconds((end_seconds * 1e6)::BIGINT)) AS last_ended_at
FROM call
JOIN (FROM sample WHERE run_id = getvariable('loading_run')) AS sample USING (sample_id)
LEFT JOIN (FROM timed_sample WHERE run_id = getvariable('loading_run')) AS timed USING (sample_id)
WHERE call.run_id = getvariable('loading_run') GROUP BY ALL;

-- What the prefix caches held depends on the load, so prompt tokens are counted by the chain alone.
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
