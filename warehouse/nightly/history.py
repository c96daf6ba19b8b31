"""Read nights from the database, from the file next to it, or from a CSV file.

The file next to the database has one line of JSON per night and cell (judge.py) with the judged values. It supplies
nights missing in the database, for example after a rebuild without their run folders.
"""

from __future__ import annotations

import csv
import json
import math
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import get_args

from pydantic import TypeAdapter

from harness.cli.number_format import sides
from harness.engine import Role
from harness.methods import run_identity
from harness.settings.launch_settings import Launch
from jobs.run.files import Lock, WrongFormat, append_record, read_records
from warehouse.comparison.manifests import Manifest, read_manifests
from warehouse.database import Connection, Record, WarehouseError, reader, rows
from warehouse.measures import MEASURES, Measure, mean, mean_share
from warehouse.nightly.judge import DEVICES, JUDGED, PASS_AT_1, CellNight, Run, changes, scaled
from warehouse.report.summary import completion, no_result
from warehouse.sql.model_columns import MODEL_COLUMNS, SHOWN_COLUMNS, column_of
from warehouse.sql.schema import sql_of

NIGHT_BEGINS_HOUR = 12
"""UTC hour at which a night begins. Runs that start before and after midnight belong to one night, named by the date on
which it began. A run with a date as tag prefix belongs to the night of that date, however long it was queued. If a
database has such runs (`jobs nightly` creates them), other runs belong to no night, because they were launched for
other purposes.
"""
Conditions = tuple[dict[str, str], dict[str, str], dict[str, str]]
"""Environment and inputs of a run, and further conditions that affect its times."""
COLUMNS = ("night", "cell", "measure", "value", "n")
_CELL = TypeAdapter(CellNight)
_AT = "at"
"""Key for the time of writing. Without it, a line equal to an earlier one would be skipped when read."""

_VALUES = """
SELECT run_id, baseline_run_id, metric, estimate FROM counted_estimate
WHERE metric IN $names AND role IS NULL AND group_kind IS NULL
ORDER BY run_id, baseline_run_id
"""
_OF_CELL = {column_of(role, "model"): role for role in get_args(Role)} | {
    column.name: f"{column.owner} {column.name.partition(f'{column.owner}_')[2].replace('_', ' ')}"
    for column in SHOWN_COLUMNS
}
"""Columns of `run` that are part of a cell, with their labels in the cell name."""
_SAMPLING = {"temperature": "temperature", "top_p": "top-p", "token_budget": "budget"}
_INPUTS = ("prompts", "problems")
_FILES = [c.printed for c in MODEL_COLUMNS if c.printed and c.field.name.endswith("fingerprint")]
"""Names of the settings that identify model files. They are part of a run's subject, but the files may change."""
_PROCESSOR = "processor"


def read_nights(
    connection: Connection, since: date | None = None, kept: Sequence[CellNight] = ()
) -> list[list[CellNight]]:
    """Return every night with its cells, oldest first, without nights before `since`.

    kept: cells from the file next to the database; a cell is used if the database lacks one of its runs. If there are
    kept cells or runs tagged with a date, runs without a date tag are ignored.
    """
    runs = rows(connection, sql_of("nightly/runs"))
    loaded = {str(row["run_id"]) for row in runs}
    if kept or any(row["night"] for row in runs):
        runs = [row for row in runs if row["night"]]
    nights: dict[date, dict[str, list[Record]]] = {}
    for row in runs:
        night = row["night"] or night_of(row["began_at"])
        if since is None or night >= since:
            nights.setdefault(night, {}).setdefault(cell_of(row), []).append(row)
    manifests = read_manifests(connection, sorted(loaded))
    values = read_values(connection)
    found = {night: _cells(night, cells, manifests, values) for night, cells in nights.items()}
    for cell in kept:
        if (since is None or cell.night >= since) and not loaded.issuperset(run.run_id for run in cell.runs):
            found.setdefault(cell.night, {})[cell.cell] = cell
    return [list(cells.values()) for _, cells in sorted(found.items())]


