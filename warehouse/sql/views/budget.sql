-- Chains of a run at token budgets: verdicts, and tokens of the answers after truncated chains.

CREATE OR REPLACE VIEW budget_point AS
WITH spent AS (
    SELECT run_id, sample_id, sum(output_tokens) AS answer_tokens, sum(prompt_tokens - cached_tokens) AS prefilled_tokens
    FROM call SEMI JOIN budget_cut USING (run_id) GROUP BY run_id, sample_id
)
SELECT cut.run_id, cut.source_run_id, cut.budget, cut.problem_id, cut.sample_id, cut.num_tokens, cut.is_exact,
    cut.cut_problem_id IS NOT NULL AS is_cut,
    coalesce(CASE WHEN is_cut THEN answer.verdict ELSE whole.verdict END, 'not_run') AS verdict,
    coalesce(CASE WHEN is_cut THEN answer.graded ELSE whole.graded END, false) AS graded,
    CASE WHEN answer.finished THEN coalesce(spent.answer_tokens, 0) END AS answer_tokens,
    CASE WHEN answer.finished THEN coalesce(spent.prefilled_tokens, 0) END AS prefilled_tokens
FROM budget_cut AS cut JOIN counted_version AS counted USING (run_id)
LEFT JOIN graded_sample AS whole ON (whole.run_id, whole.sample_id) = (cut.source_run_id, cut.sample_id)
    AND whole.grader_version IS NOT DISTINCT FROM counted.grader_version
LEFT JOIN sample_grade AS answer ON (answer.run_id, answer.problem_id) = (cut.run_id, cut.cut_problem_id)
LEFT JOIN spent ON (spent.run_id, spent.sample_id) = (answer.run_id, answer.sample_id);
COMMENT ON VIEW budget_point IS 'A chain of a run at a token budget (python -m jobs sweep-budget): a truncated chain has the verdict on its new answer, a chain that fits keeps its verdict, both by the selected grader. answer_tokens and prefilled_tokens: generated and uncached prompt tokens of the new answer';

CREATE OR REPLACE VIEW budget_curve AS
SELECT run_id, any_value(source_run_id) AS source_run_id, budget, count(*) AS num_samples,
    count(*) FILTER (is_cut) AS num_cut, bool_and(is_exact) AS is_exact, avg(num_tokens) AS chain_tokens,
    avg(answer_tokens) AS answer_tokens, avg(prefilled_tokens) AS prefilled_tokens
FROM budget_point GROUP BY run_id, budget;
COMMENT ON VIEW budget_curve IS 'Samples and tokens of a sweep of token budgets. chain_tokens: mean over samples; answer_tokens and prefilled_tokens: means over truncated chains. Accuracy and its interval: counted_estimate (metric accuracy_at_budget)';
