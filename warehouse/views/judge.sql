-- What the target's verdicts are worth. A rating is what a verdict said: SpecReason's score from 0 to 9, or for a
-- choice the probability of the candidates together against reject.

CREATE OR REPLACE VIEW counted_rating AS
SELECT rating_total.* FROM rating_total
SEMI JOIN (FROM grader_versions WHERE counts) AS chosen USING (run_id, grader_version);
COMMENT ON VIEW counted_rating IS 'rating_total of the grader version that counts';

CREATE OR REPLACE VIEW judge_calibration AS
SELECT run_id, verdict_kind,
    CASE verdict_kind WHEN 'score' THEN round(rating) ELSE least(floor(10 * rating), 9) / 10 END AS rating_from,
    sum(num_verdicts)::BIGINT AS num_verdicts,
    coalesce(sum(num_verdicts) FILTER (is_correct), 0)::BIGINT AS num_correct,
    coalesce(sum(num_verdicts) FILTER (is_correct), 0) / sum(num_verdicts) AS share_correct,
    coalesce(sum(num_verdicts) FILTER (accepted), 0) / sum(num_verdicts) AS share_accepted
FROM counted_rating GROUP BY ALL;
COMMENT ON VIEW judge_calibration IS 'P(final answer correct | rating of a step): by score 0 to 9 (rounded), or by tenths of the acceptance probability of a choice (rating_from: where the tenth begins). Over verdicts of graded samples; verdicts of one sample are not independent';

CREATE OR REPLACE VIEW judge_calibration_by_position AS
SELECT run.dataset, run_id, verdict_kind, tenth,
    CASE verdict_kind WHEN 'score' THEN round(rating) ELSE least(floor(10 * rating), 9) / 10 END AS rating_from,
    sum(num_verdicts)::BIGINT AS num_verdicts,
    coalesce(sum(num_verdicts) FILTER (is_correct), 0) / sum(num_verdicts) AS share_correct
FROM counted_rating JOIN run USING (run_id) GROUP BY ALL;
COMMENT ON VIEW judge_calibration_by_position IS 'judge_calibration by tenth of the chain';

CREATE OR REPLACE VIEW judge_reliability AS
WITH predicted AS (
    SELECT run_id, verdict_kind, is_correct, num_verdicts,
        CASE verdict_kind WHEN 'score' THEN expected_rating / 9 ELSE expected_rating END AS probability
    FROM counted_rating
)
SELECT run_id, verdict_kind, least(floor(10 * probability), 9) / 10 AS probability_from,
    sum(num_verdicts)::BIGINT AS num_verdicts,
    sum(probability * num_verdicts) / sum(num_verdicts) AS mean_probability,
    coalesce(sum(num_verdicts) FILTER (is_correct), 0) / sum(num_verdicts) AS share_correct,
    sum(num_verdicts) / sum(sum(num_verdicts)) OVER (PARTITION BY run_id, verdict_kind) AS share_of_verdicts
FROM predicted GROUP BY run_id, verdict_kind, probability_from;
COMMENT ON VIEW judge_reliability IS 'Reliability curve: a rating read as a probability (expected score / 9, or acceptance probability of a choice) against the share of correct final answers, by tenths. Sum of share_of_verdicts × |mean_probability − share_correct| is the expected calibration error';

CREATE OR REPLACE VIEW judge_auroc AS
WITH rated AS (
    SELECT run_id, 'verdicts' AS unit, verdict_kind, rating AS value, sum(num_verdicts) FILTER (is_correct) AS correct,
        sum(num_verdicts) FILTER (NOT is_correct) AS incorrect
    FROM counted_rating GROUP BY ALL
    UNION ALL
    SELECT run_id, 'expected ratings', verdict_kind, expected_rating, sum(num_verdicts) FILTER (is_correct),
        sum(num_verdicts) FILTER (NOT is_correct)
    FROM counted_rating GROUP BY ALL
    UNION ALL
    SELECT run_id, unit, 'score', value, count(*) FILTER (verdict = 'correct'), count(*) FILTER (verdict <> 'correct')
    FROM (
        SELECT run_id, sample_id, unnest(['samples, mean score', 'samples, lowest score']) AS unit,
            unnest([round(mean_score, 6), lowest_score]) AS value
        FROM sample_verdicts
    ) JOIN sample_grade USING (run_id, sample_id) WHERE graded GROUP BY ALL
), ranked AS (
    SELECT run_id, unit, verdict_kind, coalesce(correct, 0) AS correct, coalesce(incorrect, 0) AS incorrect,
        coalesce(sum(incorrect) OVER (
            PARTITION BY run_id, unit, verdict_kind ORDER BY value
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS incorrect_below
    FROM rated
)
SELECT run_id, verdict_kind, unit, sum(correct)::BIGINT AS num_correct, sum(incorrect)::BIGINT AS num_incorrect,
    sum(correct * (incorrect_below + incorrect / 2)) / nullif(sum(correct) * sum(incorrect), 0) AS auroc
FROM ranked GROUP BY run_id, verdict_kind, unit;
COMMENT ON VIEW judge_auroc IS 'Probability that a rating is higher where the final answer is correct than where it is not (ties count half; 0.5: the rating says nothing). Over verdicts, over verdicts by the expected rating (to two decimals), and for scores over samples by their mean and their lowest score';

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
    OR threshold <> CASE score WHEN 'greedy' THEN round(threshold) ELSE round(2 * threshold) / 2 END;
COMMENT ON VIEW sample_change IS 'For every sample with score verdicts, by score and threshold, the index of the first step that would have been decided otherwise (NULL: none). Thresholds: whole for the most probable digit, halves for the average, and the run''s own';

CREATE OR REPLACE VIEW threshold_replay AS
SELECT run.run_id, replay.score, replay.threshold,
    json_extract(run.params, '$.threshold')::DOUBLE = replay.threshold
        AND json_extract_string(run.params, '$.score') = replay.score AS is_own,
    replay.num_problems, replay.num_samples, num_changed_samples,
    num_exact_problems / replay.num_problems AS share_of_problems_exact,
    1 - num_changed_samples / replay.num_samples AS share_of_samples_exact,
    num_exact_steps / num_steps AS share_of_steps_exact,
    accuracy_at_least, accuracy_at_most, accuracy_of_run
FROM replay_total AS replay JOIN run USING (run_id)
JOIN counted_version AS counted USING (run_id)
WHERE replay.grader_version IS NOT DISTINCT FROM counted.grader_version;
COMMENT ON VIEW threshold_replay IS 'SpecReason at another threshold, or with the other score, from the stored distributions alone (whole thresholds for greedy, halves for average, and the run''s own): exact up to the first changed decision of a sample. share_of_problems_exact: no sample of the problem changes at all. accuracy_at_least and _at_most: all changed samples wrong, or right. Over samples with a score verdict; is_own: how the run itself decided';

CREATE OR REPLACE VIEW threshold_changes AS
SELECT run_id, score, threshold, step_index, count(*) AS num_samples
FROM sample_change WHERE step_index IS NOT NULL GROUP BY ALL;
COMMENT ON VIEW threshold_changes IS 'Where another threshold would first have decided otherwise: samples by the step index of the first changed decision';