def _cells(
    night: date,
    cells: Mapping[str, Sequence[Record]],
    manifests: Mapping[str, Manifest],
    values: Mapping[str, Sequence[tuple[str, str | None, float]]],
) -> dict[str, CellNight]:
    """Return the cells of a night, each with the cell of the same night that is the baseline of its speed-up."""
    tonight = {str(row["run_id"]): cell for cell, rows in cells.items() for row in rows if not row["num_missing"]}
    found = {}
    for cell, of_cell in cells.items():
        first, *others = runs = [_run(row, values.get(row["run_id"], ()), tonight) for row in of_cell]
        conditions = [_conditions(manifests[run.run_id]) for run in runs]
        reruns, uncounted = [], []
        for run, of_rerun in zip(others, conditions[1:], strict=True):
            differences = [one for pair in zip(conditions[0], of_rerun, strict=True) for one in changes(*pair)]
            if why := f"not finished ({run.lacking})" if run.lacking else ", ".join(differences):
                uncounted.append(f"rerun {run.run_id} ignored: {why}")
            else:
                reruns.append(run)
        bases = [base for _, base, _ in values.get(first.run_id, ()) if base in tonight]
        base = bases[0] if bases else None
        found[cell] = CellNight(
            cell,
            night,
            first,
            tuple(reruns),
            *conditions[0],
            baseline=base and tonight[base],
            cards=sides((manifests[first.run_id].num_cards, manifests[base].num_cards)) if base else "",
            uncounted=tuple(uncounted),
            warning=no_result(of_cell[0]["engine_kind"]),
        )
    return found


def _run(row: Record, values: Sequence[tuple[str, str | None, float]], tonight: Mapping[str, str]) -> Run:
    """Convert a row to a `Run`, with its mean speed-up over the night's runs of the target alone.

    tonight: cells of the complete runs, by run id.
    """
    measures: dict[str, list[float]] = {}
    for name, base, value in values:
        if base is None or base in tonight:
            measures.setdefault(name, []).append(value)
    missing = f"{row['num_missing']} of {row['num_samples']} samples are unfinished or ungraded"
    variance = row["variance"]
    return Run(
        row["run_id"],
        {PASS_AT_1.name: row["score"]} | {of: sum(values) / len(values) for of, values in measures.items()},
        {} if variance is None else {PASS_AT_1.name: max(variance, row["num_samples"] ** -2)},
        json.loads(row["verdicts"]),
        row["num_problems"],
        row["num_samples"],
        f"{missing}: {completion(row['run_id'], row['num_not_run'])}" if row["num_missing"] else "",
    )


def _conditions(manifest: Manifest) -> Conditions:
    """Return the environment (may change), the inputs (must not change) and further conditions of times.

    Devices are compared by kind, not by number. The processor of a worker with a GPU is ignored.
    """
    values, matters = manifest.values, sorted(manifest.matters.items())
    kinds = ", ".join(sorted({part.rpartition(" × ")[2] for part in values[DEVICES].split(", ")}))
    results = {name for name, matter in matters if matter in ("accuracy", "accuracy and latency")}
    changing = sorted({*results, *_FILES}.intersection(values) - {*_INPUTS, "samples per problem"})
    times = {name: values[name] for name, matter in matters if matter == "latency" and name != DEVICES}
    if kinds != "cpu":
        times.pop(_PROCESSOR, None)
    environment = {name: values[name] for name in changing} | {DEVICES: kinds}
    return environment, {name: values[name] for name in _INPUTS}, times


def read_values(connection: Connection) -> dict[str, list[tuple[str, str | None, float]]]:
    """Return each run's judged values except pass@1: measure name, baseline run and value.

    Values are on the comparison scale (`scaled`); values that do not apply are left out.
    """
    found: dict[str, list[tuple[str, str | None, float]]] = {}
    for row in rows(connection, _VALUES, {"names": [one.name for one in JUDGED if one is not PASS_AT_1]}):
        measure, value = MEASURES[row["metric"]], row["estimate"]
        if value > 0 or measure.is_percent:
            found.setdefault(row["run_id"], []).append((measure.name, row["baseline_run_id"], scaled(measure, value)))
    return found


def night_of(began_at: datetime) -> date:
    return (began_at - timedelta(hours=NIGHT_BEGINS_HOUR)).date()


def cell_of(row: Record) -> str:
    """Return the cell name of a row of `run`: everything that repeats nightly, without the seed.

    Default values are omitted.
    """
    values = run_identity(row["method"], json.loads(row["params"]))
    shown = f" ({', '.join(f'{name} {values[name]}' for name in sorted(values))})" if values else ""
    sampling = {name: column for column, name in _SAMPLING.items() if row[column] != getattr(Launch, column)}
    return ", ".join([
        f"{row['dataset']} {row['method']}{shown}",
        *([f"selection {row['selection_name']}"] if row.get("selection_name") else []),
        *(f"{name} {row[column]:.12g}" for name, column in sampling.items()),
        *(f"{name} {row[column]}" for column, name in _OF_CELL.items() if row.get(column)),
    ])  # fmt: skip


