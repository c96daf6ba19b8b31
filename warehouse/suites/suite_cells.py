"""A suite of one's own as rows, columns and cells, read from the warehouse."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from harness.cli.program import typed
from harness.plural import counted
from warehouse.comparison.contrasts import Comparison, Settings, compare
from warehouse.comparison.named_runs import read_runs
from warehouse.comparison.show_warnings import warnings
from warehouse.database import Connection, WarehouseError
from warehouse.errors import one_line
from warehouse.own_tables.metrics import AT_ONE, METRICS, Source
from warehouse.own_tables.planned import OwnRun, by_row
from warehouse.own_tables.recorded import recorded_ids
from warehouse.papers.table import Ours
from warehouse.render import limited, mixed_code, repeated, scripted, unreadable
from warehouse.summary import RunSummary, summaries

_NO_FORCE = " (--force compares anyway)"
"""What a comparison adds for its own flag."""


@dataclass(frozen=True)
class Cell:
    """One run in the table."""

    run: OwnRun
    run_id: str
    """The run's id in the warehouse."""
    finished: int
    """Samples that have ended, by the warehouse, or by the run folder where the warehouse lacks the run."""
    ungraded: int
    """Samples that have ended and are not graded."""
    numbers: Mapping[str, Ours | None]
    """The numbers by metric, as fractions where shown in percent; empty if the warehouse lacks the run."""
    notes: Sequence[int] = ()
    """Numbers of the notes on this run, from 1."""


@dataclass(frozen=True)
class OwnTable:
    """The runs of a suite, laid out in rows and columns."""

    name: str
    rows: Sequence[str]
    columns: Mapping[str, str]
    """The headings by dataset."""
    metrics: Sequence[str]
    cells: Mapping[tuple[str, str], Cell]
    """The cells by row and dataset. A row may lack a dataset."""
    notes: Sequence[str]
    """What limits the validity of the numbers."""
    about: Sequence[str]
    """How to read the table, in sentences."""


def own_table(connection: Connection, name: str, runs: Sequence[OwnRun], metrics: Sequence[str]) -> OwnTable:
    """Read the table of a suite's runs; what the warehouse lacks has no numbers. Raises WarehouseError."""
    ids = recorded_ids(connection, runs)
    summarized = {summary.run_id: summary for summary in summaries(connection, list(ids.values()))}
    comparison, lines = _comparison(connection, list(ids.values()))
    compared = {row.run.run_id: row for row in comparison.rows} if comparison else {}
    for summary in summarized.values():
        if summary.run_id not in compared and not any(_id(summary.run_id).search(line) for line in lines):
            lines += _alone(summary)
    lines += [line for run in runs for line in _of_suite(run, ids.get(run.run_id))]
    if set(metrics) & set(AT_ONE):
        lines += [line for summary in summarized.values() for line in _timed(summary)]
    labels = {ids.get(run.run_id, run.run_id): run for run in runs}
    notes = _notes(lines, labels)
    cells = {}
    for run in runs:
        recorded = ids.get(run.run_id, run.run_id)
        numbers: dict[str, Ours | None] = {}
        finished = ungraded = run.finished
        if found := summarized.get(recorded):
            source = Source(connection, found, compared.get(recorded))
            numbers = {metric: METRICS[metric].read(source) for metric in metrics}
            finished, ungraded = found.num_planned - found.num_not_run, found.num_ungraded
        marks = [number for number, about in enumerate(notes.values(), 1) if recorded in about]
        cells[run.row, run.dataset] = Cell(run, recorded, finished, ungraded, numbers, marks)
    return OwnTable(
        name,
        list(by_row(runs)),
        _columns(runs),
        metrics,
        cells,
        list(notes),
        [
            *_baselines(comparison, labels),
            *(METRICS[metric].about for metric in metrics),
            *_within(comparison, metrics),
        ],
    )


def _comparison(connection: Connection, run_ids: Sequence[str]) -> tuple[Comparison | None, list[str]]:
    """Return the comparison of these runs as `warehouse.compare` has it, and what limits its validity.

    None, and why, where they cannot be compared: two runs may have nothing in common yet, and each has its own result.
    """
    records = read_runs(connection, run_ids, votes=False) if run_ids else []
    if sum(not record.is_empty for record in records) < 2:
        return None, []
    try:
        comparison = compare(records, Settings())
    except WarehouseError as error:
        return None, [f"NOT COMPARED: {one_line(error)}"]
    return comparison, list(warnings(comparison))


