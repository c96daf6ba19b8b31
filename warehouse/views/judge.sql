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
WITH logit AS (
    SELECT total.*, ln(auroc / (1 - auroc)) AS center,
        t_quantile(degrees) * standard_error / (auroc * (1 - auroc)) AS half_width
    FROM auroc_total AS total SEMI JOIN (FROM grader_versions WHERE counts) AS chosen USING (run_id, grader_version)
    WHERE standard_error > 0 AND auroc > 0 AND auroc < 1
)
SELECT total.run_id, total.verdict_kind, total.unit, total.num_correct, total.num_incorrect, total.auroc,
    total.num_problems, total.standard_error,
    1 / (1 + exp(logit.half_width - logit.center)) AS low_95, 1 / (1 + exp(-logit.half_width - logit.center)) AS high_95
FROM auroc_total AS total SEMI JOIN (FROM grader_versions WHERE counts) AS chosen USING (run_id, grader_version)
LEFT JOIN logit USING (run_id, verdict_kind, unit);
COMMENT ON VIEW judge_auroc IS 'Area under the ROC curve: probability that a rating is higher if the final answer is correct than if it is not (ties count half; 0.5: the rating is uninformative). Over verdicts, over verdicts by the expected rating (to two decimals), and for scores over samples by their mean and their lowest score. standard_error is over problems, because the verdicts of a problem depend on each other; 95 % t interval on the logit, NULL where the rating never varies, separates perfectly, or nearly all of it comes from one problem';
