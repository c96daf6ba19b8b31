-- Accuracy. One problem is one observation: its samples are averaged first.

CREATE OR REPLACE VIEW counted_version AS
SELECT run.run_id, CASE WHEN getvariable('grader_version') IS NULL
    THEN arg_max(grader_version, {'load_order': load_order, 'grader_version': grader_version})
    ELSE max(grader_version) FILTER (grader_version = getvariable('grader_version')) END AS grader_version
FROM run LEFT JOIN (FROM grade_total WHERE grader_version IS NOT NULL) AS version USING (run_id) GROUP BY run.run_id;
COMMENT ON VIEW counted_version IS 'The grader version used for a run by every other view: the newest, or the one given with --grader; NULL: none';

CREATE OR REPLACE VIEW sample_grade AS
SELECT graded_sample.* FROM graded_sample JOIN counted_version AS counted
    ON graded_sample.run_id = counted.run_id AND graded_sample.grader_version IS NOT DISTINCT FROM counted.grader_version;
COMMENT ON VIEW sample_grade IS 'The verdict on every planned sample by the selected grader version (see counted_version). A finished sample without a grade by that version is not_run with graded = false';

CREATE OR REPLACE VIEW verdict_counts AS
WITH kind AS (
    SELECT unnest(['correct', 'wrong', 'no_answer', 'unparsable', 'truncated', 'error', 'grader_timeout', 'bad_gold',
        'not_run']) AS verdict
), counted AS (
    SELECT run_id, verdict, count(*) AS num_samples FROM sample_grade GROUP BY run_id, verdict
)
SELECT run.run_id, kind.verdict, coalesce(counted.num_samples, 0) AS num_samples,
    coalesce(counted.num_samples, 0) / sum(coalesce(counted.num_samples, 0)) OVER (PARTITION BY run.run_id) AS share
FROM run CROSS JOIN kind LEFT JOIN counted ON (counted.run_id, counted.verdict) = (run.run_id, kind.verdict);
COMMENT ON VIEW verdict_counts IS 'All nine verdicts of a run, including those with zero samples; they sum to the planned samples: problems × samples';

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
COMMENT ON VIEW problem_score IS 'Mean over the samples of a problem. score: every sample that is not correct counts as 0, including samples that were not run; graded_score: over graded samples only';

CREATE OR REPLACE VIEW counted_estimate AS
SELECT estimate.run_id, baseline_run_id, estimate.grader_version, measure AS metric, role, k, group_kind, group_value, n,
    families, num_samples, missing, value AS estimate, num, den, estimate.unit, own.standard_error, own.low AS low_95,
    own.high AS high_95, own.p, own.method AS interval_kind, again.standard_error AS rerun_standard_error, run_factor
FROM estimate JOIN measure ON measure.name = measure JOIN counted_version AS counted ON counted.run_id = estimate.run_id
    AND (NOT is_graded OR estimate.grader_version IS NOT DISTINCT FROM counted.grader_version)
JOIN (FROM interval WHERE question = 'like these problems') AS own ON own.estimate = id
LEFT JOIN (FROM interval WHERE question = 'these problems') AS again ON again.estimate = id;
COMMENT ON VIEW counted_estimate IS 'Every metric of a run with its 95 % interval over problems, by the selected grader version (see counted_version). rerun_standard_error: over reruns of the same problems';

CREATE OR REPLACE VIEW pass_at_1 AS
WITH version AS (
    SELECT run_id, count(grader_version) AS num_grader_versions FROM grade_total GROUP BY run_id
)
SELECT run_id, run.method, run.dataset, own.n, own.k, own.estimate AS pass_at_1, own.standard_error,
    own.low_95, own.high_95, own.rerun_standard_error, graded.estimate AS graded_pass_at_1,
    total.num_samples, num_correct, num_not_run, num_ungraded, own.grader_version, num_grader_versions, run.limited,
    own.interval_kind, graded.low_95 AS graded_low_95, graded.high_95 AS graded_high_95
FROM (FROM counted_estimate WHERE metric = 'pass_at_1') AS own
LEFT JOIN (FROM counted_estimate WHERE metric = 'graded_pass_at_1') AS graded USING (run_id)
JOIN version USING (run_id) JOIN run USING (run_id)
JOIN grade_total AS total ON total.run_id = own.run_id AND total.grader_version IS NOT DISTINCT FROM own.grader_version;
COMMENT ON VIEW pass_at_1 IS 'Mean of the problem means with its standard error over problems and 95 % interval, as in summaries, comparisons and reports (interval_kind is its method). Missing samples (num_not_run, num_ungraded) count as incorrect: pass_at_1 is then a lower bound without standard error and interval. graded_pass_at_1 leaves them out. rerun_standard_error: standard error over reruns of the same problems. Grades are by grader_version, one of num_grader_versions that graded the run';
