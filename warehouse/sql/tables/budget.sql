-- Chains of another run truncated to token budgets (python -m jobs sweep-budget).

CREATE TABLE budget_cut (
    run_id VARCHAR NOT NULL,
    source_run_id VARCHAR NOT NULL,
    sample_id VARCHAR NOT NULL,
    problem_id VARCHAR NOT NULL,
    budget INTEGER NOT NULL,
    cut_problem_id VARCHAR,
    num_tokens INTEGER NOT NULL,
    is_exact BOOLEAN NOT NULL
);
COMMENT ON TABLE budget_cut IS 'A chain of another run at a token budget. Key: run_id, sample_id, budget';
COMMENT ON COLUMN budget_cut.run_id IS 'The run with the answers after truncated chains';
COMMENT ON COLUMN budget_cut.source_run_id IS 'The run with the original chains';
COMMENT ON COLUMN budget_cut.sample_id IS 'The sample of that run';
COMMENT ON COLUMN budget_cut.problem_id IS 'Problem of that sample';
COMMENT ON COLUMN budget_cut.budget IS 'The budget [tokens]';
COMMENT ON COLUMN budget_cut.cut_problem_id IS 'The problem that begins with the truncated chain; NULL: the chain fits the budget';
COMMENT ON COLUMN budget_cut.num_tokens IS 'Tokens of the chain within the budget [tokens]';
COMMENT ON COLUMN budget_cut.is_exact IS 'False: truncated at a step boundary, without re-planning for the budget';
