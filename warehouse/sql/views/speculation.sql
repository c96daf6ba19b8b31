-- Acceptance of drafts and authors of steps. Rates are over steps, not over problems.

CREATE OR REPLACE VIEW fallback_rate AS
WITH rate AS (
    SELECT estimate.run_id, value, low, high FROM estimate
    JOIN interval ON interval.estimate = id AND question = 'like these problems' WHERE measure = 'fallback_rate'
)
SELECT run_id, sum(num_decisions)::BIGINT AS num_decisions, sum(num_verdicts)::BIGINT AS num_verdicts,
    sum(num_refused)::BIGINT AS num_refused, any_value(rate.value) AS fallback_rate,
    coalesce(sum(num_steps - num_decisions) FILTER (role = 'rethink'), 0)::BIGINT AS num_refused_unasked,
    sum(option_mass) / nullif(sum(num_verdicts), 0) AS mean_option_mass,
    any_value(rate.low) AS low_95, any_value(rate.high) AS high_95
FROM step_total LEFT JOIN rate USING (run_id) GROUP BY run_id;
COMMENT ON VIEW fallback_rate IS 'Share of the decisions, by verdicts or otherwise, that rejected all candidates, with its 95 % interval over problems. num_verdicts: steps with a verdict. num_refused_unasked: SCoT''s rethinking without a verdict, because no draft chain was complete; not included in the rate. Kinds of decisions: decision_kinds';

CREATE OR REPLACE VIEW decision AS
SELECT run_id, sample_id, step_index, decision_kind AS kind, decision_value AS value, decision_threshold AS threshold,
    decision_accepts_below AS accepts_below, decision_accepted AS accepted
FROM step WHERE decision_kind IS NOT NULL;
COMMENT ON VIEW decision IS 'How each step was accepted or its candidates rejected: basis, score and threshold. One row per step with a decision, by a verdict or by other means of the method; choice and score are verdicts, with details in step. Key: run_id, sample_id, step_index';

CREATE OR REPLACE VIEW verdict AS
WITH listed AS (
    SELECT run_id, sample_id, step_index, list_append(earlier_verdicts, {
        kind: verdict_kind, question: verdict_question, options: verdict_options, logprobs: verdict_logprobs,
        decision: verdict_decision, score: verdict_score, accepted: verdict_accepted, model: verdict_model}) AS verdicts
    FROM step WHERE verdict_kind IS NOT NULL
), numbered AS (
    SELECT run_id, sample_id, step_index, generate_subscripts(verdicts, 1) - 1 AS verdict_index, len(verdicts) AS number,
        unnest(verdicts) AS verdict
    FROM listed
)
SELECT run_id, sample_id, step_index, verdict_index, verdict_index = number - 1 AS decided, verdict.*,
    list_sum(list_transform(verdict.logprobs, lambda x: exp(x))) AS mass,
    exp(verdict.logprobs[verdict.decision + 1]) / mass AS probability
FROM numbered;
COMMENT ON VIEW verdict IS 'Every verdict on every step: model, question and answer. The columns verdict_… of step have the last verdict. Key: run_id, sample_id, step_index, verdict_index';

CREATE OR REPLACE VIEW verdicts_by_model AS
SELECT run_id, model, kind, count(*) AS num_verdicts, count(*) FILTER (decided) AS num_decided,
    count(*) FILTER (accepted) AS num_accepted, num_accepted / num_verdicts AS acceptance_rate, avg(score) AS mean_score,
    avg(mass) AS mean_option_mass
FROM verdict GROUP BY run_id, model, kind;
COMMENT ON VIEW verdicts_by_model IS 'Number of verdicts and acceptances per model. Key: run_id, model, kind';

CREATE OR REPLACE VIEW acceptance_by_position AS
SELECT run_id, group_value::INTEGER AS step_index, den::BIGINT AS num_decisions, num::BIGINT AS num_accepted,
    value AS acceptance_rate
FROM estimate WHERE measure = 'acceptance_rate';
COMMENT ON VIEW acceptance_by_position IS 'Share of decisions that accepted a candidate, by step index; only longer chains have later steps';

CREATE OR REPLACE VIEW token_speculation_setting AS
WITH token AS (
    SELECT run_id, sum(accepted_tokens) / nullif(sum(proposed_tokens), 0) AS acceptance_rate,
        sum(output_tokens) / nullif(sum(output_tokens) - sum(accepted_tokens), 0) AS tokens_per_pass
    FROM call WHERE proposed_tokens IS NOT NULL GROUP BY run_id
)
SELECT run_id, engine_spec_decode AS proposer,
    coalesce(speculator_name, CASE engine_spec_decode WHEN 'draft' THEN draft_name END) AS model,
    engine_spec_tokens AS num_tokens, engine_spec_sampling AS draft_sampling, temperature,
    coalesce(engine_spec_sampling = 'greedy' AND temperature > 0, false) AS is_weaker_baseline,
    (SELECT string_agg(DISTINCT engines ->> '$.target.draft_sample_method', ', ') FROM attempt
        WHERE attempt.run_id = run.run_id) AS reported_by_engine,
    acceptance_rate, tokens_per_pass
FROM run LEFT JOIN token USING (run_id) WHERE engine_spec_decode IS NOT NULL;
COMMENT ON VIEW token_speculation_setting IS 'Token-level speculation of a run: proposer, tokens per proposal (num_tokens), sampling and acceptance. is_weaker_baseline: drafts are greedy while the target samples at a temperature above 0; usually, fewer greedy than sampled drafts are accepted. reported_by_engine: vLLM''s own draft_sample_method; NULL: not recorded, or no model proposes';