def _alone(summary: RunSummary) -> list[str]:
    """Return what limits the numbers of a run that is compared with nothing."""
    total = summary.num_planned
    missing = []
    if summary.num_not_run:
        missing.append(f"INCOMPLETE RUN: {summary.num_not_run} of {total} samples have not been run.")
    if summary.num_ungraded:
        missing.append(f"NOT GRADED: {summary.num_ungraded} of {total} samples are finished but not graded.")
    return [
        f"{summary.run_id}: {line}"
        for line in (
            *scripted(summary),
            *limited(summary),
            *repeated(summary),
            *mixed_code(summary),
            *missing,
            *unreadable(summary),
        )
    ]


def _timed(summary: RunSummary) -> list[str]:
    """Return from how many timing samples the latency of a sample alone is estimated."""
    at_one = summary.at_one
    if at_one is None:
        return []
    return [f"{summary.run_id}: one at a time, from {at_one.num_timed} of {counted(at_one.num_samples, 'sample')}"]


def _of_suite(run: OwnRun, recorded: str | None) -> list[str]:
    """Return that the warehouse lacks what has ended of a run, with the command that loads it."""
    if recorded is None and run.finished:
        command = f"{typed('warehouse.load')} {quote(str(run.prepared.run.path))}"
        ended = f"{run.finished} of {run.num_samples} samples have ended"
        return [f"{run.run_id}: {ended}, and the database has none of them: {command}"]
    return []


def _notes(lines: Sequence[str], runs: Mapping[str, OwnRun]) -> dict[str, set[str]]:
    """Return what limits the numbers, with the ids of the runs that it marks.

    A line is about the run that it names first. Where it begins with that, the mark says so, and runs of which the
    same is said share the note. Other ids become row and column, except where they are part of a path.
    """
    notes: dict[str, set[str]] = {}
    for line in lines:
        places = {found.start(): run_id for run_id in runs if (found := _id(run_id).search(line))}
        first = {places[min(places)]} if places else set()
        note = line.replace(_NO_FORCE, "")
        for run_id, run in runs.items():
            note = note.removeprefix(f"{run_id}: ")
            note = f"{run.row} on {run.dataset}".join(_id(run_id).split(note))
        notes.setdefault(note, set()).update(first)
    return notes


def _id(run_id: str) -> re.Pattern[str]:
    """Return what finds a run id that is no part of a path or of another id."""
    return re.compile(rf"(?<![\w/-]){re.escape(run_id)}(?![\w-])")


def _columns(runs: Sequence[OwnRun]) -> dict[str, str]:
    """Return the heading of each dataset, with its size where all of its runs have the same."""
    sizes: dict[str, set[str]] = {}
    for run in runs:
        spec = run.prepared.plan.spec
        whole = f" of {spec.dataset_size}" if spec.limited else ""
        sizes.setdefault(run.dataset, set()).add(f"{spec.num_problems}{whole} × {spec.samples}")
    return {name: f"{name} ({found.pop()})" if len(found) == 1 else name for name, found in sizes.items()}


def _within(comparison: Comparison | None, metrics: Sequence[str]) -> Iterator[str]:
    """Yield that intervals of speed-ups do not cover what differs between runs, where that is not known."""
    speeds = [row.speed for row in comparison.rows if row.speed and row.speed.ratio] if comparison else []
    if "speed-up" in metrics and any(speed.factor is None for speed in speeds):
        yield "Intervals of speed-ups hold within these runs; too few were repeated to know how times vary."


def _baselines(comparison: Comparison | None, runs: Mapping[str, OwnRun]) -> Iterator[str]:
    """Yield which row is the baseline, once for all datasets that have the same."""
    datasets: dict[str, list[str]] = {}
    for base in comparison.baselines if comparison else ():
        datasets.setdefault(runs[base.run.run_id].row, []).append(base.dataset)
    for label, names in datasets.items():
        where = "" if len(datasets) == 1 else f" of {', '.join(names)}"
        yield f"Baseline{where}: {label}."
