-- Estimates and their intervals. At the end of a load, warehouse/estimates.py computes one row per metric of the
-- registry in warehouse/measures.py; all output reads this row.

CREATE TABLE estimate (
    id UBIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    baseline_run_id VARCHAR,
    grader_version VARCHAR,
    measure VARCHAR NOT NULL,
    role VARCHAR,
    k INTEGER,
    group_kind VARCHAR,
    group_value VARCHAR,
    n BIGINT NOT NULL,
    families BIGINT,
    num_samples BIGINT,
    missing BIGINT,
    value DOUBLE,
    num DOUBLE,
    den DOUBLE,
    unit VARCHAR NOT NULL,
    run_factor DOUBLE
);
COMMENT ON TABLE estimate IS 'Every metric of a run, or of a run and its baseline, computed once, at loading; the table interval has its intervals, the view counted_estimate both. Key: run_id, baseline_run_id, grader_version, measure, role, k, group_kind, group_value, where NULL is a value';
COMMENT ON COLUMN estimate.id IS 'Hash of the key; referenced by interval.estimate';
COMMENT ON COLUMN estimate.baseline_run_id IS 'Baseline: a run of the target alone; NULL: the estimate has no baseline';
COMMENT ON COLUMN estimate.grader_version IS 'Version of the grades; NULL: none, or the measure does not use grades';
COMMENT ON COLUMN estimate.measure IS 'Name of the measure, as in the table measure';
COMMENT ON COLUMN estimate.role IS 'Role of the model; NULL: all models';
COMMENT ON COLUMN estimate.k IS 'Samples per problem of the measure; NULL: not applicable';
COMMENT ON COLUMN estimate.group_kind IS 'level, for acceptance_rate step (index from 0), for judge_auroc kind (of decision), for a probe third (of the chain, 1 to 3) or threshold, for accuracy_at_budget budget (tokens); NULL: the whole run';
COMMENT ON COLUMN estimate.group_value IS 'The level, the third or step, the threshold, the budget, or the kind of decision; NULL: the whole run, or problems without a level';
COMMENT ON COLUMN estimate.n IS 'Number of problems [count]';
COMMENT ON COLUMN estimate.families IS 'Number of families; NULL: each problem is its own [count]';
COMMENT ON COLUMN estimate.num_samples IS 'Number of samples; NULL: the measure does not count samples [count]';
COMMENT ON COLUMN estimate.missing IS 'Planned samples of these problems without a result; NULL: the measure does not count them [count]';
COMMENT ON COLUMN estimate.value IS 'Value of the measure; NULL: too few data, see interval.method';
COMMENT ON COLUMN estimate.num IS 'Sum of x over problems, the numerator; NULL: another function of the problems';
COMMENT ON COLUMN estimate.den IS 'Sum of y over problems, the denominator';
COMMENT ON COLUMN estimate.unit IS 'Unit of the value';
COMMENT ON COLUMN estimate.run_factor IS 'Standard deviation of the logarithm of a run''s times over repeats, included in the interval; NULL: too few repeats, or not a time [ratio]';

CREATE TABLE interval (
    estimate UBIGINT NOT NULL,
    run_id VARCHAR NOT NULL,
    question VARCHAR NOT NULL,
    low DOUBLE,
    high DOUBLE,
    standard_error DOUBLE,
    p DOUBLE,
    method VARCHAR NOT NULL
);
COMMENT ON TABLE interval IS '95 % intervals of estimates, by the question that they answer. Key: estimate, question';
COMMENT ON COLUMN interval.estimate IS 'estimate.id';
COMMENT ON COLUMN interval.question IS 'like these problems (the problems are a sample), these problems (reruns of the same problems)';
COMMENT ON COLUMN interval.low IS 'Lower end; NULL: no interval';
COMMENT ON COLUMN interval.high IS 'Upper end; NULL: no interval';
COMMENT ON COLUMN interval.standard_error IS 'Standard error, for a ratio of its logarithm; NULL with a single problem';
COMMENT ON COLUMN interval.p IS 'Unadjusted two-sided p-value of a difference; NULL: not a test';
COMMENT ON COLUMN interval.method IS 'Method of the interval (docs/statistics.md), or why there is none';

CREATE TABLE timed_pair (
    run_id VARCHAR NOT NULL,
    baseline_run_id VARCHAR NOT NULL,
    repeats VARCHAR[] NOT NULL,
    repeats_of_baseline VARCHAR[] NOT NULL
);
COMMENT ON TABLE timed_pair IS 'A run and a run of the target alone whose times are compared, with the repeats used. Key: run_id, baseline_run_id';
COMMENT ON COLUMN timed_pair.baseline_run_id IS 'The run of the target alone';
COMMENT ON COLUMN timed_pair.repeats IS 'The finished repeats of the run''s setting, including the run; an unfinished run has only itself';
COMMENT ON COLUMN timed_pair.repeats_of_baseline IS 'The finished repeats of the target alone';
