-- Speed relative to the target alone, with the rules for which runs are comparable.

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
WITH conditioned AS (-- rows with conditions
)
SELECT run.run_id, baseline.run_id AS baseline_run_id,
    run.regime, run.versions IS NOT DISTINCT FROM baseline.versions AS same_versions,
    shared.num_shared_problems, run.num_cards, baseline.num_cards AS num_cards_of_baseline
FROM conditioned AS run
JOIN conditioned AS baseline ON -- the target alone, alike for times
JOIN shared_problems AS shared ON shared.dataset_hash = run.dataset_hash AND shared.num_problems = run.num_problems
    AND shared.other_dataset_hash = baseline.dataset_hash AND shared.num_other_problems = baseline.num_problems;
COMMENT ON VIEW comparable_baseline IS 'Runs of the target alone with which the speed of a run may be compared on the problems that both have, by content: same target, concurrency, sampling, engine and kind of devices, a target as wide or as many devices in all, and as many samples in flight where a worker has fewer than the concurrency; a run of a night only with those of the same night. same_versions: also the same packages. num_shared_problems: of equal id and content, fewer than either run has where one is limited. num_cards: GPUs of a worker';

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
COMMENT ON VIEW speed_up IS 'Latency of the target alone divided by the latency of the run, paired by problem: geometric mean over n problems with its 95 % interval, which is the one of summaries, comparisons and reports. Both are settings: times are averaged, for the geometric mean in logarithms, over the num_runs finished runs that repeat the run, and the num_runs_of_baseline that repeat the target alone. The interval covers what differs from one run to the next where run_factor is known, which needs three repeats of one of them or two of both, and otherwise holds within these runs only. speed_up = rate_ratio / chain_length_ratio (emitted tokens per second and tokens per chain). ratio_of_means: mean latency of the target alone divided by that of the run over the same problems, as published speed-ups are, with its 95 % interval. A sample that one of the runs has not finished is left out of the other as well. num_cards: GPUs of a worker; speed_up_per_card_second: times the cards of the target alone, divided by those of the run';
