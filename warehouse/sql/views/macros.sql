-- Functions shared by loading and the views.

CREATE OR REPLACE MACRO probabilities(logprobs) AS
    list_transform(
        logprobs,
        lambda x: exp(x - list_max(logprobs)) / list_sum(list_transform(logprobs, lambda y: exp(y - list_max(logprobs))))
    );
COMMENT ON MACRO probabilities IS 'Log-probabilities (nats) as probabilities that sum to 1';

CREATE OR REPLACE MACRO exact_sum(x) AS sum(try_cast(x AS DECIMAL(18, 9)))::DOUBLE;
COMMENT ON MACRO exact_sum IS 'Sum to nine decimals that does not depend on the order of the rows';

CREATE OR REPLACE MACRO if_finite(x) AS CASE WHEN isfinite(x) THEN x END;
COMMENT ON MACRO if_finite IS 'The number; NULL if infinite or NaN';

CREATE OR REPLACE MACRO rounded(x) AS
    CASE WHEN x = 0 THEN 0::DOUBLE ELSE round(x, (2 - floor(log10(abs(x))))::INTEGER) END;
COMMENT ON MACRO rounded IS 'A number with three significant digits';

CREATE OR REPLACE MACRO first_changed(step_index, accepted, score, threshold) AS
    min(CASE WHEN (score >= threshold) <> accepted THEN step_index END);
COMMENT ON MACRO first_changed IS 'Index of the first step whose decision changes if the score is compared with the threshold';
