"""Read nights from the warehouse: which runs belong to which cell and night.

Beside a database of nights stands what they are judged by, a line of JSON per cell and night. Nights whose runs the
database lacks, because it was rebuilt when their folders were gone, are read from there.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from jobs.run.files import Lock, WrongFormat, append_record, read_records
from warehouse.comparison.manifests import PROMPT_DATE, Manifest, read_manifests
from warehouse.database import Connection, WarehouseError, reader, rows
from warehouse.model_columns import SHOWN_COLUMNS, column_of
from warehouse.nightly.cells import TIMES, Batch, CellNight
from warehouse.nightly.metrics import JUDGED, METRICS, Metric

NIGHT_BEGINS_HOUR = 12
"""UTC hour at which a night begins. Runs that start before and after midnight belong to one night, named by the date of
its evening. A run whose tag begins with a date belongs to that night, however long it was queued. Where a database has
such runs (`jobs nightly` makes them), no other run belongs to any night: it was launched in between, for another end.
"""
Conditions = tuple[dict[str, str], dict[str, str], dict[str, str]]
"""Environment and inputs of a run, and further conditions of its times; runs with equal ones share the object."""
_Dates = dict[str, str]
"""The date in a run's prompts, by its printed name; empty where they hold none."""
_AT = "at"
"""Tells two lines of equal content apart, between which there was another."""
_DATED = r"\d{4}-\d{2}-\d{2}"

_RUNS = """
WITH began AS (SELECT run_id, min(started_at) AS started_at FROM attempt GROUP BY run_id),
counted AS (
    SELECT sample_grade.* FROM sample_grade JOIN run USING (run_id)
    QUALIFY NOT run.is_greedy
        OR row_number() OVER (PARTITION BY run_id, problem_id ORDER BY NOT graded, sample_index) = 1
), problem_counts AS (
    SELECT run_id, problem_id, count(*) AS num_samples, count(*) FILTER (verdict = 'correct') AS num_correct
    FROM counted GROUP BY run_id, problem_id
), score AS (
    SELECT run_id, list(num_correct ORDER BY problem_index) AS correct,
        list(num_samples ORDER BY problem_index) AS samples
    FROM problem_counts JOIN problem USING (run_id, problem_id) GROUP BY run_id
), verdict AS (
    SELECT run_id, count(*) FILTER (NOT graded) AS num_missing, count(*) FILTER (NOT finished) AS num_not_run,
        to_json(histogram(verdict)) AS verdicts
    FROM counted GROUP BY run_id
)
SELECT run.*, coalesce(began.started_at, run.created_at) AS began_at, score.correct, score.samples,
    verdict.num_missing, verdict.num_not_run, verdict.verdicts
FROM run JOIN score USING (run_id) JOIN verdict USING (run_id) LEFT JOIN began USING (run_id)
ORDER BY began_at, run_id
"""
"""Of a greedy run the first graded sample of each problem: the others repeat it, and would make a change of one a
change of all."""
_GREEDY_TOKENS = """
SELECT run_id, avg(emitted_tokens) AS emitted_tokens FROM timed_sample
WHERE run_id IN (SELECT run_id FROM run WHERE is_greedy) GROUP BY run_id
"""
_GRADED = """
SELECT run_id, count(*) FILTER (finished AND graded) AS num_graded FROM sample_grade
WHERE run_id IN (SELECT unnest($run_ids::VARCHAR[])) GROUP BY run_id
"""
_VALUES = """
SELECT run_id, baseline_run_id, metric, estimate FROM counted_estimate
WHERE metric IN $names AND role IS NULL AND group_kind IS NULL
ORDER BY run_id, baseline_run_id
"""
_PAIRS = "SELECT run_id, baseline_run_id FROM comparable_baseline ORDER BY run_id, baseline_run_id"
_CELL = ("dataset", "method", "params", "draft_name", "target_name", "temperature", "top_p", "token_budget")
_OPTIONAL_OF_CELL = {column_of("reward", "model"): "reward model"} | {
    column.name: f"{column.owner} {column.name.partition(f'{column.owner}_')[2].replace('_', ' ')}"
    for column in SHOWN_COLUMNS
}
_INPUTS = ("prompts", "problems")
_NOT_ENVIRONMENT = (*_INPUTS, "samples per problem")
_FILES = ("draft files", "target files", "reward model files", "selection adapter")
"""Part of a run's subject, but what is under a model's name may change."""
_DEVICES, _PROCESSOR = "devices", "processor"


