-- Speed. Regime latency: one sample at a time (concurrency 1), so no other sample slows a call. Regime load: calls
-- share the engines, so a sample's time is its latency under load. Interrupted samples are excluded from all times.

CREATE OR REPLACE VIEW run_conditions AS
WITH node AS (
    SELECT run_id, count(*) AS num_workers,
        string_agg(DISTINCT num_devices || ' × ' || device, ', ' ORDER BY num_devices || ' × ' || device) AS devices,
        -- A server's devices are unknown, so they never equal another run's.
        string_agg(DISTINCT device, ', ' ORDER BY device)
            || CASE WHEN bool_or(contains(device, 'unknown server')) THEN ' of ' || run_id ELSE '' END AS device_kinds,
        string_agg(DISTINCT hardware ->> '$.cpu', ', ' ORDER BY hardware ->> '$.cpu') AS processors,
        CASE WHEN count(DISTINCT num_devices) = 1 AND NOT bool_or(coalesce(device = 'cpu' OR contains(device, 'unknown'), true))
            THEN any_value(num_devices) END AS num_cards,
        list_sort(list(DISTINCT versions::VARCHAR)) AS versions
    FROM attempt GROUP BY run_id
), planned AS (
    SELECT run_id, max(num_samples) AS num_samples FROM (
        SELECT run_id, shard, count(*) AS num_samples FROM sample GROUP BY ALL
        UNION ALL -- a worker may have several shards
        SELECT run_id, NULL, count(*) FROM sample WHERE attempt_id IS NOT NULL GROUP BY run_id, attempt_id
    ) GROUP BY run_id
)
SELECT run_id, CASE WHEN run.concurrency = 1 THEN 'latency' ELSE 'load' END AS regime,
    run.concurrency, node.num_workers, node.devices, node.versions,
    least(run.concurrency, planned.num_samples) AS samples_in_flight, node.device_kinds, node.processors, node.num_cards
FROM run LEFT JOIN node USING (run_id) LEFT JOIN planned USING (run_id);
COMMENT ON VIEW run_conditions IS 'Conditions of a run''s times: regime, samples in flight, workers, devices, package versions. samples_in_flight: maximum on one worker; below concurrency if no worker had that many samples. devices: used by the engines of one worker. device_kinds: without their number, which follows from the tensor-parallel sizes and the draft''s placement; with the run''s id if a server runs a model, because its devices are unknown. num_cards: GPUs of a worker; NULL: none, unknown, or different between workers';

CREATE OR REPLACE VIEW run_repeats AS
WITH setting AS (
    SELECT run.run_id, device_kinds IS NOT NULL AND run.run_id NOT IN (
        SELECT run_id FROM sample WHERE stop_reason IS NULL) AS counts,
        -- number of a setting
    FROM (-- rows with conditions
    ) AS run
)
SELECT own.run_id, CASE WHEN own.counts THEN list(other.run_id ORDER BY other.run_id) ELSE [own.run_id] END AS repeats
FROM setting AS own LEFT JOIN setting AS other ON other.number = own.number AND other.counts
GROUP BY own.run_id, own.counts;
COMMENT ON VIEW run_repeats IS 'The finished repeats of a run''s setting, including the run: same settings, machine and night, another seed, tag or time. An unfinished run has only itself';

CREATE OR REPLACE VIEW latency AS
SELECT run_id, run_conditions.regime, count(*) AS num_samples,
    any_value(own.estimate) AS mean_seconds, median(latency_seconds) AS median_seconds,
    quantile_cont(latency_seconds, 0.95) AS p95_seconds,
    avg(emitted_tokens) AS mean_emitted_tokens, any_value(own.low_95) AS low_95, any_value(own.high_95) AS high_95
FROM timed_sample JOIN run_conditions USING (run_id)
LEFT JOIN (FROM counted_estimate WHERE metric = 'latency_seconds') AS own USING (run_id) GROUP BY run_id, regime;
COMMENT ON VIEW latency IS 'Wall time of a sample: the mean over problems of the mean over their samples (measure latency_seconds) with its 95 % interval, and median and 95th percentile over samples';

