-- Quality of decisions. A rating is the score of a decision: SpecReason's score from 0 to 9, for a choice the total
-- probability of the candidates, as opposed to rejection, and for any other kind the method-specific score.

CREATE OR REPLACE VIEW judge_calibration AS
WITH placed AS (
    SELECT *, num_correct + num_incorrect AS num_decisions,
        sum(num_decisions) OVER (PARTITION BY run_id, kind ORDER BY rating RANGE UNBOUNDED PRECEDING) AS num_up_to,
        sum(num_decisions) OVER (PARTITION BY run_id, kind, rating) AS num_equal,
        sum(num_decisions) OVER (PARTITION BY run_id, kind) AS num_all
    FROM rating_total SEMI JOIN counted_version USING (run_id, grader_version)
), binned AS (
    SELECT *, floor(10 * (num_up_to - num_equal / 2) / num_all) AS tenth,
        CASE kind WHEN 'score' THEN round(rating) WHEN 'choice' THEN least(floor(10 * rating), 9) / 10
            ELSE min(rating) OVER (PARTITION BY run_id, kind, tenth) END AS rating_from
    FROM placed
)
SELECT run_id, kind, rating_from, sum(num_decisions)::BIGINT AS num_decisions, sum(num_correct)::BIGINT AS num_correct,
    sum(num_correct) / sum(num_decisions) AS share_correct,
    coalesce(sum(num_decisions) FILTER (accepted), 0) / sum(num_decisions) AS share_accepted
FROM binned GROUP BY ALL;
COMMENT ON VIEW judge_calibration IS 'P(final answer correct | score of a decision), by score from 0 to 9 (rounded), by tenths of the acceptance probability of a choice (rating_from: lower end of the tenth), or for any other kind by deciles of the run''s scores (rating_from: lowest score of the decile). Ratings are first rounded to two decimals, for other kinds to three significant digits. Over decisions of graded samples; decisions of one sample are not independent';

CREATE OR REPLACE VIEW judge_reliability AS
WITH predicted AS (
    SELECT run_id, kind, num_correct, num_correct + num_incorrect AS num_decisions,
        CASE kind WHEN 'score' THEN expected_rating / 9 ELSE expected_rating END AS probability
    FROM rating_total SEMI JOIN counted_version USING (run_id, grader_version)
    QUALIFY kind IN ('choice', 'score') OR (
        min(rating) OVER (PARTITION BY run_id, kind) >= 0 AND max(rating) OVER (PARTITION BY run_id, kind) <= 1
        AND NOT bool_or(accepts_below) OVER (PARTITION BY run_id, kind))
)
SELECT run_id, kind, least(floor(10 * probability), 9) / 10 AS probability_from,
    sum(num_decisions)::BIGINT AS num_decisions,
    sum(probability * num_decisions) / sum(num_decisions) AS mean_probability,
    sum(num_correct) / sum(num_decisions) AS share_correct,
    sum(num_decisions) / sum(sum(num_decisions)) OVER (PARTITION BY run_id, kind) AS share_of_verdicts
FROM predicted GROUP BY run_id, kind, probability_from;
COMMENT ON VIEW judge_reliability IS 'Reliability curve: the score of a decision as a probability (expected score / 9, acceptance probability of a choice, and for any other kind the score itself, if all of the run''s scores are from 0 to 1 and high scores are accepted) against the share of correct final answers, by tenths. The sum of share_of_verdicts × |mean_probability − share_correct| is the expected calibration error';

CREATE OR REPLACE VIEW judge_auroc AS
WITH counted AS (
    SELECT run_id, kind, sum(num_correct)::BIGINT AS num_correct, sum(num_incorrect)::BIGINT AS num_incorrect
    FROM rating_total SEMI JOIN counted_version USING (run_id, grader_version) GROUP BY run_id, kind
)
SELECT counted.run_id, kind, num_correct, num_incorrect, estimate AS auroc, n AS num_problems, standard_error, low_95,
    high_95, interval_kind
FROM counted LEFT JOIN (FROM counted_estimate WHERE metric = 'judge_auroc') AS own
    ON own.run_id = counted.run_id AND own.group_value = kind;
COMMENT ON VIEW judge_auroc IS 'Area under the ROC curve: probability that the decision''s score is higher if the final answer is correct than if it is not (ties count half; 0.5: the score is uninformative). Over decisions; scores are negated if low scores are accepted. NULL if the correct or the incorrect samples are fewer than 10 or from fewer than 5 problems (families), or with fewer than 10 families if problems share families. standard_error is over problems (families), because decisions of one problem are dependent; 95 % t interval on the logit scale, NULL if the score is constant or separates perfectly';
