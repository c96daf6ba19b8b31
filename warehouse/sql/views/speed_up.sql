-- Speed relative to the target alone, with the rules for which runs are comparable.

CREATE OR REPLACE VIEW problem_speed AS
SELECT run_id, problem_id, count(*) AS num_samples, exact_sum(latency_seconds) / count(*) AS latency_seconds,
    sum(emitted_tokens) / count(*) AS emitted_tokens
FROM timed_sample GROUP BY ALL
HAVING exact_sum(latency_seconds) > 0 AND bool_and(isfinite(latency_seconds)) AND sum(emitted_tokens) > 0;
COMMENT ON VIEW problem_speed IS 'Mean latency and emitted tokens of the samples of a problem';

-- Runs with the same hash of their problems have the same problems, so that sets are compared and not every two runs.
CREATE OR REPLACE VIEW shared_problems AS
WITH problem_set AS (
    SELECT dataset_hash, num_problems, min(run_id) AS run_id FROM run GROUP BY ALL
), member AS (
    SELECT dataset_hash, num_problems, problem_id, content_hash FROM problem_set JOIN problem USING (run_id)
)
SELECT own.dataset_hash, own.num_problems, other.dataset_hash AS other_dataset_hash,
    other.num_problems AS num_other_problems, count(*) AS num_shared_problems
FROM member AS own JOIN member AS other USING (problem_id, content_hash)
GROUP BY ALL;
COMMENT ON VIEW shared_problems IS 'How many problems of equal id and content two sets of problems have in common, for every two sets that runs were over; a limited run''s set is a part of the whole one. Sets without a common problem have no row';

CREATE OR REPLACE VIEW comparable_baseline AS
SELECT run.run_id, baseline.run_id AS baseline_run_id,
    run_condition.regime, run_condition.versions IS NOT DISTINCT FROM base_condition.versions AS same_versions,
    shared.num_shared_problems
FROM run
JOIN run AS baseline ON
    baseline.method = 'vanilla' AND json_extract_string(baseline.params, '$.model') = 'target'
    AND NOT (run.method = 'vanilla' AND json_extract_string(run.params, '$.model') = 'target')
    AND run.target_fingerprint = baseline.target_fingerprint
    AND run.concurrency = baseline.concurrency
    AND run.temperature = baseline.temperature
    AND run.top_p = baseline.top_p
    AND run.target_sampling IS NOT DISTINCT FROM baseline.target_sampling
    AND run.target_template IS NOT DISTINCT FROM baseline.target_template
    AND run.target_thinking_tags IS NOT DISTINCT FROM baseline.target_thinking_tags
    AND run.engine_target_arguments IS NOT DISTINCT FROM baseline.engine_target_arguments
    AND run.token_budget = baseline.token_budget
    AND run.engine_kind = baseline.engine_kind
    AND run.engine_target_dtype = baseline.engine_target_dtype
    -- Other nights' machines were as they were.
    AND run.night IS NOT DISTINCT FROM baseline.night
JOIN shared_problems AS shared ON shared.dataset_hash = run.dataset_hash AND shared.num_problems = run.num_problems
    AND shared.other_dataset_hash = baseline.dataset_hash AND shared.num_other_problems = baseline.num_problems
JOIN run_conditions AS run_condition ON run_condition.run_id = run.run_id
JOIN run_conditions AS base_condition ON base_condition.run_id = baseline.run_id
WHERE run_condition.device_kinds = base_condition.device_kinds
    AND run_condition.samples_in_flight = base_condition.samples_in_flight
    -- The target alone may be wider where it has as many cards as both models of the run together.
    AND (run.engine_target_tensor_parallel = baseline.engine_target_tensor_parallel
        OR run_condition.devices = base_condition.devices);
COMMENT ON VIEW comparable_baseline IS 'Runs of the target alone with which the speed of a run may be compared on the problems that both have, by content: same target, concurrency, sampling, engine and kind of devices, a target as wide or as many devices in all, and as many samples in flight where a worker has fewer than the concurrency; a run of a night only with those of the same night. same_versions: also the same packages. num_shared_problems: of equal id and content, fewer than either run has where one is limited';

CREATE OR REPLACE VIEW speed_up AS
WITH metric AS (
    FROM counted_estimate WHERE baseline_run_id IS NOT NULL
), card AS ( -- of a worker; no row without a GPU, or where it is unknown or not the same of all
    SELECT run_id, any_value(num_devices) AS num_cards FROM attempt GROUP BY run_id
    HAVING count(DISTINCT num_devices) = 1 AND NOT bool_or(device = 'cpu' OR contains(device, 'unknown'))
)
SELECT run_id, baseline_run_id, condition.regime, speed.n, speed.estimate AS speed_up, speed.low_95, speed.high_95,
    rate.estimate AS rate_ratio, length.estimate AS chain_length_ratio, condition.same_versions,
    means.estimate AS ratio_of_means, means.low_95 AS ratio_of_means_low_95, means.high_95 AS ratio_of_means_high_95,
    speed.run_factor, speed.interval_kind, means.interval_kind AS ratio_of_means_interval_kind,
    speed.estimate * base_card.num_cards / own_card.num_cards AS speed_up_per_card_second
FROM comparable_baseline AS condition
JOIN (FROM metric WHERE metric = 'speed_up') AS speed USING (run_id, baseline_run_id)
JOIN (FROM metric WHERE metric = 'rate_ratio') AS rate USING (run_id, baseline_run_id)
JOIN (FROM metric WHERE metric = 'chain_length_ratio') AS length USING (run_id, baseline_run_id)
JOIN (FROM metric WHERE metric = 'ratio_of_means') AS means USING (run_id, baseline_run_id)
LEFT JOIN card AS own_card USING (run_id)
LEFT JOIN card AS base_card ON base_card.run_id = baseline_run_id;
COMMENT ON VIEW speed_up IS 'Latency of the target alone divided by the latency of the run, paired by problem: geometric mean over n problems with its 95 % interval, which is the one of summaries, comparisons and reports. It covers what differs from one run to the next where run_factor is known, and otherwise holds within these two runs only. speed_up = rate_ratio / chain_length_ratio (emitted tokens per second and tokens per chain). ratio_of_means: mean latency of the target alone divided by that of the run over the same problems, as published speed-ups are, with its 95 % interval. A sample that one of the runs has not finished is left out of the other as well';
