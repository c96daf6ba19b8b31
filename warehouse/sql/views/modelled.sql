-- Latency as SpecReason's author computes it, from tokens and the speeds of the run itself.

CREATE OR REPLACE VIEW timed_work AS
SELECT work.* FROM sample_work AS work SEMI JOIN timed_sample USING (run_id, sample_id)
WHERE purpose <> 'lookahead';
COMMENT ON VIEW timed_work IS 'Rows of sample_work that a timed sample waited for: without discarded lookaheads';

CREATE OR REPLACE VIEW token_time AS
SELECT run_id, model, run_conditions.regime, sum(num_calls)::BIGINT AS num_calls,
    sum(decode_tokens)::BIGINT AS num_tokens,
    nullif(sum(decode_seconds), 0) / nullif(sum(decode_tokens), 0) AS seconds
FROM timed_work JOIN run_conditions USING (run_id)
WHERE purpose <> 'verdict' GROUP BY ALL;
COMMENT ON VIEW token_time IS 'Time per output token (TPT) of a model in a run: time after the first token divided by the tokens after the first, over the calls of timed samples that write text; of parallel completions the longest. Regime latency: one sample in flight, so the engine served one request at a time. Regime throughput: no request is known to have been alone, so the load is in it. NULL: the engine does not say when the first token came';

CREATE OR REPLACE VIEW first_token_time AS
SELECT run_id, model, purpose, run_conditions.regime, sum(num_calls)::BIGINT AS num_calls,
    sum(first_token_seconds) / sum(num_calls) AS seconds
FROM timed_work JOIN run_conditions USING (run_id) GROUP BY ALL;
COMMENT ON VIEW first_token_time IS 'Time to first token (TTFT) by model and purpose: mean over the calls of timed samples, without queueing. For a verdict it is the prefill of the question, the cached part of the chain left out. Regimes as in token_time';

CREATE OR REPLACE VIEW modelled_latency AS
WITH part AS (
    SELECT work.run_id, work.sample_id, work.model, work.purpose,
        CASE WHEN work.purpose <> 'verdict' THEN longest_output_tokens * token.seconds END AS writing,
        CASE WHEN work.purpose IN ('verdict', 'chain') THEN work.num_calls * prefill.seconds END AS prefill,
        work.purpose <> 'verdict' AND token.seconds IS NULL AS is_unknown
    FROM timed_work AS work
    LEFT JOIN token_time AS token ON (token.run_id, token.model) = (work.run_id, work.model)
    LEFT JOIN first_token_time AS prefill
        ON (prefill.run_id, prefill.model, prefill.purpose) = (work.run_id, work.model, work.purpose)
), total AS (
    SELECT run_id, sample_id,
        coalesce(sum(writing) FILTER (model = 'draft'), 0) AS draft_seconds,
        coalesce(sum(writing) FILTER (model = 'target'), 0) AS target_seconds,
        coalesce(sum(prefill) FILTER (purpose = 'verdict'), 0) AS verdict_seconds,
        coalesce(sum(prefill) FILTER (purpose = 'chain'), 0) AS first_token_seconds,
        bool_or(is_unknown) AS is_unknown
    FROM part GROUP BY run_id, sample_id
)
SELECT run_id, sample_id, timed.problem_id, run_conditions.regime, draft_seconds, target_seconds, verdict_seconds,
    first_token_seconds,
    CASE WHEN NOT is_unknown
        THEN draft_seconds + target_seconds + verdict_seconds + first_token_seconds END AS modelled_seconds,
    timed.latency_seconds AS measured_seconds
FROM total JOIN timed_sample AS timed USING (run_id, sample_id) JOIN run_conditions USING (run_id);
COMMENT ON VIEW modelled_latency IS 'Latency of each timed sample as SpecReason''s author computes it (comment of 2025-10-02 on issue 8 of ruipeterpan/specreason), from the run''s own speeds. A chain that one model writes alone: time to first token + tokens × time per token. With both models: the prefill of every verdict''s question + every token that the draft wrote, refused steps included, × its time per token + every token that the target wrote × its own. Seconds; token_time and first_token_time have the speeds. Left out, as there: queueing, batching, prefill of the chain, the program''s own time. Our choices where the author says nothing: of parallel drafts the longest counts, a discarded lookahead does not, and what overlaps is added up. Samples that are unfinished, failed or resumed have no row; NULL: a speed is unknown';

CREATE OR REPLACE VIEW run_modelled_latency AS
WITH problem AS (
    SELECT run_id, regime, problem_id, count(*) AS num_samples, avg(modelled_seconds) AS modelled_seconds,
        avg(measured_seconds) AS measured_seconds
    FROM modelled_latency GROUP BY ALL
)
SELECT run_id, regime, count(*) AS n, sum(num_samples)::BIGINT AS num_samples, avg(modelled_seconds) AS modelled_seconds,
    avg(measured_seconds) AS measured_seconds,
    avg(modelled_seconds) / nullif(avg(measured_seconds), 0) AS modelled_to_measured
FROM problem WHERE modelled_seconds IS NOT NULL GROUP BY ALL;
COMMENT ON VIEW run_modelled_latency IS 'modelled_latency over n problems (means of problem means), beside the measured latency of the same samples. In regime throughput the speeds include the load of other samples, which the author''s do not';
