-- How often the target followed the draft. A rate here is over steps, not over problems.

CREATE OR REPLACE VIEW fallback_rate AS
SELECT run_id,
    count(*) FILTER (verdict_kind IS NOT NULL) AS num_verdicts,
    count(*) FILTER (verdict_kind IS NOT NULL AND NOT verdict_accepted) AS num_refused,
    num_refused / nullif(num_verdicts, 0) AS fallback_rate,
    count(*) FILTER (verdict_kind IS NULL AND role = 'rethink') AS num_refused_unasked,
    avg(verdict_mass) AS mean_option_mass
FROM step GROUP BY run_id;
COMMENT ON VIEW fallback_rate IS 'Share of the steps with a verdict whose candidates were all refused. num_refused_unasked: SCoT''s rethinking where no draft chain was complete, so no verdict was asked for; not in the rate';

CREATE OR REPLACE VIEW fallback_by_position AS
WITH placed AS (
    SELECT run_id, verdict_kind, verdict_accepted,
        1 + (10 * step_index) // count(*) OVER (PARTITION BY run_id, sample_id) AS tenth
    FROM step
)
SELECT run_id, tenth::INTEGER AS tenth, count(*) AS num_verdicts,
    count(*) FILTER (NOT verdict_accepted) AS num_refused,
    num_refused / num_verdicts AS fallback_rate
FROM placed WHERE verdict_kind IS NOT NULL GROUP BY run_id, tenth;
COMMENT ON VIEW fallback_by_position IS 'Fallback rate by tenth of the chain (1: opening, 10: end), so that chains of unlike length compare';

CREATE OR REPLACE VIEW acceptance_by_position AS
SELECT run_id, step_index, count(*) AS num_verdicts,
    count(*) FILTER (verdict_accepted) AS num_accepted,
    num_accepted / num_verdicts AS acceptance_rate
FROM step WHERE verdict_kind IS NOT NULL GROUP BY run_id, step_index;
COMMENT ON VIEW acceptance_by_position IS 'Share of verdicts that accepted a candidate, by step index; later indexes only hold the longer chains';

CREATE OR REPLACE VIEW draft_selection AS
WITH offered AS (
    SELECT run_id, sample_id, step_index, count(DISTINCT option) AS num_offered FROM candidate GROUP BY ALL
), option AS (
    SELECT run_id, num_offered, verdict_decision, generate_subscripts(verdict_logprobs, 1) - 1 AS option_index,
        unnest(probabilities(verdict_logprobs)) AS probability
    FROM step JOIN offered USING (run_id, sample_id, step_index) WHERE verdict_kind = 'choice'
)
SELECT run_id, num_offered, option_index::INTEGER AS option_index, option_index >= num_offered AS is_reject,
    count(*) AS num_verdicts,
    count(*) FILTER (verdict_decision = option_index) AS num_chosen,
    num_chosen / num_verdicts AS share,
    avg(probability) AS mean_probability
FROM option GROUP BY run_id, num_offered, option_index;
COMMENT ON VIEW draft_selection IS 'How often each option of a choice was taken, by the number of distinct candidates offered; equal candidates share an option. An uneven share shows a bias of position';
