-- Code versions of a run.

CREATE OR REPLACE VIEW run_code AS
WITH used AS (
    SELECT run_id, attempt_id, code_hash, git_commit, started_at FROM attempt
    UNION ALL
    SELECT run_id, NULL, unnest(from_json(other_codes, '["VARCHAR"]')), NULL, NULL FROM attempt
), finished AS (
    SELECT run_id, attempt_id, count(*) AS num_samples FROM sample WHERE stop_reason IS NOT NULL GROUP BY ALL
)
SELECT run_id, code_hash,
    string_agg(DISTINCT regexp_replace(git_commit, '^([0-9a-f]{12})[0-9a-f]*', '\1'), ', ') AS git_commits,
    min(started_at) AS first_used_at,
    coalesce(sum(num_samples), 0)::BIGINT AS num_samples,
    count(*) OVER (PARTITION BY run_id) > 1 AS is_mixed
FROM used LEFT JOIN finished USING (run_id, attempt_id) GROUP BY run_id, code_hash;
COMMENT ON VIEW run_code IS 'Code versions of a run: a row per hash of the code that affects results, with its commits, its first attempt and the samples that it completed. is_mixed: the code changed during the run (--accept-code-change), and a sample may have steps of both versions';
