-- Latency of one sample at a time, estimated from timing samples (warehouse/comparison/latency_at_one.py).

CREATE OR REPLACE VIEW latency_at_one AS
WITH drawn AS (
    SELECT run_id, count(*) AS num_samples, count(*) FILTER (is_timed) AS num_drawn FROM timing_draw GROUP BY run_id
), timed AS (
    SELECT run_id, count(*) AS num_timed, avg(latency_seconds) AS mean_timed_seconds,
        string_agg(DISTINCT device, ', ' ORDER BY device) AS devices
    FROM timing_sample WHERE num_attempts = 1 AND stop_reason <> 'error' AND latency_seconds IS NOT NULL GROUP BY run_id
)
SELECT run_id, estimate.n, drawn.num_samples, drawn.num_drawn, timed.num_timed, estimate.estimate AS mean_seconds,
    estimate.low_95, estimate.high_95, estimate.standard_error AS standard_error_of_log, timed.mean_timed_seconds,
    timed.devices, estimate.interval_kind
FROM counted_estimate AS estimate JOIN drawn USING (run_id) JOIN timed USING (run_id)
WHERE estimate.metric = 'latency_at_one';
COMMENT ON VIEW latency_at_one IS 'Mean latency of a sample with one sample in flight, from num_timed samples repeated alone (--latency-sample): mean prediction of the latency model over all num_samples chains, plus the stratum-weighted mean prediction error of the timed samples. Its interval accounts for the sampling of problems and the draw of timed samples. For runs with one sample in flight, use the view latency';

CREATE OR REPLACE VIEW speed_up_at_one AS
SELECT run_id, baseline_run_id, ratio.n, own.num_timed, base.num_timed AS num_timed_of_baseline,
    ratio.estimate AS speed_up, ratio.low_95, ratio.high_95, own.mean_seconds, base.mean_seconds AS baseline_mean_seconds,
    condition.same_versions, ratio.interval_kind, condition.num_cards,
    condition.num_cards_of_baseline
FROM comparable_baseline AS condition
JOIN (FROM counted_estimate WHERE metric = 'speed_up_at_one') AS ratio USING (run_id, baseline_run_id)
JOIN latency_at_one AS own USING (run_id)
JOIN latency_at_one AS base ON base.run_id = baseline_run_id;
COMMENT ON VIEW speed_up_at_one IS 'Mean latency of the target alone divided by that of the run, both with one sample in flight, over the n problems with timed samples in both: published speed-ups are such ratios. Both runs have timing samples. The interval accounts for the sampling of problems, paired, and the draw of both runs'' timed samples. It holds only within these two runs, without run-to-run variation';
