"""What earlier runs of a method on a dataset spent on each problem: shards are balanced by it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jobs.run.expected import Recorded
from jobs.run.spec import RunSpec
from warehouse.database import DatabaseError, WarehouseError, reader, rows

_WAIT_SECONDS = 2.0
"""A launch does not wait for a loader: without history shards are balanced by a guess."""
_COVERED = 0.5
"""Share of the problems that runs must know to be believed before less similar ones are looked at."""

# Errors are left out: they say where something broke, not how long a sample is.
_SPENT = """
WITH alike AS (
    SELECT run_id, CASE
        WHEN draft_name IS NOT DISTINCT FROM $draft AND target_name IS NOT DISTINCT FROM $target
            AND token_budget = $token_budget THEN 0
        WHEN draft_name IS NOT DISTINCT FROM $draft AND target_name IS NOT DISTINCT FROM $target THEN 1
        ELSE 2 END AS unlikeness
    FROM run WHERE dataset = $dataset AND method = $method AND engine_kind <> 'scripted'
), spent AS (
    SELECT run_id, sample_id, sum(spent_tokens) AS tokens
    FROM sample_tokens SEMI JOIN alike USING (run_id) GROUP BY ALL
)
SELECT unlikeness, problem.text, avg(spent.tokens)::DOUBLE AS spent_tokens, count(*) AS num_samples
FROM alike JOIN sample USING (run_id) JOIN spent USING (run_id, sample_id) JOIN problem USING (run_id, problem_id)
WHERE stop_reason IS NOT NULL AND stop_reason <> 'error'
GROUP BY ALL ORDER BY ALL
"""


def spent_tokens(database: Path, spec: RunSpec, texts: Sequence[str]) -> dict[str, Recorded]:
    """By the problem's text, what samples of this dataset and method spent; empty where nothing is known.

    Of the runs with the same models and token budget, of those with the same models, and of all, the first that know
    at least half of these problems, else those that know the most. A warehouse that is missing, busy, or of another
    version is no history.
    """
    try:
        return _read(database, spec, texts)
    except (WarehouseError, DatabaseError):
        return {}


def _read(database: Path, spec: RunSpec, texts: Sequence[str]) -> dict[str, Recorded]:
    asked: dict[str, object] = {
        "dataset": spec.dataset,
        "method": spec.method,
        "draft": spec.draft and spec.draft.name,
        "target": spec.target and spec.target.name,
        "token_budget": spec.token_budget,
    }
    wanted = set(texts)
    groups: dict[object, dict[str, Recorded]] = {}
    with reader(database, _WAIT_SECONDS) as connection:
        for row in rows(connection, _SPENT, asked):
            recorded = Recorded(float(str(row["spent_tokens"])), int(str(row["num_samples"])))
            if row["text"] in wanted:
                groups.setdefault(row["unlikeness"], {})[str(row["text"])] = recorded
    return _best(groups, len(wanted))


def _best(groups: Mapping[object, dict[str, Recorded]], num_problems: int) -> dict[str, Recorded]:
    for group in groups.values():
        if len(group) >= _COVERED * num_problems:
            return group
    return max(groups.values(), key=len, default={})
