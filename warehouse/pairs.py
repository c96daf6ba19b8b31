"""The latencies of two runs on the same problems, and what two runs must share for that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from warehouse.database import Connection, rows
from warehouse.statistics.ratios import Fractions

_ALIKE = (
    "device_kinds",
    "concurrency",
    "samples_in_flight",
    "top_p",
    "target_sampling",
    "target_template",
    "target_thinking_tags",
    "engine_target_arguments",
    "token_budget",
    "engine_kind",
    "engine_dtype",
    "engine_target_tensor_parallel",
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


def alike_but_in_flight(run: Mapping[str, object], baseline: Mapping[str, object]) -> bool:
    """Return whether two rows of `warehouse.measures.runs_like` differ in nothing but the samples in flight.

    So it is for latencies that were timed one sample at a time, beside batches of whatever size.
    """
    in_flight = ("concurrency", "samples_in_flight")
    return all(run[name] == baseline[name] for name in _ALIKE if name not in in_flight)


def unlike_baseline(
    run: Mapping[str, object], baseline: Mapping[str, object], *, across_concurrencies: bool = False
) -> list[str]:
    """Return why the latencies of two runs have no ratio, e.g. `its baseline has concurrency 8, not 1`.

    Both are rows of `warehouse.measures.runs_like`. across_concurrencies: whether the ratio is to be that of two
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
