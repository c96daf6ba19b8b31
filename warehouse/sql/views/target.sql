-- Distance from the target: how probable the accepted text is to the target, on one axis for all methods.

CREATE OR REPLACE VIEW distance_baseline AS
WITH scored AS (
    SELECT DISTINCT run_id, target FROM sample_target_logprob
)
SELECT run.run_id, baseline.run_id AS baseline_run_id
FROM run JOIN scored AS own USING (run_id)
JOIN run AS baseline ON -- the target alone, alike for texts
JOIN scored AS theirs ON theirs.run_id = baseline.run_id AND theirs.target = own.target
JOIN shared_problems AS shared ON shared.dataset_hash = run.dataset_hash AND shared.num_problems = run.num_problems
    AND shared.other_dataset_hash = baseline.dataset_hash AND shared.num_other_problems = baseline.num_problems;
COMMENT ON VIEW distance_baseline IS 'Runs of the target alone whose chains are comparable with a run''s: scored by the same target, generated with the same temperature, top-p, sampling of the target, token budget and prompts, on common problems; nightly runs only with the same night. Engines, devices and samples in flight may differ, because they do not affect the text';

CREATE OR REPLACE VIEW distance_from_target AS
WITH own AS (
    FROM counted_estimate WHERE metric = 'target_nats_per_token'
), pair AS (
    FROM counted_estimate WHERE metric = 'distance_from_target'
), speed AS (
    FROM counted_estimate WHERE metric = 'speed_up'
)
SELECT run_id, run.method, own.estimate AS nats_per_token, own.low_95 AS nats_per_token_low_95,
    own.high_95 AS nats_per_token_high_95, own.num_samples, pair.baseline_run_id, pair.n, pair.estimate AS distance,
    pair.low_95 AS distance_low_95, pair.high_95 AS distance_high_95, speed.estimate AS speed_up,
    speed.low_95 AS speed_up_low_95, speed.high_95 AS speed_up_high_95,
    accuracy.graded_pass_at_1, accuracy.graded_low_95, accuracy.graded_high_95
FROM own JOIN run USING (run_id) LEFT JOIN pair USING (run_id)
LEFT JOIN speed ON speed.run_id = own.run_id AND speed.baseline_run_id = pair.baseline_run_id
LEFT JOIN pass_at_1 AS accuracy USING (run_id);
COMMENT ON VIEW distance_from_target IS 'How improbable the accepted text of a run is to the target: nats_per_token is the mean over problems of the mean over their samples of a chain''s negative log-probability per token; distance is nats_per_token minus that of the target''s own chains (baseline_run_id), paired by problem. A distance of about 0: as probable as the target''s own text, which holds for token-level speculation by construction; positive: less probable; negative: more probable than its own samples. It is a difference of cross-entropies, and equals the divergence per token only if both texts vary equally (docs/statistics.md). Requires python -m jobs target-logprobs; a run without a scored baseline has no distance';
