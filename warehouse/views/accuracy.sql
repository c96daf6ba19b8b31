-- Accuracy. One problem is one observation: its samples are averaged first.

CREATE OR REPLACE VIEW grader_versions AS
SELECT run_id, grader_version, num_grades, num_correct,
    row_number() OVER (PARTITION BY run_id ORDER BY load_order DESC, grader_version DESC) = 1 AS is_newest,
    CASE WHEN getvariable('grader_version') IS NULL THEN is_newest
        ELSE grader_version = getvariable('grader_version') END AS counts
FROM grade_total;
COMMENT ON VIEW grader_versions IS 'The grader versions that graded a run. Only one of them counts in every other view: the newest, or the one that warehouse.query --grader names';

CREATE OR REPLACE VIEW counted_version AS
SELECT run.run_id, version.grader_version
FROM run LEFT JOIN (FROM grader_versions WHERE counts) AS version USING (run_id);
COMMENT ON VIEW counted_version IS 'The grader version whose grades of a run count; NULL: none';

CREATE OR REPLACE VIEW sample_grade AS
SELECT graded_sample.* FROM graded_sample JOIN counted_version AS counted
    ON graded_sample.run_id = counted.run_id AND graded_sample.grader_version IS NOT DISTINCT FROM counted.grader_version;
COMMENT ON VIEW sample_grade IS 'The verdict on every planned sample by the grader version that counts (see grader_versions). A finished sample without a grade by that version is not_run with graded = false';

CREATE OR REPLACE VIEW verdict_counts AS
WITH kind AS (
    SELECT unnest(['correct', 'wrong', 'no_answer', 'unparsable', 'truncated', 'error', 'grader_timeout', 'bad_gold',
        'not_run']) AS verdict
), counted AS (
    SELECT run_id, verdict, count(*) AS num_samples FROM sample_grade GROUP BY run_id, verdict
)
SELECT run.run_id, kind.verdict, coalesce(counted.num_samples, 0) AS num_samples,
    coalesce(counted.num_samples, 0) / (run.num_problems * run.samples) AS share
FROM run CROSS JOIN kind LEFT JOIN counted ON (counted.run_id, counted.verdict) = (run.run_id, kind.verdict);
COMMENT ON VIEW verdict_counts IS 'All nine verdicts of a run, including those with zero samples; they sum to problems × samples';

CREATE OR REPLACE VIEW stop_reasons AS
SELECT run_id, coalesce(stop_reason, 'not_run') AS stop_reason, count(*) AS num_samples,
    count(*) / sum(count(*)) OVER (PARTITION BY run_id) AS share
FROM sample GROUP BY run_id, sample.stop_reason;
COMMENT ON VIEW stop_reasons IS 'Why samples ended; not_run: not finished';

CREATE OR REPLACE VIEW problem_score AS
WITH score AS (
    SELECT run_id, problem_id, count(*) AS num_samples,
        count(*) FILTER (verdict = 'correct') AS num_correct,
        count(*) FILTER (graded) AS num_graded,
        count(*) FILTER (NOT finished) AS num_not_run,
        count(*) FILTER (finished AND NOT graded) AS num_ungraded
    FROM sample_grade GROUP BY run_id, problem_id
)
SELECT run_id, problem_id, problem.level, problem.subject, num_samples, num_correct, num_graded, num_not_run,
    num_ungraded, num_correct / num_samples AS score, num_correct / nullif(num_graded, 0) AS graded_score
FROM score JOIN problem USING (run_id, problem_id);
COMMENT ON VIEW problem_score IS 'Mean over the samples of a problem. score: everything that is not correct counts as 0, including samples that were not run; graded_score: over graded samples only';

CREATE OR REPLACE VIEW pass_at_1 AS
WITH score AS (
    SELECT run_id, count(*) AS n, max(num_samples) AS k,
        avg(score) AS pass_at_1,
        stddev_samp(score) / sqrt(count(*)) AS standard_error,
        sqrt(sum(score * (1 - score) / nullif(num_samples - 1, 0))) / count(*) AS rerun_standard_error,
        avg(graded_score) AS graded_pass_at_1,
        sum(num_samples)::BIGINT AS num_samples,
        sum(num_correct)::BIGINT AS num_correct,
        sum(num_not_run)::BIGINT AS num_not_run,
        sum(num_ungraded)::BIGINT AS num_ungraded
    FROM problem_score GROUP BY run_id
), version AS (
    SELECT run_id, any_value(grader_version) FILTER (counts) AS grader_version, count(*) AS num_grader_versions
    FROM grader_versions GROUP BY run_id
)
SELECT run_id, run.method, run.dataset, n, k, pass_at_1, standard_error,
    greatest(0, pass_at_1 - t_quantile(n - 1) * standard_error) AS low_95,
    least(1, pass_at_1 + t_quantile(n - 1) * standard_error) AS high_95,
    rerun_standard_error, graded_pass_at_1, num_samples, num_correct, num_not_run, num_ungraded,
    version.grader_version, coalesce(version.num_grader_versions, 0) AS num_grader_versions, run.limited
FROM score LEFT JOIN version USING (run_id) JOIN run USING (run_id);
COMMENT ON VIEW pass_at_1 IS 'Mean of the problem means with its standard error over problems and 95 % t interval. Samples that were not run count as not correct and are counted in num_not_run; graded_pass_at_1 leaves them out. rerun_standard_error: standard error over re-runs of the same problems. Grades are those of grader_version, one of num_grader_versions that graded the run';

CREATE OR REPLACE VIEW accuracy_by_level AS
SELECT run_id, level, count(*) AS n, avg(score) AS accuracy,
    stddev_samp(score) / sqrt(count(*)) AS standard_error,
    greatest(0, avg(score) - t_quantile(count(*) - 1) * stddev_samp(score) / sqrt(count(*))) AS low_95,
    least(1, avg(score) + t_quantile(count(*) - 1) * stddev_samp(score) / sqrt(count(*))) AS high_95,
    sum(num_not_run)::BIGINT AS num_not_run
FROM problem_score GROUP BY run_id, level;
COMMENT ON VIEW accuracy_by_level IS 'pass@1 by the benchmark''s difficulty level, with 95 % t interval over problems';
