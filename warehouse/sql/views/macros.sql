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
