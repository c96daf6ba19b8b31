-- Chains of a run at token budgets: their verdicts, and what the answers behind cut ones took.

CREATE OR REPLACE VIEW budget_point AS
WITH spent AS (
    SELECT run_id, sample_id, sum(output_tokens) AS answer_tokens, sum(prompt_tokens - cached_tokens) AS prefilled_tokens
    FROM call SEMI JOIN budget_cut USING (run_id) GROUP BY run_id, sample_id
)
SELECT cut.run_id, cut.source_run_id, cut.budget, cut.problem_id, cut.sample_id, cut.num_tokens, cut.is_exact,
    cut.cut_problem_id IS NOT NULL AS is_cut,
    coalesce(CASE WHEN is_cut THEN answer.verdict ELSE whole.verdict END, 'not_run') AS verdict,
    coalesce(CASE WHEN is_cut THEN answer.graded ELSE whole.graded END, false) AS graded,
    spent.answer_tokens, spent.prefilled_tokens
FROM budget_cut AS cut
LEFT JOIN sample_grade AS whole ON (whole.run_id, whole.sample_id) = (cut.source_run_id, cut.sample_id)
LEFT JOIN sample_grade AS answer ON (answer.run_id, answer.problem_id) = (cut.run_id, cut.cut_problem_id)
LEFT JOIN spent ON (spent.run_id, spent.sample_id) = (answer.run_id, answer.sample_id);
COMMENT ON VIEW budget_point IS 'A chain of a run at a token budget (python -m jobs sweep-budget): a cut one has the verdict on its answer behind the cut, one that had ended the verdict that it has in its run. answer_tokens and prefilled_tokens: what that answer took beside the chain, generated, and read without the cache';

CREATE OR REPLACE VIEW budget_curve AS
SELECT run_id, any_value(source_run_id) AS source_run_id, budget, count(*) AS num_samples,
    count(*) FILTER (is_cut) AS num_cut, bool_and(is_exact) AS is_exact, avg(num_tokens) AS chain_tokens,
    avg(answer_tokens) AS answer_tokens, avg(prefilled_tokens) AS prefilled_tokens,
    count(*) FILTER (verdict = 'correct') / count(*) AS accuracy
FROM budget_point GROUP BY run_id, budget;
COMMENT ON VIEW budget_curve IS 'Accuracy of a run against a token budget. chain_tokens: mean over samples; answer_tokens and prefilled_tokens: means over the cut ones. Its intervals are in the table estimate (measure accuracy_at_budget)';
