"""The runs of a suite in the warehouse: by their ids, else those that differ only in where their models lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.run.spec import RunSpec
from warehouse.database import Connection, rows
from warehouse.measures import runs_like
from warehouse.own_tables.planned import OwnRun


def recorded_ids(connection: Connection, runs: Sequence[OwnRun]) -> dict[str, str]:
    """Return the id in the warehouse for each of these runs that it holds, by the id that the suite's run has here.

    The ids differ where the models lay elsewhere, such as in another checkout: a model's path is part of a run id.
    """
    wanted = [run.run_id for run in runs]
    found = rows(connection, "SELECT run_id FROM run WHERE run_id IN (SELECT unnest($ids))", {"ids": wanted})
    held = {str(row["run_id"]) for row in found}
    ids: dict[str, str] = {}
    for run in runs:
        if run.run_id in held:
            ids[run.run_id] = run.run_id
        elif other := _elsewhere(connection, run.prepared.plan.spec):
            ids[run.run_id] = other
    return ids


def same_cost(spec: RunSpec) -> dict[str, Any]:
    """Return what runs of the same cost have in the table `run`: any seed, tag and number of problems."""
    return {
        "method": spec.method,
        "dataset": spec.dataset,
        "params": dict(spec.params),
        "temperature": spec.temperature,
        "top_p": spec.top_p,
        "token_budget": spec.token_budget,
        "concurrency": spec.concurrency,
        **{f"{role}_name": model and model.name for role, model in spec.models.items()},
        "engine_spec_decode": spec.engine.spec_decode,
        "engine_take_turns": spec.engine.take_turns,
    }


def _elsewhere(connection: Connection, spec: RunSpec) -> str | None:
    """Return the run that is this one but for the paths of its models, whose files are the same."""
    columns = {
        **same_cost(spec),
        "dataset_hash": spec.dataset_hash,
        "samples": spec.samples,
        "seed": spec.seed,
        "prompt_hash": spec.prompt_hash,
        "tag": spec.tag,
        "engine_kind": spec.engine.kind,
        "selection_fingerprint": spec.selection and spec.selection.fingerprint,
        "speculator_fingerprint": spec.speculator and spec.speculator.fingerprint,
        **{f"{role}_fingerprint": model and model.fingerprint for role, model in spec.models.items()},
    }
    if any(model and model.fingerprint is None for model in spec.models.values()):
        return None
    return next((str(row["run_id"]) for row in runs_like(connection, columns)), None)
