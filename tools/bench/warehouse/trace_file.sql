-- A synthetic trace file with the samples [$first, $last) of a run, in the columns and types of jobs.run.trace_files.TRACES.
-- Every random value is a hash of its key, so the same arguments write the same rows on any machine.
COPY (
WITH sample AS (
    SELECT place::BIGINT AS place, place % $num_problems AS problem, place // $num_problems AS sample_index,
        substr(md5($run || ':' || place), 1, 16) AS sample_id,
        uniform($dataset || problem, 'difficulty') AS difficulty,
        CASE WHEN $mean_steps <= 2 THEN $mean_steps ELSE greatest($least_steps, least(200, round($mean_steps
            * exp(0.6 * normal($run || place, 'steps') - 0.18)))) END::INTEGER
            AS num_steps
    FROM range($first, $last) AS range(place)
), placed AS (
    SELECT sample.*, unnest(range(num_steps))::INTEGER AS i, $run || ':' || place || ':' || i AS key FROM sample
), decided AS (
    SELECT placed.*,
        CASE
            WHEN $method = 'vanilla' THEN 'chain'
            WHEN $method = 'speccot' AND i = 0 THEN 'guidance'
            WHEN $method IN ('speccot', 'scot') AND i = num_steps - 1 THEN 'answer'
            WHEN uniform(key, 'accepted') < 0.92 - 0.5 * difficulty THEN 'draft'
            WHEN $method = 'scot' THEN 'rethink'
            ELSE 'fallback'
        END AS role,
        role = 'draft' AS accepted, role IN ('draft', 'fallback', 'rethink') AS judged,
        greatest(3, $mean_tokens * exp(0.6 * normal(key, 'tokens') - 0.18))::INTEGER AS num_tokens,
        floor(3 * uniform(key, 'chosen'))::INTEGER % $drafts AS chosen,
        CASE WHEN accepted THEN 7 + floor(3 * uniform(key, 'digit')) ELSE floor(7 * uniform(key, 'digit')) END::INTEGER
            AS digit
    FROM placed
), written AS (
    SELECT decided.*,
        repeat(opening.text || ' ' || hash(key, 'number') % 100000 || ' ' || ending.text, $repeats)
            || CASE WHEN num_steps > 1 AND i = num_steps - 2 THEN '</think>' ELSE '' END AS text
    FROM decided
    JOIN phrase AS opening ON opening.id = hash(key, 'opening') % 4096
    JOIN phrase AS ending ON ending.id = hash(key, 'ending') % 4096
), proposed AS (
    SELECT written.*,
        CASE WHEN judged THEN list_transform(range($drafts), lambda c: struct_pack(
            text := CASE WHEN accepted AND c = chosen THEN text ELSE c || substr(text, 2 + c::INTEGER) || c END,
            num_tokens := (num_tokens + c)::INTEGER, finish := 'stop', mean_logprob := -uniform(key, 'logprob'),
            option := c::INTEGER, accepted := accepted AND c = chosen)) ELSE [] END AS candidates,
        CASE WHEN NOT judged THEN NULL
            WHEN $method = 'specreason' THEN struct_pack(
                kind := 'score', question := $question, options := ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9'],
                logprobs := list_transform(range(10), lambda j: -0.9 - 0.7 * abs(j - digit) - 0.6 * uniform(key, j)),
                decision := digit, score := digit::DOUBLE, accepted := accepted, model := 'target')
            ELSE struct_pack(
                kind := 'choice', question := $question || text, options := ['1', '2', '3', '4', '5', '6'][:$drafts + 1],
                logprobs := list_transform(range($drafts + 1), lambda j:
                    -0.4 - 1.5 * (j <> CASE WHEN accepted THEN chosen ELSE $drafts END)::INTEGER - uniform(key, j)),
                decision := CASE WHEN accepted THEN chosen ELSE $drafts END::INTEGER, score := NULL::DOUBLE,
                accepted := accepted, model := 'target')
        END AS verdict
    FROM written
), timed AS (
    SELECT proposed.*, 1700000000.0 + place * 40 + i * 2.0 AS moment,
        CASE WHEN judged THEN list_concat(
            [call_of('draft', 'draft', i, $drafts, num_tokens * $drafts, num_tokens + 2, moment, 0.6)],
            [call_of('verdict', 'target', i, 1, 1, 1, moment + 0.6, 0.1)],
            CASE WHEN accepted THEN [] ELSE [call_of(role, 'target', i, 1, num_tokens, num_tokens, moment + 0.7, 1.2)] END)
        ELSE [call_of(role, 'target', i, 1, num_tokens, num_tokens, moment, 1.2)] END AS calls
    FROM proposed
)
SELECT sample_id, 'synthetic/' || problem AS problem_id, sample_index::INTEGER AS sample_index, place AS seed,
    min(moment) AS started_at, 'draft prompt <think>' AS draft_prompt, 'target prompt <think>' AS target_prompt,
    list(struct_pack(
        author := CASE WHEN accepted THEN 'draft' ELSE 'target' END, role := role, text := text,
        num_tokens := num_tokens, token_ids := list_transform(range(num_tokens), lambda t: ((t * 7919 + i) % 150000)::INTEGER),
        finish := 'stop', candidates := candidates, verdicts := CASE WHEN verdict IS NULL THEN [] ELSE [verdict] END, elapsed_seconds := i * 2.0,
        decision := NULL::STRUCT(kind VARCHAR, value DOUBLE, threshold DOUBLE, accepted BOOLEAN, accepts_below BOOLEAN)) ORDER BY i) AS steps,
    flatten(list(calls ORDER BY i)) AS calls,
    CASE WHEN uniform(sample_id, 'stop') < 0.97 THEN 'answered' ELSE 'budget' END AS stop_reason,
    NULL::VARCHAR AS error, num_steps * 2.0 + 0.5 AS latency_seconds, 1::INTEGER AS num_attempts
FROM timed GROUP BY ALL ORDER BY min(place)
) TO $file (FORMAT parquet, COMPRESSION zstd, KV_METADATA {attempt: '{attempt}', format: '{format}'});
