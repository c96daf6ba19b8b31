-- Refusals that look right: the target wrote a text unlike all drafts that it rejected, and the answer is correct.
SELECT step.run_id, step.problem_id, step.sample_index, step.step_index, trim(any_value(step.text), E' \n') AS written,
    string_agg(DISTINCT trim(candidate.text, E' \n'), ' | ') AS rejected
FROM wide_step AS step JOIN wide_candidate AS candidate USING (run_id, sample_id, step_index)
WHERE step.role = 'fallback' AND step.is_correct
GROUP BY ALL HAVING NOT bool_or(trim(candidate.text, E' \n') = trim(step.text, E' \n'))
ORDER BY step.run_id, step.problem_id, step.sample_index, step.step_index;
