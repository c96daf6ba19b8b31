"""The runs of a suite in the warehouse: by their ids, else those that differ only in where their models lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from jobs.run.spec import RunSpec
from warehouse.database import Connection, rows
from warehouse.loading import convert
from warehouse.loading.convert import spec_columns
from warehouse.own_tables.planned import OwnRun

_HELD = "SELECT run_id, spec_id FROM run WHERE spec_id IN (SELECT unnest($ids)) ORDER BY created_at, run_id"
_CANDIDATES = """
SELECT * FROM run WHERE method = $method AND dataset_hash = $hash ORDER BY created_at DESC, run_id
"""
_NO_IDENTITY = {
    "spec_id", "prompts", "dataset_source", "dataset_title", "method_source", "method_code",
    *(f"{model}_{name}" for model in ("draft", "target", "reward", "speculator", "selection")
      for name in ("path", "training")),
}  # fmt: skip
"""Columns that are no part of what is run, and where the models lay. A width that the nodes chose is none either."""
_JSON = {"params", *convert.TABLES}


def recorded_ids(connection: Connection, runs: Sequence[OwnRun]) -> dict[str, str]:
    """Return the id in the warehouse for each of these runs that it holds, by the id that the suite's run has here.

    The ids differ where the models lay elsewhere, such as in another checkout: a model's path is part of a run id.
    """
    specified = {run.run_id: run.prepared.plan.spec.run_id for run in runs}
    held = {str(row["run_id"]): str(row["spec_id"]) for row in rows(connection, _HELD, {"ids": [*specified.values()]})}
    renamed = {spec_id: run_id for run_id, spec_id in held.items()}
    ids: dict[str, str] = {}
    for run in runs:
        if run.run_id in held:
            ids[run.run_id] = run.run_id
        elif former := renamed.get(specified[run.run_id]):
            ids[run.run_id] = former
        elif other := _elsewhere(connection, run.prepared.plan.spec):
            ids[run.run_id] = other
    return ids


def _elsewhere(connection: Connection, spec: RunSpec) -> str | None:
    """Return the run that is this one in everything but the paths of its models, whose files are the same."""
    candidates = rows(connection, _CANDIDATES, {"method": spec.method, "hash": spec.dataset_hash})
    own = {
        name: value
        for name, value in spec_columns(spec).items()
        if name not in _NO_IDENTITY and not (value is None and name.endswith("_tensor_parallel"))
    }
    sought = _plain(own)
    return next((str(row["run_id"]) for row in candidates if _plain({name: row[name] for name in own}) == sought), None)


def _plain(columns: Mapping[str, object]) -> dict[str, object]:
    """Return columns with their JSON parsed, in which the order of keys means nothing."""
    return {name: json.loads(str(value)) if name in _JSON and value else value for name, value in columns.items()}
