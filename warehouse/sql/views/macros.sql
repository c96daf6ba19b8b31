-- Functions that loading and the views share.

CREATE OR REPLACE MACRO probabilities(logprobs) AS
    list_transform(
        logprobs,
        lambda x: exp(x - list_max(logprobs)) / list_sum(list_transform(logprobs, lambda y: exp(y - list_max(logprobs))))
    );
COMMENT ON MACRO probabilities IS 'Log-probabilities (nats) as probabilities that sum to 1';

-- Exact for 1 to 10 degrees of freedom, above that the expansion 26.7.5 of Abramowitz and Stegun (error below 1e-5).
CREATE OR REPLACE MACRO t_quantile(degrees) AS
    CASE
        WHEN degrees < 1 THEN NULL
        WHEN degrees <= 10 THEN [12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836,
            2.446911851, 2.364624252, 2.306004135, 2.262157163, 2.228138852][degrees::INTEGER]::DOUBLE
        ELSE 1.959963985 + 2.372271230 / degrees + 2.822498616 / degrees ** 2 + 2.555849680 / degrees ** 3
            + 1.589534053 / degrees ** 4
    END;
COMMENT ON MACRO t_quantile IS '97.5 % quantile of Student''s t: half a two-sided 95 % interval in standard errors';

CREATE OR REPLACE MACRO exact_sum(x) AS sum(try_cast(x AS DECIMAL(18, 9)))::DOUBLE;
COMMENT ON MACRO exact_sum IS 'Sum to nine decimals that does not depend on the order of the rows';

CREATE OR REPLACE MACRO if_finite(x) AS CASE WHEN isfinite(x) THEN x END;
COMMENT ON MACRO if_finite IS 'The number; NULL where it is infinite or none';

CREATE OR REPLACE MACRO rounded(x) AS
    CASE WHEN x = 0 THEN 0::DOUBLE ELSE round(x, (2 - floor(log10(abs(x))))::INTEGER) END;
COMMENT ON MACRO rounded IS 'A number with three significant digits';

CREATE OR REPLACE MACRO first_changed(step_index, accepted, score, threshold) AS
    min(CASE WHEN (score >= threshold) <> accepted THEN step_index END);
COMMENT ON MACRO first_changed IS 'Index of the first step that a score compared with a threshold would have decided otherwise';

-- Obuchowski, Nonparametric Analysis of Clustered ROC Curve Data (Biometrics 53, 1997), with the two covariances of a
-- problem's correct and incorrect answers summed at once: influence is what a problem contributes to the area.
-- Degrees of freedom as Satterthwaite's: a few problems with most of the verdicts count as few.
CREATE OR REPLACE MACRO clustered_auroc(rated) AS TABLE
WITH counted AS (
    SELECT run_id, grader_version, kind, value, problem_id,
        sum(num_correct)::BIGINT AS correct, sum(num_incorrect)::BIGINT AS incorrect
    FROM query_table(rated) GROUP BY ALL
), placed AS (
    SELECT run_id, grader_version, kind, value,
        sum(sum(correct)) OVER everything AS num_correct, sum(sum(incorrect)) OVER everything AS num_incorrect,
        (sum(sum(incorrect)) OVER up_to - sum(incorrect) / 2) / nullif(num_incorrect, 0) AS share_below,
        1 - (sum(sum(correct)) OVER up_to - sum(correct) / 2) / nullif(num_correct, 0) AS share_above
    FROM counted GROUP BY run_id, grader_version, kind, value
    WINDOW everything AS (PARTITION BY run_id, grader_version, kind),
        up_to AS (PARTITION BY run_id, grader_version, kind ORDER BY value)
), contribution AS (
    SELECT run_id, grader_version, kind, problem_id,
        any_value(num_correct) AS num_correct, any_value(num_incorrect) AS num_incorrect,
        sum(correct) / nullif(any_value(num_correct), 0) AS share_of_correct,
        sum(incorrect) / nullif(any_value(num_incorrect), 0) AS share_of_incorrect,
        sum(correct * share_below ORDER BY value) / nullif(any_value(num_correct), 0) AS below,
        sum(incorrect * share_above ORDER BY value) / nullif(any_value(num_incorrect), 0) AS above
    FROM counted JOIN placed USING (run_id, grader_version, kind, value)
    GROUP BY run_id, grader_version, kind, problem_id
), influence AS (
    SELECT *, sum(below ORDER BY problem_id) OVER (PARTITION BY run_id, grader_version, kind) AS auroc,
        below + above - (share_of_correct + share_of_incorrect) * auroc AS influence
    FROM contribution
)
SELECT run_id, grader_version, kind, count(*) AS num_problems, any_value(num_correct)::BIGINT AS num_correct,
    any_value(num_incorrect)::BIGINT AS num_incorrect, any_value(auroc) AS auroc,
    sqrt(sum(influence ** 2 ORDER BY problem_id) * count(*) / nullif(count(*) - 1, 0)) AS standard_error,
    floor(sum(influence ** 2 ORDER BY problem_id) ** 2 / nullif(sum(influence ** 4 ORDER BY problem_id), 0) - 1)
        AS degrees
FROM influence GROUP BY run_id, grader_version, kind;
COMMENT ON MACRO TABLE clustered_auroc IS 'Area under the ROC curve of a table of ratings (run_id, grader_version, kind, problem_id, value, num_correct, num_incorrect), with the standard error and the degrees of freedom that problems as clusters give it';
