-- Runs of which only the results are left.

CREATE OR REPLACE VIEW pruned_run AS
SELECT run_id, run.folder, run.tag FROM run ANTI JOIN loaded_file USING (run_id);
COMMENT ON VIEW pruned_run IS 'Runs whose steps, candidates, calls and prompts `jobs prune` moved from the database to an archive; their results stay in every other view';
