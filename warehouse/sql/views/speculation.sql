-- How often the target accepted drafts, and which model wrote the steps. Rates are over steps, not over problems.

CREATE OR REPLACE VIEW fallback_rate AS
WITH rate AS (
    SELECT run_id, estimate, low_95, high_95 FROM counted_estimate WHERE metric = 'fallback_rate'
)
SELECT run_id, sum(num_decisions)::BIGINT AS num_decisions, sum(num_verdicts)::BIGINT AS num_verdicts,
    sum(num_refused)::BIGINT AS num_refused, any_value(rate.estimate) AS fallback_rate,
    coalesce(sum(num_steps - num_decisions) FILTER (role = 'rethink'), 0)::BIGINT AS num_refused_unasked,
    sum(option_mass) / nullif(sum(num_verdicts), 0) AS mean_option_mass,
    any_value(rate.low_95) AS low_95, any_value(rate.high_95) AS high_95
FROM step_total LEFT JOIN rate USING (run_id) GROUP BY run_id;
COMMENT ON VIEW fallback_rate IS 'Share of the decisions, by verdicts or otherwise, that rejected all candidates, with its 95 % interval over problems. num_verdicts: steps with a verdict. num_refused_unasked: SCoT''s rethinking without a verdict, because no draft chain was complete; not included in the rate. Kinds of decisions: decision_kinds';

CREATE OR REPLACE VIEW decision AS
SELECT run_id, sample_id, step_index, decision_kind AS kind, decision_value AS value, decision_threshold AS threshold,
    decision_accepts_below AS accepts_below, decision_accepted AS accepted
FROM step WHERE decision_kind IS NOT NULL;
COMMENT ON VIEW decision IS 'How each step came to be taken or its candidates to be refused: by what, at which number, against which threshold. One row per step that something decided about, whether a verdict or the method''s own means; choice and score are verdicts, whose details are in step. Key: run_id, sample_id, step_index';

CREATE OR REPLACE VIEW decision_kinds AS
SELECT run_id, kind, num_decisions, num_refused, num_refused / num_decisions AS fallback_rate, num_values,
    lowest_value, median_value, highest_value, lowest_threshold, highest_threshold, accepts_below
FROM decision_total;
COMMENT ON VIEW decision_kinds IS 'Decisions of a run by kind: how many, how many rejected all candidates, and the numbers and thresholds that they were made by. Over steps, not over problems';

CREATE OR REPLACE VIEW refusals AS
SELECT run_id, kind, verdict_kind, CASE WHEN is_begun THEN 'begun step' ELSE 'new step' END AS place,
    num_decisions, num_verdicts, num_refused, num_refused / num_decisions AS refusal_rate,
    num_repeated, num_repeated / nullif(num_refused, 0) AS share_repeated
FROM refusal_total;
COMMENT ON VIEW refusals IS 'Rejections by place: of a new step, or of one that the chain had begun (after guidance, or after a step that its limit cut). num_repeated: after the rejection the target wrote exactly a text that it had rejected. A judge that is asked correctly rarely does so: a high share_repeated, or a refusal_rate that is much higher for begun steps, means that the question is at fault';

CREATE OR REPLACE VIEW fallback_rate_by_setting AS
SELECT run.dataset, run.method, run.draft_name, run.target_name, run.engine_kind,
    coalesce(json_extract(run.params, '$.drafts')::INTEGER, 1) AS drafts,
    count(*) AS num_runs, count(DISTINCT concat(run.params, run.reward_name)) AS num_parameter_sets, bool_or(run.limited) AS limited,
    sum(num_decisions)::BIGINT AS num_decisions, sum(num_verdicts)::BIGINT AS num_verdicts,
    sum(num_refused)::BIGINT AS num_refused, sum(num_refused) / sum(num_decisions) AS fallback_rate
FROM run JOIN fallback_rate USING (run_id) WHERE num_decisions > 0 GROUP BY ALL;
COMMENT ON VIEW fallback_rate_by_setting IS 'Fallback rate by dataset, method, models, engine and number of drafts, over all decisions of the runs (SpecCoT, figure 4 and table 3). num_parameter_sets above 1: these runs differ in other hyper-parameters or in the reward model; limited: one of the runs leaves out problems';

CREATE OR REPLACE VIEW acceptance_by_position AS
SELECT run_id, step_index, num_decisions, num_verdicts, num_accepted, num_accepted / num_decisions AS acceptance_rate
FROM position_total;
COMMENT ON VIEW acceptance_by_position IS 'Share of decisions that accepted a candidate, by step index; only longer chains have later steps';

