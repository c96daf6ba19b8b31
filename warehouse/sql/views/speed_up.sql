-- Speed relative to the target alone, with the rules for which runs are comparable.

-- Runs with equal problem hashes have the same problems, so sets are compared instead of pairs of runs.
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
COMMENT ON VIEW shared_problems IS 'Number of problems with equal id and content in two problem sets, for every two sets used by runs; a partial run''s set is a subset. Sets without a common problem have no row';

CREATE OR REPLACE VIEW comparable_baseline AS
WITH conditioned AS (-- rows with conditions
)
SELECT run.run_id, baseline.run_id AS baseline_run_id,
    run.regime, run.versions IS NOT DISTINCT FROM baseline.versions AS same_versions,
    shared.num_shared_problems, run.num_cards, baseline.num_cards AS num_cards_of_baseline
FROM conditioned AS run
JOIN conditioned AS baseline ON -- the target alone, alike for times
JOIN shared_problems AS shared ON shared.dataset_hash = run.dataset_hash AND shared.num_problems = run.num_problems
    AND shared.other_dataset_hash = baseline.dataset_hash AND shared.num_other_problems = baseline.num_problems;
COMMENT ON VIEW comparable_baseline IS 'Runs of the target alone that are valid baselines for a run''s speed on their common problems: same target, concurrency, sampling, engine and kind of devices; same tensor-parallel size of the target or same total number of devices; same number of samples in flight if below the concurrency; nightly runs only with the same night. same_versions: also the same packages. num_shared_problems: problems with equal id and content. num_cards: GPUs of a worker';

CREATE OR REPLACE VIEW speed_up AS
WITH metric AS (
    FROM counted_estimate WHERE baseline_run_id IS NOT NULL
)
SELECT run_id, baseline_run_id, condition.regime, speed.n, len(repeats) AS num_runs,
    len(repeats_of_baseline) AS num_runs_of_baseline, num_cards, num_cards_of_baseline,
    speed.estimate AS speed_up, speed.low_95, speed.high_95, rate.estimate AS rate_ratio,
    length.estimate AS chain_length_ratio, condition.same_versions, means.estimate AS ratio_of_means,
    means.low_95 AS ratio_of_means_low_95, means.high_95 AS ratio_of_means_high_95, speed.run_factor,
    speed.interval_kind, means.interval_kind AS ratio_of_means_interval_kind,
    speed.estimate * num_cards_of_baseline / num_cards AS speed_up_per_card_second
FROM comparable_baseline AS condition JOIN timed_pair USING (run_id, baseline_run_id)
JOIN (FROM metric WHERE metric = 'speed_up') AS speed USING (run_id, baseline_run_id)
JOIN (FROM metric WHERE metric = 'rate_ratio') AS rate USING (run_id, baseline_run_id)
JOIN (FROM metric WHERE metric = 'chain_length_ratio') AS length USING (run_id, baseline_run_id)
JOIN (FROM metric WHERE metric = 'ratio_of_means') AS means USING (run_id, baseline_run_id);
COMMENT ON VIEW speed_up IS 'Latency of the target alone divided by the latency of the run, paired by problem: geometric mean over n problems with its 95 % interval, as in summaries, comparisons and reports. Both are settings: times are averaged, for the geometric mean in logarithms, over the num_runs finished repeats of the run and the num_runs_of_baseline finished repeats of the target alone. The interval includes run-to-run variation if run_factor is known, which requires three repeats of one setting or two of both; otherwise it holds only within these runs. speed_up = rate_ratio / chain_length_ratio (emitted tokens per second and tokens per chain). ratio_of_means: mean latency of the target alone divided by that of the run over the same problems, as published speed-ups are, with its 95 % interval. A sample not finished in one of the runs is left out of the other too. num_cards: GPUs of a worker; speed_up_per_card_second: speed-up times the baseline''s GPUs, divided by the run''s GPUs';
