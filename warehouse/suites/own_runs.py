"""Runs of a custom suite: row, column, number of finished samples, and id in the database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jobs import suite as suites
from jobs.preparation import PreparedLaunch
from jobs.run import timing as timings
from jobs.run.endings import by_shard, read_endings
from jobs.run.spec import RunSpec
from warehouse.database import Connection, Record, rows
from warehouse.loading.convert import spec_columns
from warehouse.report.summary import row_labels
from warehouse.sql.model_columns import JSON_COLUMNS, MODEL_COLUMNS, model_columns

State = Literal["done", "partly done", "missing"]


@dataclass(frozen=True)
class OwnRun:
    number: int
    """Position of its launch in the suite."""
    prepared: PreparedLaunch
    row: str
    finished: int
    """Number of finished samples, from the run folder."""
    to_time: int = 0
    """Number of samples not yet timed one at a time (`latency-sample`)."""

    @property
    def run_id(self) -> str:
        """Name of the run folder, which may not exist yet."""
        return self.prepared.run.path.name

    @property
    def dataset(self) -> str:
        """Column of the run."""
        return self.prepared.plan.spec.dataset

    @property
    def num_samples(self) -> int:
        return self.prepared.plan.spec.num_samples


def own_runs(suite: suites.Suite, columns: Sequence[str] = ()) -> list[OwnRun]:
    """Return every run of a suite once, in file order. columns: only these datasets; empty: all.

    Writes nothing. Raises ValueError for an unknown column, and any error of planning a launch.
    """
    distinct: dict[str, tuple[int, PreparedLaunch]] = {}
    for number, prepared in enumerate(suites.prepare(suite, None, accept_code_change=True)):
        distinct.setdefault(prepared.run.path.name, (number, prepared))
    named = suite.rows or (None,) * len(suite.launches)
    specs = [prepared.plan.spec for _, prepared in distinct.values()]
    labels = row_labels(specs, [named[number] for number, _ in distinct.values()])
    datasets = list(dict.fromkeys(spec.dataset for spec in specs))
    if unknown := sorted(set(columns) - set(datasets)):
        raise ValueError(f"--column {unknown[0]}: not in {suite.name}; valid: {', '.join(datasets)}")
    return [
        OwnRun(
            number, prepared, label, _finished(prepared), timings.num_left(prepared.launch.latency_sample, prepared.run)
        )
        for (number, prepared), label in zip(distinct.values(), labels, strict=True)
        if not columns or prepared.plan.spec.dataset in columns
    ]


def state_of(runs: Sequence[OwnRun]) -> State:
    """Return the combined state of several runs, such as the runs of a row."""
    if all(run.finished >= run.num_samples and not run.to_time for run in runs):
        return "done"
    return "partly done" if any(run.finished for run in runs) else "missing"


def by_row(runs: Sequence[OwnRun]) -> dict[str, list[OwnRun]]:
    """Return the runs of each row, in order."""
    rows: dict[str, list[OwnRun]] = {}
    for run in runs:
        rows.setdefault(run.row, []).append(run)
    return rows


def _finished(prepared: PreparedLaunch) -> int:
    run = prepared.run
    return sum(by_shard(run, read_endings(run, whole=False)).finished) if run.exists() else 0


_HELD = "SELECT run_id, spec_id FROM run WHERE spec_id IN (SELECT unnest($ids)) ORDER BY created_at, run_id"
_CANDIDATES = """
SELECT * FROM run WHERE method = $method AND dataset_hash = $hash ORDER BY created_at DESC, run_id
"""
_NO_IDENTITY = {
    "spec_id", "prompts", "dataset_source", "dataset_title", "method_source", "method_code",
    *(column.name for column in MODEL_COLUMNS if column.field.name.rpartition(".")[2] in ("path", "training")),
}  # fmt: skip
"""Columns that do not identify a run, such as the folders of its models."""
_WIDTHS = model_columns("tensor_parallel")
_JSON = {"params", *JSON_COLUMNS}


def recorded_ids(connection: Connection, runs: Sequence[OwnRun]) -> dict[str, str]:
    """Return the ids of these runs in the database, by `OwnRun.run_id`.

    The two ids differ if the models were stored elsewhere, for example in another checkout, because model paths are
    part of a run id.
    """
    specified = {run.run_id: run.prepared.plan.spec.run_id for run in runs}
    held = {row["run_id"]: row["spec_id"] for row in rows(connection, _HELD, {"ids": [*specified.values()]})}
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
    """Return the newest run that differs only in columns that do not identify it; None if there is none.

    A tensor-parallel size that the specification leaves to the nodes is not compared.
    """
    candidates = rows(connection, _CANDIDATES, {"method": spec.method, "hash": spec.dataset_hash})
    own = {
        name: value
        for name, value in spec_columns(spec).items()
        if name not in _NO_IDENTITY and not (value is None and name in _WIDTHS)
    }
    sought = _plain(own)
    return next((str(row["run_id"]) for row in candidates if _plain({name: row[name] for name in own}) == sought), None)


def _plain(columns: Record) -> Record:
    """Return the columns with JSON parsed, so the order of keys does not matter."""
    return {name: json.loads(str(value)) if name in _JSON and value else value for name, value in columns.items()}
