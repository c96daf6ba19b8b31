-- The papers' definitions of latency, applied to our traces. View `stopwatch`: definitions; the other views: values. A
-- problem's value is x / y, a run's is sum(x) / sum(y) over its problems, so two runs can be paired by problem.

CREATE OR REPLACE VIEW stopwatch AS
SELECT * FROM (VALUES
    (1, 'measured', 'measured', 's/sample', false,
        'Wall time of a sample from its first request to its end; mean over the samples of a problem, then over problems',
        'This harness. SpecCoT prints seconds per problem too (tables 1, 2 and 4) and does not say how they were measured',
        'Failed, unfinished and resumed samples'),
    (2, 'specreason', 'SpecReason', 's/sample', false,
        'Modelled: every drafted and every regenerated token × its model''s time per token, plus the prefill of every verdict; for a model alone, time to first token plus all tokens × time per token (view modelled_latency)',
        'ruipeterpan/specreason, issue 8, the author''s comment of 2025-10-02; the program (8c5ee05) measures no times',
        'Queueing, batching, prefill of the chain, the program''s own time. Failed, unfinished and resumed samples'),
    (3, 'scot', 'SCoT', 's/sample', false,
        'Wall time of a sample without its final answer',
        'Jikai0Wang/Speculative_CoT a2e1173: speculative_cot.py lines 217-222 and 255-269, base.py lines 106-110; SCoT, table 1 and section 4.2',
        'The final answer. The paper''s program serves one problem at a time at temperature 0. Failed, unfinished and resumed samples'),
    (4, 'relaygen', 'RelayGen', 's/sample', false,
        'Wall time of a sample; mean over the samples of a problem without the fastest and the slowest where there are three or more, then over problems',
        'jiwonsong-dev/RelayGen c36cc71: measure_latency.py lines 74-80, 184-190 and 288-289',
        'All problems but one: the program measures one problem, by default the first, three times. Here, every problem is measured. Failed, unfinished and resumed samples'),
    (5, 'glimprouter', 'GlimpRouter', 's/problem', false,
        'Wall time of all samples of a problem one after the other; mean over problems. Samples finished by an earlier attempt at a shard add 0 s',
        'Zengwh02/GlimpRouter 686838e: src/main.py lines 99-138; src/glimp_router.py, the return at the start of glimprouter() where the result file exists',
        'Time of interrupted attempts. The paper''s program also runs the target alone through the loop, whose glimpses count as time but not as tokens. No value for a run with unfinished samples'),
    (6, 'rsd', 'RSD', 's/run', false,
        'One clock for the whole set: from a worker''s first request to the end of its last, summed over workers',
        'BaohaoLiao/RSD 933d8e5: main_online.py lines 368 and 448; the target alone: external/qwen25_math_evaluation/math_eval.py lines 251 and 349',
        'Only the start of the engines; the paper''s program advances all problems in lock-step batches. No value for a run with unfinished or resumed samples, for which the program times only the remaining samples (lines 91-109)'),
    (7, 'lookahead', 'LookaheadReasoning', 'tokens/s', true,
        'Emitted tokens of a sample divided by its wall time, which includes the judge; mean over the samples of a problem, then over problems',
        'hao-ai-lab/LookaheadReasoning c826d03: src/lr.py lines 107, 219 and 235; report_prefix.py lines 28-30',
        'The length of the chain: a method that thinks twice as long at the same rate counts as equally fast. Failed, unfinished and resumed samples'),
    (8, 'speculative_thinking', 'Speculative Thinking', 'tokens/s', true,
        'All emitted tokens over all wall time: long chains weigh more than in a mean over problems',
        'uservan/speculative_thinking 98310f3: explore/show.ipynb, check_results; speculative/speculative_thinking.py lines 51-61',
        'The length of the chain. Failed, unfinished and resumed samples'),
    (9, 'splitreason', 'SplitReason', 's/token', false,
        'Wall time of a sample per emitted token; prompt tokens count too unless one model writes alone; mean over the samples of a problem, then over problems',
        'abdelfattah-lab/SplitReason f87cddb: modes/speculative_reasoning.py lines 106 and 321-323, modes/big_model_only.py lines 57-60. Its files do not show how it averages over questions; a mean is assumed',
        'The length of the chain. A baseline''s prompt. Failed, unfinished and resumed samples')
) AS definition(place, stopwatch, title, unit, is_rate, definition, source, leaves_out);
COMMENT ON VIEW stopwatch IS 'Definitions of latency, one per published program: unit, source (program, commit, file and line, or the author''s statement) and what each leaves out. is_rate: higher is faster';

