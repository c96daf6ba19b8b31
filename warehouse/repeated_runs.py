"""Runs that were repeated under the same conditions, and what they show of the run factor."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from warehouse.database import Connection, rows
from warehouse.statistics.intervals import Floats
from warehouse.statistics.run_factor import RunFactor, run_factor

_NEWEST = 30
"""Runs of one setting that are used, the newest; nights would add up without end."""
_WORK = """
    method, params, dataset_hash, samples, draft_fingerprint, target_fingerprint, selection_fingerprint,
    reward_fingerprint, speculator_fingerprint, engine_dtype, temperature, top_p, draft_sampling, target_sampling,
    draft_template, target_template, draft_thinking_tags, target_thinking_tags, token_budget,
    prompt_hash, engine_max_context,
    engine_draft_tensor_parallel, engine_target_tensor_parallel, engine_draft_memory, engine_target_memory,
    engine_spec_decode, engine_spec_tokens, engine_spec_sampling, engine_logprobs, engine_take_turns,
    engine_draft_gpus, engine_target_gpus, engine_draft_arguments, engine_target_arguments
"""
"""Columns of `run` in which runs of one setting agree: everything but seed, tag and time."""
_REPEATED = f"""
WITH processor AS (
    SELECT run_id, list_sort(list(DISTINCT hardware ->> '$.cpu')) AS processors FROM attempt GROUP BY run_id
), member AS (
    SELECT run.run_id, run.created_at,
        hash(device_kinds, processors, engine_kind, run.concurrency, samples_in_flight) AS condition,
        hash(device_kinds, processors, engine_kind, run.concurrency, samples_in_flight, versions::VARCHAR,
            {_WORK.replace("params", "params::VARCHAR")}) AS setting
    FROM run JOIN run_conditions USING (run_id) JOIN processor USING (run_id)
    WHERE device_kinds IS NOT NULL
), unfinished AS (
    SELECT DISTINCT run_id FROM sample WHERE stop_reason IS NULL
), asked AS (
    SELECT run_id AS asked_run_id, condition FROM member WHERE list_contains($run_ids, run_id)
), repeated AS (
    SELECT run_id, condition, setting FROM member ANTI JOIN unfinished USING (run_id)
    WHERE condition IN (SELECT condition FROM asked)
    QUALIFY count(*) OVER (PARTITION BY setting) > 1
        AND row_number() OVER (PARTITION BY setting ORDER BY created_at DESC, run_id) <= {_NEWEST}
)
"""
_CONDITIONS = f"{_REPEATED} SELECT asked_run_id, condition FROM asked"
_TIMES = f"""{_REPEATED}
SELECT condition, setting, run_id, problem_id, ln(latency_seconds / emitted_tokens) AS log_seconds
FROM repeated JOIN problem_speed USING (run_id) ORDER BY condition, setting, run_id
"""


def run_factors(connection: Connection, run_ids: Sequence[str]) -> dict[str, RunFactor]:
    """Return the run factor under the conditions of each run; runs without enough repeated runs are left out.

    The conditions are devices, processors, engine and samples in flight. All settings that were run more than once
    under them count, whatever their method and problems. Unfinished runs do not: a group is compared over the problems
    that all of its runs timed, which a run that has just begun would leave at one.
    """
    parameters: dict[str, object] = {"run_ids": list(run_ids)}
    conditions = {str(row["asked_run_id"]): str(row["condition"]) for row in rows(connection, _CONDITIONS, parameters)}
    factors = {}
    for condition, members in groupby(rows(connection, _TIMES, parameters), key=lambda row: str(row["condition"])):
        groups = [_group(list(group)) for _, group in groupby(members, key=lambda row: row["setting"])]
        factors[condition] = run_factor(groups)
    found = {run_id: factors.get(condition) for run_id, condition in conditions.items()}
    return {run_id: factor for run_id, factor in found.items() if factor is not None}


def _group(members: Sequence[dict[str, object]]) -> Floats:
    """Return the times (runs, problems) of a setting's runs, over the problems that all of them timed."""
    times: dict[str, dict[str, float]] = {}
    for row in members:
        times.setdefault(str(row["run_id"]), {})[str(row["problem_id"])] = float(str(row["log_seconds"]))
    shared = sorted(set.intersection(*(set(problems) for problems in times.values())))
    return np.array([[problems[name] for name in shared] for problems in times.values()])
