-- Estimates and their intervals, which warehouse/estimates.py computes at the end of a load from the registry of
-- warehouse/measures.py: one row, however it is shown.

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
COMMENT ON TABLE estimate IS 'Every number of a run, or of a run and its baseline, computed once, at loading; the table interval has its intervals, the view counted_estimate both. Key: run_id, baseline_run_id, grader_version, measure, role, k, group_kind, group_value, where NULL is a value';
COMMENT ON COLUMN estimate.id IS 'Hash of the key, by which intervals refer to it';
COMMENT ON COLUMN estimate.baseline_run_id IS 'The run of the target alone that it is compared with; NULL: the estimate is of the run alone';
COMMENT ON COLUMN estimate.grader_version IS 'Whose grades they are; NULL: nobody''s, or no grade counts in this measure';
COMMENT ON COLUMN estimate.measure IS 'Its name; the table measure says what each is';
COMMENT ON COLUMN estimate.role IS 'The model that it is of; NULL: all together';
COMMENT ON COLUMN estimate.k IS 'Samples that the measure takes of a problem; NULL: it has none';
COMMENT ON COLUMN estimate.group_kind IS 'level, for acceptance_rate step (index from 0), for judge_auroc kind (of decision), for a probe third (of the chain, 1 to 3) or threshold, for accuracy_at_budget budget (tokens); NULL: the whole run';
COMMENT ON COLUMN estimate.group_value IS 'The level, the third or step, the threshold, the budget, or the kind of decision; NULL: the whole run, or problems without a level';
COMMENT ON COLUMN estimate.n IS 'Problems that the estimate is over [count]';
COMMENT ON COLUMN estimate.families IS 'Families of these problems; NULL: each is one [count]';
COMMENT ON COLUMN estimate.num_samples IS 'Samples that it is over; NULL: the measure does not count samples [count]';
COMMENT ON COLUMN estimate.missing IS 'Planned samples of these problems without a result; NULL: the measure does not count them [count]';
COMMENT ON COLUMN estimate.value IS 'Its value; NULL: there are too few data for one, as interval.method says';
COMMENT ON COLUMN estimate.num IS 'Sum of x over problems, of which it is a part; NULL: a function of all problems';
COMMENT ON COLUMN estimate.den IS 'Sum of y over problems';
COMMENT ON COLUMN estimate.unit IS 'Unit of the value';
COMMENT ON COLUMN estimate.run_factor IS 'Standard deviation of a run''s times in logarithms over the repeats, which the interval covers; NULL: too few repeats show it, or not of times [ratio]';

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
COMMENT ON COLUMN interval.question IS 'like these problems (the problems are a sample), these problems (the run again)';
COMMENT ON COLUMN interval.low IS 'Lower end; NULL: there is none';
COMMENT ON COLUMN interval.high IS 'Upper end; NULL: there is none';
COMMENT ON COLUMN interval.standard_error IS 'Standard error; of a ratio that of its logarithm; NULL with a single problem';
COMMENT ON COLUMN interval.p IS 'Unadjusted two-sided p-value of a difference; NULL: nothing is tested';
COMMENT ON COLUMN interval.method IS 'Method of the interval (docs/statistics.md), or why there is none';

CREATE TABLE timed_pair (
    run_id VARCHAR NOT NULL,
    baseline_run_id VARCHAR NOT NULL,
    repeats VARCHAR[] NOT NULL,
    repeats_of_baseline VARCHAR[] NOT NULL
);
COMMENT ON TABLE timed_pair IS 'A run and a target alone whose times are compared, with the runs that the estimates of the pair are over. Key: run_id, baseline_run_id';
COMMENT ON COLUMN timed_pair.baseline_run_id IS 'The run of the target alone';
COMMENT ON COLUMN timed_pair.repeats IS 'The finished runs of the run''s setting, itself included; a run that is not finished stands alone';
COMMENT ON COLUMN timed_pair.repeats_of_baseline IS 'Likewise of the target alone';
