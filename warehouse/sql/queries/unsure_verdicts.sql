-- The hundred verdicts whose options have the least total probability: questions that the model did not understand.
SELECT step.run_id, sample.problem_id, sample.sample_index, step_index, verdict_model, verdict_mass, verdict_probability,
    verdict_options[verdict_decision + 1] AS decided, verdict_accepted
FROM step JOIN sample USING (run_id, sample_id)
WHERE verdict_kind IS NOT NULL ORDER BY verdict_mass, step.run_id, sample_id, step_index LIMIT 100;
