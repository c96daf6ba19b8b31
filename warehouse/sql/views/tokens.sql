-- Tokens by model. Emitted, spent and critical-path tokens are always reported together.

CREATE OR REPLACE VIEW token_split AS
WITH own AS (
    SELECT run_id, role AS model, any_value(den)::BIGINT AS num_samples,
        map_from_entries(list((measure, num))) AS total, map_from_entries(list((measure, value))) AS per_sample
    FROM estimate WHERE role IS NOT NULL GROUP BY run_id, role
)
SELECT run_id, model, num_samples, total['emitted_tokens']::BIGINT AS emitted_tokens,
    total['spent_tokens']::BIGINT AS spent_tokens, total['critical_path_tokens']::BIGINT AS critical_path_tokens,
    per_sample['emitted_tokens'] AS emitted_tokens_per_sample, per_sample['spent_tokens'] AS spent_tokens_per_sample,
    per_sample['critical_path_tokens'] AS critical_path_tokens_per_sample,
    emitted_tokens / nullif(sum(emitted_tokens) OVER same_run, 0) AS emitted_share,
    spent_tokens / nullif(sum(spent_tokens) OVER same_run, 0) AS spent_share,
    critical_path_tokens / nullif(sum(critical_path_tokens) OVER same_run, 0) AS critical_path_share
FROM own
WINDOW same_run AS (PARTITION BY run_id);
COMMENT ON VIEW token_split IS 'Emitted, spent and critical-path tokens by model: totals, per finished sample, and share of the run';
