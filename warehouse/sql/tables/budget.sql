-- Where chains of another run were cut at token budgets (python -m jobs sweep-budget).

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
COMMENT ON COLUMN budget_cut.run_id IS 'The run of the answers behind cut chains';
COMMENT ON COLUMN budget_cut.source_run_id IS 'The run whose chains were cut';
COMMENT ON COLUMN budget_cut.sample_id IS 'The sample of that run';
COMMENT ON COLUMN budget_cut.problem_id IS 'Its problem there';
COMMENT ON COLUMN budget_cut.budget IS 'The budget [tokens]';
COMMENT ON COLUMN budget_cut.cut_problem_id IS 'The problem that begins with the cut chain; NULL: the chain had ended within the budget';
COMMENT ON COLUMN budget_cut.num_tokens IS 'Tokens of the chain within the budget [tokens]';
COMMENT ON COLUMN budget_cut.is_exact IS 'False: cut at the end of a step, not re-planned for the budget';
