-- Latency as SpecReason's author computes it, from tokens and the speeds of the run itself.

CREATE OR REPLACE VIEW modelled_latency AS
WITH timed_work AS (
    SELECT work.* FROM sample_work AS work SEMI JOIN timed_sample USING (run_id, sample_id) WHERE purpose <> 'lookahead'
), token AS ( -- time after the first token by the tokens after the first; NULL if the engine does not report its time
    SELECT run_id, model, nullif(sum(decode_seconds), 0) / nullif(sum(decode_tokens), 0) AS seconds
    FROM timed_work WHERE purpose <> 'verdict' GROUP BY ALL
), prefill AS ( -- without queueing; for a verdict only the question, without the cached chain
    SELECT run_id, model, purpose, sum(first_token_seconds) / sum(num_calls) AS seconds FROM timed_work GROUP BY ALL
), part AS (
    SELECT work.run_id, work.sample_id, work.model, work.purpose,
        CASE WHEN work.purpose <> 'verdict' THEN longest_output_tokens * token.seconds END AS writing,
        CASE WHEN work.purpose IN ('verdict', 'chain') THEN work.num_calls * prefill.seconds END AS prefill,
        work.purpose <> 'verdict' AND token.seconds IS NULL AS is_unknown
    FROM timed_work AS work LEFT JOIN token USING (run_id, model) LEFT JOIN prefill USING (run_id, model, purpose)
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
COMMENT ON VIEW modelled_latency IS 'Latency of each timed sample as SpecReason''s author computes it (comment of 2025-10-02 on issue 8 of ruipeterpan/specreason), from the run''s own speeds. A chain that one model writes alone: time to first token + tokens × time per token. With both models: the prefill of every verdict''s question + every token written by the draft, including rejected steps, × its time per token + every token written by the target × its time per token. Seconds. Left out, as in the original: queueing, batching, prefill of the chain, the program''s overhead. Our choices: the longest of parallel drafts counts, a discarded lookahead does not, and overlapping times are added. Unfinished, failed or resumed samples have no row; NULL: a speed is unknown';
