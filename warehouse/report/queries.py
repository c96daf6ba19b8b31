"""The statements behind the figures. The page shows each of them, ready to be pasted into `warehouse.query`.

Every statement is about all runs of the report, `$run_ids`. Estimates with intervals are rows of the table `estimate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from warehouse.database import literal

if TYPE_CHECKING:
    from warehouse.report.facts import RunFacts

_RUNS = "(SELECT unnest($run_ids))"
ACCURACY = f"""
SELECT run_id, method, n, k, graded_pass_at_1, graded_low_95, graded_high_95, pass_at_1, low_95, high_95,
    num_not_run, num_ungraded, grader_version
FROM pass_at_1 WHERE run_id IN {_RUNS} ORDER BY run_id
"""
FALLBACK = f"""
SELECT run_id, estimate AS value, n, low_95 AS low, high_95 AS high FROM counted_estimate
WHERE metric = 'fallback_rate' AND run_id IN {_RUNS} ORDER BY run_id
"""
TRADE_OFF = f"""
SELECT run_id, graded_pass_at_1, graded_low_95, graded_high_95, latency.estimate AS mean_seconds,
    latency.n AS num_timed, latency.low_95 AS mean_seconds_low_95, latency.high_95 AS mean_seconds_high_95
FROM pass_at_1 JOIN (FROM counted_estimate WHERE metric = 'latency_seconds') AS latency USING (run_id)
WHERE run_id IN {_RUNS} ORDER BY run_id
"""
TOKENS = f"""
SELECT run_id, model, emitted_tokens_per_sample, spent_tokens_per_sample, critical_path_tokens_per_sample
FROM token_split WHERE run_id IN {_RUNS} ORDER BY run_id, model
"""
DISTANCE = f"""
SELECT run_id, nats_per_token, nats_per_token_low_95, nats_per_token_high_95, num_samples, baseline_run_id, n, distance,
    distance_low_95, distance_high_95
FROM distance_from_target WHERE run_id IN {_RUNS} ORDER BY run_id, baseline_run_id
"""
ABSURDITY = f"""
SELECT run_id, num_steps, num_tokens, num_absurd_steps, absurd_steps_per_thousand_tokens, most_nats
FROM absurdity WHERE run_id IN {_RUNS} ORDER BY run_id
"""
ABSURD_STEPS = f"""
SELECT run_id, problem_id, sample_index, step_index, author, role, num_tokens, nats_per_token, most_nats
FROM scored_step WHERE most_nats >= $nats AND run_id IN {_RUNS}
ORDER BY most_nats DESC, run_id, problem_id, sample_index, step_index LIMIT 20
"""


def behind(statement: str, runs: Sequence[RunFacts]) -> str:
    """Return a statement with its runs written into it."""
    run_ids = ", ".join(literal(run.summary.run_id) for run in runs)
    return statement.strip().replace("$run_ids", f"[{run_ids}]")
