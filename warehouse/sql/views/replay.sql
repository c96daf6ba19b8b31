-- Decisions under another threshold or score, from stored data (SpecReason, section 5.3, sweeps thresholds).

CREATE OR REPLACE VIEW threshold_replay AS
SELECT run.run_id, replay.score, replay.threshold,
    replay.is_own,
    replay.num_problems, replay.num_samples, num_changed_samples,
    num_exact_problems / replay.num_problems AS share_of_problems_exact,
    1 - num_changed_samples / replay.num_samples AS share_of_samples_exact,
    num_exact_steps / num_steps AS share_of_steps_exact,
    accuracy_at_least, accuracy_at_most, accuracy_of_run, run.limited
FROM replay_total AS replay JOIN run USING (run_id)
JOIN counted_version AS counted USING (run_id)
WHERE replay.grader_version IS NOT DISTINCT FROM counted.grader_version;
COMMENT ON VIEW threshold_replay IS 'A run at another threshold, or SpecReason with the other score, from the stored decisions and distributions only (integer thresholds for greedy, halves for average; for any other kind of decision the quantiles of its scores; and the run''s own threshold). It is exact up to the first changed decision of a sample. share_of_problems_exact: no sample of the problem changes. accuracy_at_least and _at_most: all changed samples wrong, or right. The shares are over samples with such a score, the accuracies over the graded ones (NULL: none). is_own: the run''s own rule';
