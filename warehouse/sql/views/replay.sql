-- Decisions under another threshold or score, from what is stored of them (SpecReason, section 5.3, sweeps thresholds).

CREATE OR REPLACE VIEW sample_change AS
WITH change AS (
    SELECT run_id, sample_id, num_steps, own_threshold, 'greedy' AS score,
        unnest([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, own_threshold]) AS threshold,
        unnest(range(11)) = 10 AS is_own, unnest(greedy_change) AS step_index
    FROM sample_verdicts
    UNION ALL
    SELECT run_id, sample_id, num_steps, own_threshold, 'average',
        unnest(list_append(list_transform(range(19), lambda half: half / 2), own_threshold)),
        unnest(range(20)) = 19, unnest(average_change)
    FROM sample_verdicts
)
SELECT run_id, sample_id, num_steps, score, threshold::DOUBLE AS threshold, step_index FROM change
WHERE NOT is_own OR threshold NOT BETWEEN 0 AND 9
    OR threshold <> CASE score WHEN 'greedy' THEN round(threshold) ELSE round(2 * threshold) / 2 END
UNION ALL
SELECT run_id, sample_id, num_steps, kind, unnest(thresholds), unnest(changes) FROM sample_decisions;
COMMENT ON VIEW sample_change IS 'For every sample with score verdicts, or with decisions by another number, by score and threshold, the index of the first step that would have been decided otherwise (NULL: none). Thresholds of scores: whole for the most probable digit, halves for the average, and the run''s own; of other numbers: quantiles of those of the run, and the run''s own';

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
COMMENT ON VIEW threshold_replay IS 'A run at another threshold, or SpecReason with the other score, from the stored decisions and distributions alone (whole thresholds for greedy, halves for average; for any other kind of decision the quantiles of its numbers; and the run''s own): exact up to the first changed decision of a sample. share_of_problems_exact: no sample of the problem changes at all. accuracy_at_least and _at_most: all changed samples wrong, or right. The shares are over samples with such a score or number, the accuracies over those of them that are graded (NULL: none is); is_own: how the run itself decided';
