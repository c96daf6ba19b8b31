"""The latencies of two runs on the same problems, what two runs must share for that, and how repeated runs differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from warehouse.database import Connection, Record, rows
from warehouse.model_columns import model_columns
from warehouse.statistics.intervals import Floats
from warehouse.statistics.ratios import Fractions
from warehouse.statistics.run_factor import RunFactor, run_factor

_ALIKE = (
    "device_kinds",
    "concurrency",
    "samples_in_flight",
    "top_p",
    "token_budget",
    "engine_kind",
    *model_columns("sampling", "template", "thinking_tags", "engine", "dtype", "tensor_parallel", owners=("target",)),
)
"""Not the temperature: SCoT's baseline is greedy. Not the number of devices that the engines hold: with a draft on a
device of its own it is one more, which takes nothing from the target, and the target's width is compared."""
_PAIRS = f"""
WITH conditions AS (SELECT run.*, device_kinds, samples_in_flight FROM run JOIN run_conditions USING (run_id))
SELECT own.x AS own_x, own.y AS own_y, base.x AS base_x, base.y AS base_y
FROM problem_stopwatch AS own JOIN problem_stopwatch AS base USING (problem_id)
JOIN problem AS own_problem ON (own_problem.run_id, own_problem.problem_id) = (own.run_id, own.problem_id)
JOIN problem AS base_problem ON (base_problem.run_id, base_problem.problem_id) = (base.run_id, base.problem_id)
    AND base_problem.content_hash = own_problem.content_hash
JOIN conditions AS own_run ON own_run.run_id = own.run_id
JOIN conditions AS base_run ON base_run.run_id = base.run_id
WHERE own.run_id = $run_id AND base.run_id = $baseline AND own.stopwatch = $stopwatch
    AND base.stopwatch = $of_baseline AND own.x > 0 AND base.x > 0
    AND {" AND ".join(f"own_run.{name} IS NOT DISTINCT FROM base_run.{name}" for name in _ALIKE)}
ORDER BY own.problem_id
"""
"""Problems are the same if id and content are, so that a limited run is paired with a whole one."""


def latencies(
    connection: Connection, run_id: str, baseline: str | None, stopwatch: str, of_baseline: str
) -> tuple[Fractions, Fractions] | None:
    """Return the latencies of a run and of its baseline by definitions of the view `stopwatch`, paired by problem.

    `of_baseline` is the baseline's definition: a paper may divide the time of a sample by that of a thought.
    They are over the problems that both runs timed, which are equal by content. None if there is none, or if the runs
    differ in the devices, or anything else that a ratio of their latencies should not measure.
    """
    stopwatches = {"stopwatch": stopwatch, "of_baseline": of_baseline}
    pairs = rows(connection, _PAIRS, {"run_id": run_id, "baseline": baseline, **stopwatches})
    if not pairs:
        return None
    own_x, own_y, base_x, base_y = (
        np.array([float(str(pair[column])) for pair in pairs]) for column in ("own_x", "own_y", "base_x", "base_y")
    )
    return Fractions(own_x, own_y), Fractions(base_x, base_y)


def alike_but_in_flight(run: Record, baseline: Record) -> bool:
    """Return whether two rows of `warehouse.measured.runs_like` differ in nothing but the samples in flight.

    So it is for latencies that were timed one sample at a time, beside batches of whatever size.
    """
    in_flight = ("concurrency", "samples_in_flight")
    return all(run[name] == baseline[name] for name in _ALIKE if name not in in_flight)


def unlike_baseline(run: Record, baseline: Record, *, across_concurrencies: bool = False) -> list[str]:
    """Return why the latencies of two runs have no ratio, e.g. `its baseline has concurrency 8, not 1`.

    Both are rows of `warehouse.measured.runs_like`. across_concurrencies: whether the ratio is to be that of two
    numbers of samples in flight.
    """
    expected = ("concurrency", "samples_in_flight") if across_concurrencies else ()
    other = run["dataset_hash"] != baseline["dataset_hash"]
    problems = ["its baseline has other problems: ratios are over those that both have"] if other else []
    return problems + [
        f"its baseline has {name.removeprefix('engine_').replace('_', ' ')} {baseline[name]}, not {run[name]}"
        for name in _ALIKE
        if run[name] != baseline[name] and name not in expected
    ]


_NEWEST = 30
"""Runs of one setting that are used, the newest; nights would add up without end."""
_MODELS = ", ".join(
    [
        *model_columns("fingerprint", owners=("draft", "target", "reward", "speculator")),
        *model_columns("adapter.fingerprint", "sampling", "template", "thinking_tags"),
        *model_columns("dtype", "tensor_parallel", "memory", "gpus", "engine"),
    ]
)
_WORK = f"""
    method, params, dataset_hash, samples, temperature, top_p, token_budget, prompt_hash, engine_max_context,
    engine_spec_decode, engine_spec_tokens, engine_spec_sampling, engine_logprobs, engine_take_turns, {_MODELS}
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
SELECT condition, setting, run_id, problem_id,
    ln((timed_seconds / num_timed) / (timed_tokens / num_timed)) AS log_seconds
FROM repeated JOIN problem_total USING (run_id) WHERE timed_seconds > 0 AND timed_tokens > 0
ORDER BY condition, setting, run_id
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
