"""Convert a run folder's small files to database rows. Trace files are loaded with SQL (insert.sql)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

from harness.engine import Role
from harness.engines.speculation import draft_sampling
from harness.problems.problem import Problem
from jobs.run.folder import RunFolder
from jobs.run.spec import Attempt, RunSpec, night_of
from warehouse.sql import model_columns
from warehouse.sql.model_columns import column_of

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class SkippedFile:
    """A file of a run folder that was left out because it could not be read."""

    name: str
    """Path within the run folder."""
    reason: str
    """One line."""


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """Fingerprint and content summary of a run folder's file; a row of `loaded_file`."""

    name: str
    size_bytes: int
    sha256: str
    load_order: int
    num_rows: int = 0
    error: str | None = None


def run_row(folder: RunFolder, spec: RunSpec, loaded_at: datetime) -> Row:
    """Return the row of `run`: the specification and further data of the folder."""
    return spec_columns(spec) | {
        "run_id": folder.path.name,
        "folder": str(folder.path.resolve()),
        "created_at": utc(folder.spec_path.stat().st_mtime),
        "loaded_at": loaded_at,
    }


def spec_columns(spec: RunSpec) -> Row:
    """Return the columns of `run` that follow from the specification."""
    left_out = {*get_args(Role), "speculator", "engine", "params", "format", "method_source", "dataset_origin"}
    row: Row = {name: value for name, value in asdict(spec).items() if name not in left_out}
    row |= {f"engine_{name}": value for name, value in asdict(spec.engine).items()} | model_columns.stored(spec)
    source = spec.method_source
    installed = f" of {source.distribution}" if source and source.distribution else ""
    return row | {
        "method_source": source and f"{source.reference}{installed}",
        "method_code": source and source.code_hash,
        "engine_dtype": _dtype(spec),
        "engine_spec_sampling": draft_sampling(spec.engine.spec_decode, spec.engine.spec_sampling),
        "spec_id": spec.run_id,
        "params": json.dumps(dict(spec.params)),
        "prompts": spec.wording.stored,
        "dataset_source": spec.dataset_origin and spec.dataset_origin.source,
        "dataset_title": spec.dataset_origin and spec.dataset_origin.title,
        "limited": spec.limited,
        "night": night_of(spec.tag),
        "is_greedy": spec.is_greedy,
    }


def _dtype(spec: RunSpec) -> str:
    """Return the data type of a run's models, per model if they differ."""
    by_role = {role: model.dtype for role, model in spec.models.items() if model is not None}
    several = ", ".join(f"{role} {dtype}" for role, dtype in by_role.items())
    return several if len(set(by_role.values())) > 1 else next(iter(by_role.values()), "auto")


def attempt_row(run_id: str, trace_file: Path, metadata: Mapping[str, str]) -> Row:
    """Return the row of `attempt` from a trace file's metadata."""
    attempt = json.loads(metadata["attempt"])
    row: Row = {name: attempt[name] for name in Attempt.__dataclass_fields__}
    row |= {name: json.dumps(attempt[name]) for name in ("versions", "hardware", "engines")}
    row["other_codes"] = json.dumps(attempt["other_codes"]) if attempt["other_codes"] else None
    return row | {"started_at": utc(attempt["started_at"]), "run_id": run_id, "attempt_id": trace_file.stem}


def chosen_widths(run: Row, attempts: Sequence[Row]) -> Row:
    """Return the tensor-parallel sizes recorded by attempts, for models whose size the nodes chose.

    If nodes with different GPUs chose several sizes, the largest counts; if none is recorded, the size is 1.
    """
    widths: Row = {}
    for role in get_args(Role):
        column = column_of(role, "tensor_parallel")
        if run[column] is None and (role != "reward" or run[column_of(role, "model")] is not None):
            engines = [json.loads(str(attempt.get("engines") or "{}")).get(role) or {} for attempt in attempts]
            recorded = [width for engine in engines if isinstance(width := engine.get("tensor_parallel"), int)]
            widths[column] = max(recorded, default=1)
    return widths


def problem_rows(run_id: str, problems: list[Problem]) -> list[Row]:
    """Return the rows of `problem`, in the run's order."""
    rows: list[Row] = []
    for index, problem in enumerate(problems):
        row: Row = asdict(problem)
        row["problem_id"] = row.pop("id")
        rows.append(row | {"run_id": run_id, "problem_index": index, "content_hash": problem.content_hash})
    return rows


def file_row(run_id: str, file: LoadedFile, loaded_at: datetime) -> Row:
    return {"run_id": run_id, **asdict(file), "loaded_at": loaded_at}


def utc(seconds: float) -> datetime:
    """Convert seconds since the epoch to a UTC time without time zone, as stored in the database."""
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
