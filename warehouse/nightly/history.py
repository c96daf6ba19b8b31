"""Read nights from the warehouse: which runs belong to which cell and night."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta

import numpy as np

from warehouse.comparison.manifests import Manifest, read_manifests
from warehouse.database import Connection, rows
from warehouse.nightly.cells import Batch, CellNight

NIGHT_BEGINS_HOUR = 12
"""UTC hour at which a night begins. Runs that start before and after midnight belong to one night, named by the date of
its evening. A run whose tag begins with a date belongs to that night, however long it was queued. Where a database has
such runs (`jobs nightly` makes them), no other run belongs to any night: it was launched in between, for another end.
"""
Conditions = tuple[dict[str, str], dict[str, str]]
"""Environment and inputs of a run; runs with equal ones share the object."""
_DATED = r"\d{4}-\d{2}-\d{2}"

_RUNS = """
WITH began AS (SELECT run_id, min(started_at) AS started_at FROM attempt GROUP BY run_id),
score AS (
    SELECT run_id, list(num_correct ORDER BY problem_index) AS correct,
        list(num_samples ORDER BY problem_index) AS samples
    FROM problem_score JOIN problem USING (run_id, problem_id) GROUP BY run_id
), verdict AS (
    SELECT run_id, count(*) FILTER (NOT graded) AS num_missing, to_json(histogram(verdict)) AS verdicts
    FROM sample_grade GROUP BY run_id
)
SELECT run.*, coalesce(began.started_at, run.created_at) AS began_at, score.correct, score.samples,
    verdict.num_missing, verdict.verdicts
FROM run JOIN score USING (run_id) JOIN verdict USING (run_id) LEFT JOIN began USING (run_id)
ORDER BY began_at, run_id
"""
_GREEDY_TOKENS = """
SELECT run_id, avg(emitted_tokens) AS emitted_tokens FROM timed_sample
WHERE run_id IN (SELECT run_id FROM run WHERE temperature = 0) GROUP BY run_id
"""
_GRADED = """
SELECT run_id, count(*) FILTER (finished AND graded) AS num_graded FROM sample_grade
WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) GROUP BY run_id
"""
_CELL = ("dataset", "method", "params", "draft_name", "target_name", "temperature", "top_p", "token_budget")
_INPUTS = ("prompts", "problems")
_NOT_ENVIRONMENT = (*_INPUTS, "samples per problem")


def read_nights(connection: Connection, since: date | None = None) -> list[list[CellNight]]:
    """Return every night with its cells, oldest first; nights before `since` are left out.

    Where runs are tagged with dates, only those count.
    """
    runs = rows(connection, _RUNS)
    if any(_tagged(row) for row in runs):
        runs = [row for row in runs if _tagged(row)]
    manifests = read_manifests(connection, [str(row["run_id"]) for row in runs])
    is_greedy = any(row["temperature"] == 0 for row in runs)
    tokens = {row["run_id"]: row["emitted_tokens"] for row in (rows(connection, _GREEDY_TOKENS) if is_greedy else [])}
    nights: dict[date, dict[str, list[Mapping[str, object]]]] = {}
    for row in runs:
        night = _night(row)
        if since is None or night >= since:
            nights.setdefault(night, {}).setdefault(cell_of(row), []).append(
                row | {"tokens": tokens.get(row["run_id"])}
            )
    conditions = {run_id: (_environment(manifest), _inputs(manifest)) for run_id, manifest in manifests.items()}
    shared: dict[str, Conditions] = {}
    conditions = {run_id: shared.setdefault(repr(found), found) for run_id, found in conditions.items()}
    return [
        [_cell_night(cell, night, cell_runs, conditions) for cell, cell_runs in cells.items()]
        for night, cells in sorted(nights.items())
    ]


def _night(row: Mapping[str, object]) -> date:
    return _tagged(row) or night_of(row["began_at"])


def _tagged(row: Mapping[str, object]) -> date | None:
    """Return the date that a run's tag begins with; None where it begins with none."""
    tagged = re.match(_DATED, str(row["tag"] or ""))
    try:
        return date.fromisoformat(tagged[0]) if tagged else None
    except ValueError:  # such as 2026-02-30
        return None


def num_graded(connection: Connection, run_ids: Sequence[str]) -> dict[str, int]:
    """Return how many samples of runs are finished and graded, by run id; unknown runs are left out."""
    return {
        str(row["run_id"]): int(str(row["num_graded"])) for row in rows(connection, _GRADED, {"run_ids": list(run_ids)})
    }


def night_of(began_at: object) -> date:
    """Return the night that a UTC time belongs to."""
    assert isinstance(began_at, datetime)
    return (began_at - timedelta(hours=NIGHT_BEGINS_HOUR)).date()


def cell_of(row: Mapping[str, object]) -> str:
    """Return the name of the cell that a row of `run` belongs to: everything that repeats nightly, without the seed."""
    dataset, method, params, draft, target, temperature, top_p, budget = (row[name] for name in _CELL)
    values = json.loads(str(params))
    models = " → ".join(str(model) for model in (draft, target) if model is not None)
    models += f" with {row['selection_name']}" if row.get("selection_name") else ""
    shown = f" ({', '.join(f'{name} {values[name]}' for name in sorted(values))})" if values else ""
    return f"{dataset} {method}{shown}, {models}, temperature {temperature:g}, top-p {top_p:g}, budget {budget}"


def _cell_night(
    cell: str, night: date, runs: Sequence[Mapping[str, object]], conditions: Mapping[str, Conditions]
) -> CellNight:
    first, *others = (_batch(row) for row in runs)
    of_first = conditions[first.run_id]
    reruns = [batch for batch in others if conditions[batch.run_id] == of_first]
    return CellNight(cell, night, first, tuple(reruns), *of_first)


def _environment(manifest: Manifest) -> dict[str, str]:
    """Return the conditions that affect a result and that the cell does not name, including model files."""
    names = _affecting_results(manifest) | {"draft files", "target files", "selection adapter"}
    return {name: manifest.values[name] for name in sorted(names)}


def _affecting_results(manifest: Manifest) -> set[str]:
    matters = ("accuracy", "latency", "accuracy and latency")
    return {name for name, matter in manifest.matters.items() if matter in matters and name not in _NOT_ENVIRONMENT}


def _inputs(manifest: Manifest) -> dict[str, str]:
    return {name: manifest.values[name] for name in _INPUTS}


def _batch(row: Mapping[str, object]) -> Batch:
    tokens = row["tokens"]
    return Batch(
        str(row["run_id"]),
        _counts(row["correct"]),
        _counts(row["samples"]),
        json.loads(str(row["verdicts"])),
        int(str(row["num_missing"])),
        None if tokens is None else float(str(tokens)),
    )


def _counts(values: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    assert isinstance(values, Iterable)
    return np.array(list(values), dtype=np.int64)