CREATE OR REPLACE VIEW problem_stopwatch AS
WITH answer AS (
    SELECT run_id, sample_id, sum(seconds) AS seconds FROM sample_answer GROUP BY ALL
), sample_value AS (
    SELECT timed.run_id, timed.problem_id, latency_seconds AS measured, modelled_seconds AS specreason,
        greatest(latency_seconds - coalesce(answer.seconds, 0), 0) AS scot, timed.emitted_tokens,
        timed.emitted_tokens / nullif(latency_seconds, 0) AS lookahead,
        latency_seconds / nullif(timed.emitted_tokens
            + CASE WHEN run.method IN ('vanilla', 'specdecode') THEN 0 ELSE call.prompt_tokens END, 0) AS splitreason
    FROM timed_sample AS timed JOIN run USING (run_id)
    LEFT JOIN modelled_latency AS modelled USING (run_id, sample_id)
    LEFT JOIN answer USING (run_id, sample_id)
    LEFT JOIN (FROM call WHERE call_index = 0) AS call USING (run_id, sample_id)
), value AS (
    SELECT run_id, problem_id, count(*) AS num_samples,
        avg(measured) AS measured, sum(measured) AS seconds, sum(emitted_tokens) AS tokens,
        CASE WHEN count(specreason) = count(*) THEN avg(specreason) END AS specreason,
        avg(scot) AS scot, avg(lookahead) AS lookahead, avg(splitreason) AS splitreason,
        CASE WHEN count(*) >= 3 THEN (sum(measured) - min(measured) - max(measured)) / (count(*) - 2)
            ELSE avg(measured) END AS relaygen
    FROM sample_value GROUP BY run_id, problem_id
), last_attempt AS (
    SELECT run_id, sample.shard, max_by(attempt_id, attempt.started_at) AS attempt_id
    FROM sample JOIN attempt USING (run_id, attempt_id) GROUP BY ALL
), whole AS (
    SELECT run_id FROM sample GROUP BY run_id HAVING bool_and(stop_reason IS NOT NULL)
), serial AS ( -- samples finished by an earlier attempt add 0 s, as in a program that finds them in a file
    SELECT sample.run_id, problem_id, count(*) AS num_samples,
        sum(CASE WHEN sample.attempt_id <> last_attempt.attempt_id THEN 0 ELSE latency_seconds END) AS seconds
    FROM sample SEMI JOIN whole USING (run_id)
    LEFT JOIN last_attempt ON (last_attempt.run_id, last_attempt.shard) = (sample.run_id, sample.shard)
    GROUP BY ALL
), problem_value AS (
    SELECT run_id, problem_id, num_samples, stopwatch, x, 1.0 AS y
    FROM value UNPIVOT (x FOR stopwatch IN (measured, specreason, scot, relaygen, lookahead, splitreason))
    UNION ALL
    SELECT run_id, problem_id, num_samples, 'speculative_thinking', tokens, seconds FROM value WHERE seconds > 0
    UNION ALL
    SELECT run_id, problem_id, num_samples, 'glimprouter', seconds, 1.0 FROM serial
)
SELECT run_id, stopwatch, problem_id, num_samples, x, y, x / y AS value FROM problem_value;
COMMENT ON VIEW problem_stopwatch IS 'Every problem of a run by the definitions of latency that can be paired by problem; a run''s value is sum(x) / sum(y). The view stopwatch has the definitions; RSD''s has one value per run and none per problem';

CREATE OR REPLACE VIEW run_stopwatch AS
WITH clock AS ( -- only runs without unfinished or resumed samples, because the clock must cover the whole set
    SELECT run_id, epoch(max(last_ended_at) - min(first_submitted_at)) AS seconds
    FROM call_total SEMI JOIN (
        SELECT run_id FROM sample GROUP BY run_id
        HAVING bool_and(stop_reason IS NOT NULL) AND NOT bool_or(coalesce(num_attempts > 1, false))
    ) AS whole USING (run_id)
    GROUP BY run_id, attempt_id
), value AS (
    SELECT run_id, stopwatch, count(*) AS n, sum(num_samples)::BIGINT AS num_samples, sum(x) / sum(y) AS value
    FROM problem_stopwatch GROUP BY run_id, stopwatch
    UNION ALL
    SELECT run_id, 'rsd', NULL, any_value(num_problems * samples), sum(seconds)
    FROM clock JOIN run USING (run_id) GROUP BY run_id
)
SELECT run_id, stopwatch, n, num_samples, value, stopwatch.unit, stopwatch.is_rate, run_conditions.regime
FROM value JOIN stopwatch USING (stopwatch) JOIN run_conditions USING (run_id);
COMMENT ON VIEW run_stopwatch IS 'Every run by every definition of latency, over n problems; n is NULL for RSD''s single clock. A run without a row for a definition has no such value, for example because it was interrupted';