def kept_nights(database: Path) -> list[CellNight]:
    """Return the nights in the file next to a database: the newest line of each cell and night.

    Raises WarehouseError.
    """
    found = {}
    try:
        for line in read_records(_kept_file(database)):
            night = _CELL.validate_python(line)
            found[night.night, night.cell] = night
    except WrongFormat as error:
        raise WarehouseError(f"{error}, or move it away to judge nights without it") from error
    return list(found.values())


def keep_nights(database: Path) -> None:
    """Append new or changed nights of a database to the file next to it.

    Raises WarehouseError and OSError.
    """
    path = _kept_file(database)
    with Lock(path.with_name(f".{path.name}.lock")), reader(database) as connection:
        kept = kept_nights(database)
        known = {(one.night, one.cell): one for one in kept}
        for cell in chain.from_iterable(read_nights(connection, kept=kept)):
            if cell != known.get((cell.night, cell.cell)):
                append_record(path, {**_CELL.dump_python(cell, mode="json"), _AT: time.time()})


def _kept_file(database: Path) -> Path:
    return database.with_suffix(".nights.jsonl")


def recorded(file: Path) -> tuple[list[list[CellNight]], list[Measure]]:
    """Return the nights of a CSV file with COLUMNS, oldest first, and their measures.

    A measure with all values between 0 and 1 is a share; changes of other measures are relative. Raises WarehouseError
    with the line number.
    """
    read = []
    with file.open(encoding="utf-8-sig", newline="") as lines:
        table = csv.DictReader(lines)
        if missing := [name for name in COLUMNS[:4] if name not in (table.fieldnames or ())]:
            raise WarehouseError(f"{file} is missing columns: {', '.join(missing)}; required: {', '.join(COLUMNS[:4])}")
        for row in table:
            try:
                read.append(_recorded(row))
            except (ValueError, TypeError) as error:
                raise WarehouseError(f"{file}, line {table.line_num}: {error}") from error
    if not read:
        raise WarehouseError(f"{file} has no nights")
    # Changes of shares, which never exceed 1, are in points; changes of other measures are relative.
    large = {measure for *_, measure, value, _ in read if value > 1}
    measures = {
        name: Measure(name=name, title=name, meaning="", method=mean if name in large else mean_share)
        for *_, name, _, _ in read
    }
    if zeros := {name for *_, name, value, _ in read if not value} & large:
        raise WarehouseError(
            f"{file}: {zeros.pop()} is 0 in one line and above 1 in another; the values of a "
            "measure must all be shares (0 to 1) or all be positive"
        )
    nights: dict[date, dict[str, list[dict[str, tuple[float, float]]]]] = {}
    for night, cell, name, value, n in sorted(read, key=lambda row: row[0]):
        runs = nights.setdefault(night, {}).setdefault(cell, [])
        if all(name in run for run in runs):
            runs.append({})
        next(run for run in runs if name not in run)[name] = scaled(measures[name], value), n
    found = [[_of_past(cell, night, runs) for cell, runs in cells.items()] for night, cells in nights.items()]
    return found, list(measures.values())


def _of_past(cell: str, night: date, runs: Sequence[Mapping[str, tuple[float, float]]]) -> CellNight:
    found = []
    for run in runs:
        values = {name: value for name, (value, _) in run.items()}
        variances = {name: max(value * (1 - value), 1 / n) / n for name, (value, n) in run.items() if n}
        found.append(Run("", values, variances, num_samples=round(max(n for _, n in run.values())) or 1))
    return CellNight(cell, night, found[0], tuple(found[1:]))


def _recorded(row: Mapping[str, str]) -> tuple[date, str, str, float, float]:
    """Return night, cell, measure, value and n of a line; n is 0 if empty."""
    night, cell, measure, value = (row[name] for name in COLUMNS[:4])
    number, n = float(value), float(row.get("n") or 0)
    if not (cell and measure):
        raise ValueError(f"requires values in the columns {', '.join(COLUMNS[:4])}; n may be empty")
    if not 0 <= number < math.inf:
        raise ValueError(f"{value}: values must be finite and at least 0")
    if n and not number <= 1 <= n:
        raise ValueError(f"with n, the value must be from 0 to 1 and n at least 1, not {value} and {row['n']}")
    return date.fromisoformat(night), cell, measure, number, n