def read_nights(
    connection: Connection, since: date | None = None, kept: Sequence[CellNight] = ()
) -> list[list[CellNight]]:
    """Return every night with its cells, oldest first; nights before `since` are left out.

    kept: what stands beside the database, which counts where the database lacks a run of it. Where runs are tagged with
    dates, only those count.
    """
    runs = rows(connection, _RUNS)
    loaded = {str(row["run_id"]) for row in runs}
    if kept or any(_tagged(row) for row in runs):
        runs = [row for row in runs if _tagged(row)]
    manifests = read_manifests(connection, [str(row["run_id"]) for row in runs])
    is_greedy = any(row["is_greedy"] for row in runs)
    tokens = {row["run_id"]: row["emitted_tokens"] for row in (rows(connection, _GREEDY_TOKENS) if is_greedy else [])}
    measured = _Measured(read_values(connection), read_baselines(connection))
    nights: dict[date, dict[str, list[Mapping[str, object]]]] = {}
    for row in runs:
        night = _night(row)
        if since is None or night >= since:
            nights.setdefault(night, {}).setdefault(cell_of(row), []).append(
                row | {"tokens": tokens.get(row["run_id"])}
            )
    conditions = {run_id: _conditions(manifest) for run_id, manifest in manifests.items()}
    shared: dict[str, Conditions] = {}
    conditions = {run_id: shared.setdefault(repr(found), found) for run_id, found in conditions.items()}
    dated = {run_id: (*found, _dates(manifests[run_id])) for run_id, found in conditions.items()}
    found = {
        night: {cell.cell: cell for cell in _night_of_cells(night, cells, dated, measured)}
        for night, cells in nights.items()
    }
    for cell in kept:
        if (since is None or cell.night >= since) and not loaded.issuperset(cell.run_ids):
            found.setdefault(cell.night, {})[cell.cell] = cell
    return [list(cells.values()) for _, cells in sorted(found.items())]


def kept_nights(database: Path) -> list[CellNight]:
    """Return what stands beside a database of its nights, the newest line of each cell and night."""
    return [_from_line(line) for line in _kept_lines(database).values()]


def keep_nights(database: Path) -> None:
    """Append what the nights of a database are judged by to the file beside it, where they changed or it lacks them.

    Raises WarehouseError and OSError.
    """
    path = _kept_file(database)
    with Lock(path.with_name(f".{path.name}.lock")), reader(database) as connection:
        lines = _kept_lines(database)
        for cells in read_nights(connection, kept=list(map(_from_line, lines.values()))):
            for cell in cells:
                line = _as_line(cell)
                if line != lines.get((line["night"], line["cell"])):
                    append_record(path, {**line, _AT: time.time()})


def _kept_file(database: Path) -> Path:
    return database.with_suffix(".nights.jsonl")


def _kept_lines(database: Path) -> dict[tuple[str, str], dict[str, Any]]:
    path, lines = _kept_file(database), {}
    try:
        for line in read_records(path):
            lines[line["night"], line["cell"]] = {k: v for k, v in line.items() if k != _AT}
    except WrongFormat as error:
        raise WarehouseError(f"{error}, or move it away: nights are then judged without it") from error
    return lines


def _as_line(cell: CellNight) -> dict[str, Any]:
    line: dict[str, Any] = orjson.loads(orjson.dumps(asdict(cell), option=orjson.OPT_SERIALIZE_NUMPY))
    return line


def _from_line(line: Mapping[str, Any]) -> CellNight:
    first, *reruns = (
        Batch(**{**batch, "correct": _counts(batch["correct"]), "samples": _counts(batch["samples"])})
        for batch in (line["first"], *line["reruns"])
    )
    further = {"uncounted": tuple(line["uncounted"]), "untimed": tuple(line["untimed"])}
    night = date.fromisoformat(line["night"])
    return CellNight(**{**line, "night": night, "first": first, "reruns": tuple(reruns), **further})


@dataclass(frozen=True)
class _Measured:
    """Metrics by run."""

    values: Mapping[str, Sequence[tuple[Metric, str | None, float]]]
    """The metric, the run that it is against, and the value on the metric's scale."""
    baselines: Mapping[str, Sequence[str]]

    def of(self, run_id: str, tonight: Mapping[str, str]) -> dict[str, float]:
        """Return the metrics of a run; `tonight`: the complete runs of its night, with their cells.

        A speed-up is the mean over the runs of its night's target alone.
        """
        found: dict[str, list[float]] = {}
        for metric, baseline, value in self.values.get(run_id, ()):
            if baseline is None or baseline in tonight:
                found.setdefault(metric.name, []).append(value)
        return {name: sum(values) / len(values) for name, values in found.items()}


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
    more = "".join(f", {name} {row[column]}" for column, name in _OPTIONAL_OF_CELL.items() if row.get(column))
    return f"{dataset} {method}{shown}, {models}, temperature {temperature:g}, top-p {top_p:g}, budget {budget}{more}"


