"""Tokens that earlier runs of a method spent on each problem of a dataset; used to balance shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.engines import registry
from jobs.run.expected import Recorded
from jobs.run.spec import RunSpec
from warehouse.database import DatabaseError, WarehouseError, reader, rows

_WAIT_SECONDS = 2.0
"""A launch does not wait for a loader; without history the sizes of samples are guessed."""
_COVERED = 0.5
"""Share of the problems that similar runs must cover; otherwise less similar runs are considered too."""

# Failed samples are left out: their length says where something broke, not how long a sample is.
_SPENT = """
WITH similar_run AS (
    SELECT run_id, CASE
        WHEN draft_name IS NOT DISTINCT FROM $draft AND target_name IS NOT DISTINCT FROM $target
            AND token_budget = $token_budget THEN 0
        WHEN draft_name IS NOT DISTINCT FROM $draft AND target_name IS NOT DISTINCT FROM $target THEN 1
        ELSE 2 END AS dissimilarity
    FROM run WHERE dataset = $dataset AND method = $method AND engine_kind NOT IN $uncounted
), spent AS (
    SELECT run_id, sample_id, sum(spent_tokens) AS tokens
    FROM sample_tokens SEMI JOIN similar_run USING (run_id) GROUP BY ALL
)
SELECT dissimilarity, problem.text, avg(spent.tokens)::DOUBLE AS spent_tokens, count(*) AS num_samples
FROM similar_run JOIN sample USING (run_id) JOIN spent USING (run_id, sample_id) JOIN problem USING (run_id, problem_id)
WHERE stop_reason IS NOT NULL AND stop_reason <> 'error'
GROUP BY ALL ORDER BY ALL
"""


def spent_tokens(database: Path, spec: RunSpec, texts: Sequence[str]) -> dict[str, Recorded]:
    """Return the tokens that samples of this dataset and method spent, by the text of the problem.

    Three groups of runs are considered in turn: those with the same models and token budget, those with the same models
    and the others. The first group that covers at least half of the problems is used, otherwise the one that covers the
    most. Empty where there are none, and where the database is missing, locked or of another version.
    """
    try:
        return _read(database, spec, texts)
    except (WarehouseError, DatabaseError):
        return {}


def _read(database: Path, spec: RunSpec, texts: Sequence[str]) -> dict[str, Recorded]:
    parameters: dict[str, object] = {
        "dataset": spec.dataset,
        "method": spec.method,
        "uncounted": registry.uncounted(),
        "draft": spec.draft and spec.draft.name,
        "target": spec.target and spec.target.name,
        "token_budget": spec.token_budget,
    }
    planned = set(texts)
    groups: dict[object, dict[str, Recorded]] = {}
    with reader(database, _WAIT_SECONDS) as connection:
        for row in rows(connection, _SPENT, parameters):
            recorded = Recorded(float(str(row["spent_tokens"])), int(str(row["num_samples"])))
            if row["text"] in planned:
                groups.setdefault(row["dissimilarity"], {})[str(row["text"])] = recorded
    return _best(groups, len(planned))


def _best(groups: Mapping[object, dict[str, Recorded]], num_problems: int) -> dict[str, Recorded]:
    for group in groups.values():
        if len(group) >= _COVERED * num_problems:
            return group
    return max(groups.values(), key=len, default={})