CREATE OR REPLACE VIEW steps_by_author AS
WITH author AS (
    SELECT run_id, author, sum(num_steps)::BIGINT AS num_steps, sum(num_tokens)::BIGINT AS num_tokens,
        coalesce(sum(num_steps) FILTER (role <> 'answer'), 0)::BIGINT AS num_reasoning_steps
    FROM step_total GROUP BY run_id, author
), finished AS (
    SELECT run_id, count(*) AS num_samples FROM sample WHERE stop_reason IS NOT NULL GROUP BY run_id
)
SELECT run_id, author, num_samples, num_steps, num_steps / num_samples AS steps_per_sample,
    num_steps / sum(num_steps) OVER same_run AS share,
    num_reasoning_steps / nullif(sum(num_reasoning_steps) OVER same_run, 0) AS reasoning_share,
    num_tokens / num_steps AS tokens_per_step
FROM author JOIN finished USING (run_id)
WINDOW same_run AS (PARTITION BY run_id);
COMMENT ON VIEW steps_by_author IS 'Steps of the accepted chains by author (SpecReason, section 5.2: ratio of steps by the small model), per finished sample. reasoning_share excludes final answers, and no other role: guidance (SpecCoT) counts as a step of the target';

CREATE OR REPLACE VIEW reflective_words AS
WITH total AS (
    SELECT run_id, author, role, sum(num_steps)::BIGINT AS num_steps, sum(num_tokens)::BIGINT AS num_tokens,
        [sum(num_wait), sum(num_but), sum(num_hmm)]::BIGINT[] AS occurrences
    FROM step_total GROUP BY run_id, author, role
), word AS (
    SELECT run_id, author, role, num_steps, num_tokens, unnest(['wait', 'but', 'hmm']) AS word,
        unnest(occurrences) AS occurrences
    FROM total
)
SELECT run_id, author, role, word, occurrences, num_steps, num_tokens, occurrences / num_steps AS per_step,
    1000 * occurrences / nullif(num_tokens, 0) AS per_thousand_tokens
FROM word;
COMMENT ON VIEW reflective_words IS 'How often "wait", "but" and "hmm" occur in the accepted chains, by author and role (SpecCoT, appendix A.1). For a coarser rate, sum occurrences and num_tokens';

CREATE OR REPLACE VIEW draft_selection AS
SELECT run_id, num_offered, option_index, option_index >= num_offered AS is_reject, num_verdicts, num_chosen,
    num_chosen / num_verdicts AS share, probability / num_verdicts AS mean_probability
FROM option_total;
COMMENT ON VIEW draft_selection IS 'How often each option of a choice was selected, by the number of distinct candidates offered; equal candidates share an option. Unequal shares indicate a position bias';

CREATE OR REPLACE VIEW token_speculation AS
SELECT run_id, purpose, count(*) AS num_calls, sum(output_tokens)::BIGINT AS output_tokens,
    sum(proposed_tokens)::BIGINT AS proposed_tokens, sum(confirmed_tokens)::BIGINT AS confirmed_tokens,
    sum(confirmed_tokens) / nullif(sum(proposed_tokens), 0) AS acceptance_rate,
    sum(output_tokens) / nullif(sum(output_tokens) - sum(confirmed_tokens), 0) AS tokens_per_pass
FROM call WHERE proposed_tokens IS NOT NULL GROUP BY run_id, purpose;
COMMENT ON VIEW token_speculation IS 'Token-level speculation in the target''s engine, by the purpose of the call: share of the proposed tokens that the target confirmed, and tokens per pass of the target (1: none confirmed)';

CREATE OR REPLACE VIEW token_speculation_setting AS
SELECT run_id, engine_spec_decode AS proposer,
    coalesce(speculator_name, CASE engine_spec_decode WHEN 'draft' THEN draft_name END) AS model,
    engine_spec_tokens AS num_tokens, engine_spec_sampling AS draft_sampling, temperature,
    coalesce(engine_spec_sampling = 'greedy' AND temperature > 0, false) AS is_weaker_baseline,
    (SELECT string_agg(DISTINCT engines ->> '$.target.draft_sample_method', ', ') FROM attempt
        WHERE attempt.run_id = run.run_id) AS reported_by_engine,
    (SELECT sum(confirmed_tokens) / nullif(sum(proposed_tokens), 0) FROM token_speculation
        WHERE token_speculation.run_id = run.run_id) AS acceptance_rate,
    (SELECT sum(output_tokens) / nullif(sum(output_tokens) - sum(confirmed_tokens), 0) FROM token_speculation
        WHERE token_speculation.run_id = run.run_id) AS tokens_per_pass
FROM run WHERE engine_spec_decode IS NOT NULL;
COMMENT ON VIEW token_speculation_setting IS 'Token-level speculation of a run: who proposes how many tokens (num_tokens: at a time), how they are drawn, and how many are confirmed. is_weaker_baseline: greedy drafts, while the target samples at a temperature above 0, of which usually fewer are confirmed than of sampled drafts. reported_by_engine: vLLM''s own draft_sample_method; NULL: not recorded, or no model proposes';