def _night_of_cells(
    night: date,
    cells: Mapping[str, Sequence[Mapping[str, object]]],
    conditions: Mapping[str, tuple[*Conditions, _Dates]],
    measured: _Measured,
) -> list[CellNight]:
    """Return the cells of a night, each with the target alone that its speed-up refers to."""
    tonight = {str(row["run_id"]): cell for cell, runs in cells.items() for row in runs if row["num_missing"] == 0}
    found = []
    for cell, unordered in cells.items():
        runs = sorted(unordered, key=_order)
        batches = [_batch(row, measured.of(str(row["run_id"]), tonight)) for row in runs]
        first, of_first = batches[0], conditions[batches[0].run_id]
        reruns, uncounted, untimed = [], [], []
        for batch in batches[1:]:
            of_rerun = conditions[batch.run_id]
            different = [phrase for i in (0, 1) for phrase in _differences(of_rerun[i], of_first[i])]
            slower = _differences(of_rerun[2], of_first[2])
            if different:
                uncounted.append(f"re-run {batch.run_id} does not count: {', '.join(different)}")
                continue
            if slower:
                untimed.append(f"the times of re-run {batch.run_id} do not count: {', '.join(slower)}")
            timeless = {
                metric.name: batch.measures[metric.name]
                for metric in METRICS
                if metric.of != TIMES and metric.name in batch.measures
            }
            reruns.append(replace(batch, measures=timeless) if slower else batch)
        baseline = next((tonight[b] for b in measured.baselines.get(first.run_id, ()) if b in tonight), None)
        of_runs = first, tuple(reruns), *of_first, baseline, tuple(uncounted), tuple(untimed)
        found.append(CellNight(cell, night, *of_runs))
    return found


def _differences(rerun: Mapping[str, str], first: Mapping[str, str]) -> list[str]:
    """Return one phrase for each condition of a re-run that is not that of the night's first run."""
    found = []
    for name in sorted({*rerun, *first}):
        there, here = rerun.get(name, "none"), first.get(name, "none")
        if there != here:
            if name == _DEVICES:
                found.append(f"it ran on {there}, this night on {here}")
            else:
                found.append(f"its {name}: {there}, this night's: {here}")
    return found


def _order(row: Mapping[str, object]) -> tuple[bool, datetime]:
    """Return what the runs of a cell in one night are sorted by: re-runs last, whatever the nodes' clocks say."""
    began_at = row["began_at"]
    assert isinstance(began_at, datetime)
    return _tagged(row) is not None and str(row["tag"]) != str(_tagged(row)), began_at


def _conditions(manifest: Manifest) -> Conditions:
    """Return what may change from outside, what must not, and what else times depend on.

    Of the devices only the kinds count, and of a worker with a GPU the processor does not.
    """
    matters, values = manifest.matters, manifest.values
    kinds = ", ".join(sorted({part.rpartition(" × ")[2] for part in values[_DEVICES].split(", ")}))
    results = {name for name, matter in matters.items() if matter in ("accuracy", "accuracy and latency")}
    environment = {name: values[name] for name in sorted({*results, *_FILES} - {*_NOT_ENVIRONMENT})} | {_DEVICES: kinds}
    times = {name: values[name] for name, matter in sorted(matters.items()) if matter == "latency" and name != _DEVICES}
    if kinds != "cpu":
        times.pop(_PROCESSOR, None)
    return environment, _inputs(manifest), times


def _dates(manifest: Manifest) -> _Dates:
    return {PROMPT_DATE: manifest.values[PROMPT_DATE]} if PROMPT_DATE in manifest.values else {}


def _inputs(manifest: Manifest) -> dict[str, str]:
    return {name: manifest.values[name] for name in _INPUTS}


def _batch(row: Mapping[str, object], measures: Mapping[str, float]) -> Batch:
    tokens = row["tokens"]
    return Batch(
        str(row["run_id"]),
        _counts(row["correct"]),
        _counts(row["samples"]),
        json.loads(str(row["verdicts"])),
        int(str(row["num_missing"])),
        int(str(row["num_not_run"])),
        None if tokens is None else float(str(tokens)),
        measures,
    )


def _counts(values: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    assert isinstance(values, Iterable)
    return np.array(list(values), dtype=np.int64)


def read_values(connection: Connection) -> dict[str, list[tuple[Metric, str | None, float]]]:
    """Return the metrics of every run, each with the run that it is against; those that do not apply are left out."""
    found: dict[str, list[tuple[Metric, str | None, float]]] = {}
    for row in rows(connection, _VALUES, {"names": [name for name in JUDGED if name != "pass_at_1"]}):
        metric, value = JUDGED[row["metric"]], row["estimate"]
        if value > 0 or not metric.is_log:
            found.setdefault(row["run_id"], []).append((metric, row["baseline_run_id"], metric.scaled(value)))
    return found


def read_baselines(connection: Connection) -> dict[str, list[str]]:
    """Return by run the runs of the target alone that its speed may be compared with."""
    found: dict[str, list[str]] = {}
    for row in rows(connection, _PAIRS):
        found.setdefault(str(row["run_id"]), []).append(str(row["baseline_run_id"]))
    return found
