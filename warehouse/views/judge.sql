-- Quality of the target's verdicts. A rating is the outcome of a verdict: SpecReason's score from 0 to 9, or for a choice
-- the total probability of the candidates, as opposed to rejection.

CREATE OR REPLACE VIEW counted_rating AS
SELECT rating_total.* FROM rating_total
SEMI JOIN (FROM grader_versions WHERE counts) AS chosen USING (run_id, grader_version);
COMMENT ON VIEW counted_rating IS 'rating_total for the grader version that counts';

CREATE OR REPLACE VIEW judge_calibration AS
SELECT run_id, verdict_kind,
    CASE verdict_kind WHEN 'score' THEN round(rating) ELSE least(floor(10 * rating), 9) / 10 END AS rating_from,
    sum(num_verdicts)::BIGINT AS num_verdicts,
    coalesce(sum(num_verdicts) FILTER (is_correct), 0)::BIGINT AS num_correct,
    coalesce(sum(num_verdicts) FILTER (is_correct), 0) / sum(num_verdicts) AS share_correct,
    coalesce(sum(num_verdicts) FILTER (accepted), 0) / sum(num_verdicts) AS share_accepted
FROM counted_rating GROUP BY ALL;
COMMENT ON VIEW judge_calibration IS 'P(final answer correct | rating of a step), by score from 0 to 9 (rounded) or by tenths of the acceptance probability of a choice (rating_from: lower end of the tenth); ratings are first rounded to two decimals. Over verdicts of graded samples; verdicts of the same sample are not independent';

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
COMMENT ON VIEW judge_reliability IS 'Reliability curve: a rating interpreted as a probability (expected score / 9, or acceptance probability of a choice) against the share of correct final answers, by tenths. The sum of share_of_verdicts × |mean_probability − share_correct| is the expected calibration error';

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
COMMENT ON VIEW judge_auroc IS 'Area under the ROC curve: probability that a rating is higher if the final answer is correct than if it is not (ties count half; 0.5: the rating is uninformative). Over verdicts, over verdicts by the expected rating (to two decimals), and for scores over samples by their mean and their lowest score';
