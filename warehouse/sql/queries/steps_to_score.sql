-- Input of a process reward model: every candidate that no model has scored, with its problem and the preceding chain. Failed samples are excluded, because they may run again.
SELECT candidate.run_id, candidate.sample_id, candidate.step_index, candidate.candidate_index, problem.text AS question,
    (
        SELECT string_agg(earlier.text, '' ORDER BY earlier.step_index) FROM step AS earlier
        WHERE earlier.run_id = candidate.run_id AND earlier.sample_id = candidate.sample_id
            AND earlier.step_index < candidate.step_index
    ) AS chain_before,
    candidate.text AS candidate, candidate.accepted
FROM candidate
JOIN sample USING (run_id, sample_id)
JOIN problem ON (problem.run_id, problem.problem_id) = (sample.run_id, sample.problem_id)
ANTI JOIN (FROM candidate_score WHERE score IS NOT NULL) AS scored ON (scored.run_id, scored.sample_id, scored.step_index, scored.candidate_index)
    = (candidate.run_id, candidate.sample_id, candidate.step_index, candidate.candidate_index)
WHERE sample.stop_reason <> 'error'
ORDER BY candidate.run_id, candidate.sample_id, candidate.step_index, candidate.candidate_index;
