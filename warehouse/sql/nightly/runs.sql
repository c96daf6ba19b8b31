-- Judged values of runs other than measures. Reruns come last, even if the nodes' clocks differ. In a greedy run, only
-- the first graded sample of each problem counts: the others repeat it, so one change would count several times.

WITH began AS (SELECT run_id, min(started_at) AS started_at FROM attempt GROUP BY run_id),
counted AS (
    SELECT sample_grade.* FROM sample_grade JOIN run USING (run_id)
    QUALIFY NOT run.is_greedy
        OR row_number() OVER (PARTITION BY run_id, problem_id ORDER BY NOT graded, sample_index) = 1
), chance AS (
    SELECT run_id, problem_id, avg((verdict IS NOT DISTINCT FROM 'correct')::INTEGER) AS p, count(*) AS k
    FROM counted GROUP BY ALL
), score AS (
    SELECT run_id, avg(p) AS score, count(*) AS num_problems,
        CASE WHEN min(k) > 1 THEN sum(p * (1 - p) / (k - 1)) / count(*) ** 2 END AS variance
    FROM chance GROUP BY run_id
), verdict AS (
    SELECT run_id, count(*) AS num_samples, count(*) FILTER (NOT graded) AS num_missing,
        count(*) FILTER (NOT finished) AS num_not_run, to_json(histogram(verdict)) AS verdicts
    FROM counted GROUP BY run_id
)
SELECT run.* EXCLUDE num_problems, coalesce(began.started_at, run.created_at) AS began_at, score.* EXCLUDE run_id,
    verdict.* EXCLUDE run_id
FROM run JOIN score USING (run_id) JOIN verdict USING (run_id) LEFT JOIN began USING (run_id)
ORDER BY night IS NOT NULL AND tag <> night::VARCHAR, began_at, run_id