CREATE OR REPLACE VIEW latency_split AS
WITH timed_call AS (
    FROM call_total WHERE is_timed AND purpose <> 'lookahead'
), part AS (
    SELECT run_id, purpose AS part, sum(waited_seconds - waited_queued_seconds) AS seconds FROM timed_call GROUP BY ALL
    UNION ALL
    SELECT run_id, 'queueing', sum(waited_queued_seconds) FROM timed_call GROUP BY ALL
    UNION ALL
    SELECT run_id, 'overhead', latency.seconds - coalesce(called.seconds, 0)
    FROM (SELECT run_id, sum(latency_seconds) AS seconds FROM timed_sample GROUP BY ALL) AS latency
    LEFT JOIN (SELECT run_id, sum(waited_seconds) AS seconds FROM timed_call GROUP BY ALL) AS called USING (run_id)
)
SELECT run_id, latency.regime, CASE part WHEN 'draft' THEN 'drafting' ELSE part END AS part,
    seconds / nullif(sum(seconds) OVER (PARTITION BY run_id), 0) AS share, share * latency.mean_seconds AS seconds_per_sample,
    latency.num_samples
FROM part JOIN latency USING (run_id);
COMMENT ON VIEW latency_split IS 'Parts of a sample''s wall time: calls by purpose without their queueing, queueing, and overhead (latency minus all calls). Overlapping time counts once: a draft that begins during a verdict (--lookahead) counts from the moment the sample waits for it, and a discarded draft does not count. share: share of the time of all samples; the parts add up to the mean latency';

CREATE OR REPLACE VIEW call_speed AS
SELECT run_id, model, sum(num_calls)::BIGINT AS num_calls, sum(output_tokens)::BIGINT AS output_tokens,
    sum(end_seconds - queued_seconds) AS call_seconds,
    CASE WHEN any_value(regime) = 'latency' THEN sum(output_tokens) / nullif(sum(end_seconds - queued_seconds), 0) END
        AS tokens_per_call_second
FROM call_total JOIN run_conditions USING (run_id) WHERE is_timed GROUP BY run_id, model;
COMMENT ON VIEW call_speed IS 'Output tokens per second of a model over its own calls; NULL in regime load, where calls overlap';

CREATE OR REPLACE VIEW samples_under_way AS
WITH under_way AS (
    SELECT run_id, attempt_id, epoch(started_at) AS began_at, epoch(started_at) + latency_seconds AS ended_at
    FROM sample WHERE num_attempts = 1 AND started_at IS NOT NULL AND latency_seconds > 0
), change AS (
    SELECT run_id, attempt_id, began_at AS moment, 1 AS step FROM under_way
    UNION ALL SELECT run_id, attempt_id, ended_at, -1 FROM under_way
), net AS (
    SELECT run_id, attempt_id, moment, sum(step) AS step FROM change GROUP BY ALL
), span AS (
    SELECT run_id, sum(step) OVER later AS num_samples, lead(moment) OVER later - moment AS seconds
    FROM net WINDOW later AS (PARTITION BY run_id, attempt_id ORDER BY moment)
)
SELECT run_id, num_samples::BIGINT AS num_samples, exact_sum(seconds) AS seconds
FROM span WHERE num_samples > 0 AND seconds > 0 GROUP BY ALL;
COMMENT ON VIEW samples_under_way IS 'Time per number of concurrent samples on a worker, over all workers of a run. Resumed samples are left out';

