-- Speed relative to the target alone, with the rules for which runs are comparable.

CREATE OR REPLACE VIEW problem_speed AS
SELECT run_id, problem_id, count(*) AS num_samples, avg(latency_seconds) AS latency_seconds,
    avg(emitted_tokens) AS emitted_tokens
FROM timed_sample GROUP BY ALL
HAVING avg(latency_seconds) > 0 AND avg(emitted_tokens) > 0;
COMMENT ON VIEW problem_speed IS 'Mean latency and emitted tokens of the samples of a problem';

CREATE OR REPLACE VIEW comparable_baseline AS
SELECT run.run_id, baseline.run_id AS baseline_run_id,
    run_condition.regime, run_condition.versions IS NOT DISTINCT FROM base_condition.versions AS same_versions
FROM run
JOIN run AS baseline ON
    baseline.method = 'vanilla' AND json_extract_string(baseline.params, '$.model') = 'target'
    AND NOT (run.method = 'vanilla' AND json_extract_string(run.params, '$.model') = 'target')
    AND run.target_fingerprint = baseline.target_fingerprint
    AND run.dataset_hash = baseline.dataset_hash
    AND run.concurrency = baseline.concurrency
    AND run.temperature = baseline.temperature
    AND run.top_p = baseline.top_p
    AND run.token_budget = baseline.token_budget
    AND run.engine_kind = baseline.engine_kind
    AND run.engine_dtype = baseline.engine_dtype
    AND run.engine_target_tensor_parallel = baseline.engine_target_tensor_parallel
JOIN run_conditions AS run_condition ON run_condition.run_id = run.run_id
JOIN run_conditions AS base_condition ON base_condition.run_id = baseline.run_id
WHERE run_condition.device_kinds = base_condition.device_kinds
    AND run_condition.samples_in_flight = base_condition.samples_in_flight;
COMMENT ON VIEW comparable_baseline IS 'Runs of the target alone with which the speed of a run may be compared: same target, problems, concurrency, sampling, engine and devices, and as many samples in flight where a worker has fewer than the concurrency. same_versions: also the same packages';

CREATE OR REPLACE VIEW speed_up AS
WITH ratio AS (
    SELECT pair.*,
        ln(base.latency_seconds / own.latency_seconds) AS log_speed_up,
        ln(own.emitted_tokens / own.latency_seconds) - ln(base.emitted_tokens / base.latency_seconds) AS log_rate,
        ln(own.emitted_tokens / base.emitted_tokens) AS log_length,
        avg(base.latency_seconds) OVER same_pair / avg(own.latency_seconds) OVER same_pair AS ratio_of_means,
        base.latency_seconds / avg(base.latency_seconds) OVER same_pair
            - own.latency_seconds / avg(own.latency_seconds) OVER same_pair AS influence
    FROM comparable_baseline AS pair
    JOIN problem_speed AS own ON own.run_id = pair.run_id
    JOIN problem_speed AS base ON base.run_id = pair.baseline_run_id AND base.problem_id = own.problem_id
    WINDOW same_pair AS (PARTITION BY pair.run_id, pair.baseline_run_id)
), mean AS (
    SELECT run_id, baseline_run_id, regime, same_versions, count(*) AS n,
        avg(log_speed_up) AS speed, stddev_samp(log_speed_up) / sqrt(count(*)) AS error,
        avg(log_rate) AS rate, avg(log_length) AS length,
        any_value(ratio_of_means) AS ratio_of_means, stddev_samp(influence) / sqrt(count(*)) AS ratio_error
    FROM ratio GROUP BY ALL
)
SELECT run_id, baseline_run_id, regime, n, exp(speed) AS speed_up,
    exp(speed - t_quantile(n - 1) * error) AS low_95, exp(speed + t_quantile(n - 1) * error) AS high_95,
    exp(rate) AS rate_ratio, exp(length) AS chain_length_ratio, same_versions, ratio_of_means,
    ratio_of_means * exp(-t_quantile(n - 1) * ratio_error) AS ratio_of_means_low_95,
    ratio_of_means * exp(t_quantile(n - 1) * ratio_error) AS ratio_of_means_high_95
FROM mean;
COMMENT ON VIEW speed_up IS 'Latency of the target alone divided by the latency of the run, paired by problem: geometric mean over n problems with 95 % t interval on logarithms. speed_up = rate_ratio / chain_length_ratio (emitted tokens per second and tokens per chain). ratio_of_means: mean latency of the target alone divided by that of the run over the same problems, as published speed-ups are, with 95 % t interval on logarithms by the delta method (Cochran, Sampling Techniques, 1977, section 6.4); that interval is too narrow with few problems (simulated coverage 90 % with 10, 92 % with 30, 94 % with 100), and compare --stopwatches has the wider one of a bootstrap';
