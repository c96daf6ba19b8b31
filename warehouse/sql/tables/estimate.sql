-- Estimates with their intervals, which warehouse/estimates computes at the end of a load: one row, however it is shown.

CREATE TABLE estimate (
    run_id VARCHAR NOT NULL,
    baseline_run_id VARCHAR,
    grader_version VARCHAR,
    metric VARCHAR NOT NULL,
    k INTEGER,
    group_kind VARCHAR,
    group_value VARCHAR,
    n BIGINT NOT NULL,
    num_samples BIGINT,
    estimate DOUBLE NOT NULL,
    standard_error DOUBLE,
    low_95 DOUBLE,
    high_95 DOUBLE,
    interval_kind VARCHAR NOT NULL,
    rerun_standard_error DOUBLE,
    run_factor DOUBLE
);
COMMENT ON TABLE estimate IS 'Every estimate with its 95 % interval, computed once, at loading, by warehouse/statistics; views, summaries, reports and nights read these rows. Key: run_id, baseline_run_id, grader_version, metric, k, group_kind, group_value, where NULL is a value';
COMMENT ON COLUMN estimate.run_id IS 'The run';
COMMENT ON COLUMN estimate.baseline_run_id IS 'The run of the target alone that it is compared with; NULL: the estimate is of the run alone';
COMMENT ON COLUMN estimate.grader_version IS 'Whose grades they are; NULL: nobody''s, or no grade counts in this metric';
COMMENT ON COLUMN estimate.metric IS 'pass_at_1 (missing samples count as not correct: a lower bound), graded_pass_at_1, pass_at_k and maj_at_k (over samples with a result alone), accuracy and graded_accuracy (pass@1 of a group), judge_auroc, fallback_rate, acceptance_rate (of a place in the chain), latency_seconds (mean over problems), latency_at_one (with one sample in flight, from timing samples), speed_up, ratio_of_means and speed_up_at_one (over the baseline, each also …_within_runs without the run factor), rate_ratio, chain_length_ratio, target_nats_per_token (of the accepted text under the target), distance_from_target (that minus the baseline''s); of a probe probe_false_acceptance, probe_false_rejection, probe_loss_of_accepted, probe_loss_of_refused, probe_auroc';
COMMENT ON COLUMN estimate.k IS 'Samples that the metric takes of a problem; NULL: it has none';
COMMENT ON COLUMN estimate.group_kind IS 'level, for acceptance_rate step (index from 0), for judge_auroc kind (of decision), for a probe third (of the chain, 1 to 3) or threshold; NULL: the whole run';
COMMENT ON COLUMN estimate.group_value IS 'The level, the third or step, the threshold, or the kind of decision; NULL: the whole run, or problems without a level';
COMMENT ON COLUMN estimate.n IS 'Problems that the estimate is over [count]';
COMMENT ON COLUMN estimate.num_samples IS 'Samples that it is over; NULL: the metric does not count samples [count]';
COMMENT ON COLUMN estimate.estimate IS 'Its value [0 to 1, ratio, s, nats]';
COMMENT ON COLUMN estimate.standard_error IS 'Over problems; of a ratio that of its logarithm; NULL with a single problem [0 to 1, ratio, s]';
COMMENT ON COLUMN estimate.low_95 IS 'Lower end of the 95 % interval; NULL: there is none [0 to 1, ratio, s]';
COMMENT ON COLUMN estimate.high_95 IS 'Upper end of the 95 % interval; NULL: there is none [0 to 1, ratio, s]';
COMMENT ON COLUMN estimate.interval_kind IS 'Method of the interval (warehouse/statistics/README.md), or why there is none';
COMMENT ON COLUMN estimate.rerun_standard_error IS 'Standard error over re-runs of the same problems; NULL where it does not apply, or a problem has a single sample [0 to 1]';
COMMENT ON COLUMN estimate.run_factor IS 'Standard deviation of a run''s times in logarithms, which the interval covers; NULL: not known, or not of times [ratio]';