CREATE OR REPLACE VIEW run_throughput AS
WITH worker AS (
    SELECT run_id, epoch(max(last_ended_at) - min(first_submitted_at)) AS wall_seconds
    FROM call_total WHERE is_timed GROUP BY run_id, attempt_id
), wall AS (
    SELECT run_id, count(*) AS num_workers, sum(wall_seconds) AS wall_seconds FROM worker GROUP BY ALL
), token AS (
    SELECT run_id, count(*) AS num_samples, sum(emitted_tokens)::BIGINT AS emitted_tokens,
        sum(spent_tokens)::BIGINT AS spent_tokens
    FROM timed_sample GROUP BY ALL
), seen AS (
    SELECT run_id, num_samples, sum(num_samples * seconds) OVER upward
        / sum(num_samples * seconds) OVER (PARTITION BY run_id) AS share
    FROM samples_under_way WINDOW upward AS (PARTITION BY run_id ORDER BY num_samples)
), load AS (
    SELECT run_id, min(num_samples) AS median_samples_in_flight FROM seen WHERE share >= 0.5 GROUP BY run_id
), rate AS (
    SELECT run_id, any_value(estimate) FILTER (metric = 'samples_per_second') AS samples_per_second,
        any_value(estimate) FILTER (metric = 'emitted_tokens_per_second') AS emitted_tokens_per_second
    FROM counted_estimate WHERE metric IN ('samples_per_second', 'emitted_tokens_per_second') GROUP BY run_id
)
SELECT run_id, run_conditions.regime, wall.num_workers, token.num_samples, emitted_tokens, spent_tokens, wall_seconds,
    samples_per_second, emitted_tokens_per_second, median_samples_in_flight
FROM wall JOIN token USING (run_id) JOIN run_conditions USING (run_id) LEFT JOIN load USING (run_id)
LEFT JOIN rate USING (run_id);
COMMENT ON VIEW run_throughput IS 'Throughput of a worker: samples and emitted tokens per second while all its slots are full (measures samples_per_second and emitted_tokens_per_second); NULL with fewer than 5 samples per slot, because start and end take most of the time. wall_seconds: from a worker''s first call to the end of its last, summed over workers, including start and end. median_samples_in_flight: median over the time of all samples; below the concurrency if limited by the KV cache';

CREATE OR REPLACE VIEW engine_overlap AS
WITH work AS (
    SELECT call.run_id, timed_sample.attempt_id, model,
        submitted_at + to_microseconds((queued_seconds * 1e6)::BIGINT) AS begun_at,
        submitted_at + to_microseconds((end_seconds * 1e6)::BIGINT) AS ended_at
    FROM call JOIN timed_sample USING (run_id, sample_id)
), change AS (
    SELECT run_id, attempt_id, begun_at AS moment, (model = 'draft')::INTEGER AS draft, (model = 'target')::INTEGER AS target
    FROM work
    UNION ALL
    SELECT run_id, attempt_id, ended_at, -(model = 'draft')::INTEGER, -(model = 'target')::INTEGER FROM work
), net AS (
    SELECT run_id, attempt_id, moment, sum(draft) AS draft, sum(target) AS target FROM change GROUP BY ALL
), span AS (
    SELECT run_id, attempt_id, epoch(lead(moment) OVER later - moment) AS seconds,
        sum(draft) OVER later > 0 AS drafting, sum(target) OVER later > 0 AS targeting
    FROM net WINDOW later AS (PARTITION BY run_id, attempt_id ORDER BY moment)
)
SELECT run_id, sum(seconds) AS wall_seconds,
    coalesce(sum(seconds) FILTER (drafting AND NOT targeting), 0) / nullif(sum(seconds), 0) AS share_draft_alone,
    coalesce(sum(seconds) FILTER (targeting AND NOT drafting), 0) / nullif(sum(seconds), 0) AS share_target_alone,
    coalesce(sum(seconds) FILTER (drafting AND targeting), 0) / nullif(sum(seconds), 0) AS share_both,
    coalesce(sum(seconds) FILTER (NOT drafting AND NOT targeting), 0) / nullif(sum(seconds), 0) AS share_idle
FROM span GROUP BY run_id;
COMMENT ON VIEW engine_overlap IS 'Busy engines, as shares of the time from a worker''s first call to the end of its last, over timed samples. Queued requests do not count. Work on resumed or failed samples, and of a reward model, counts as idle time';
