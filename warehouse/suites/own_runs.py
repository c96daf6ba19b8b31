"""The runs of a suite of one's own: the row and the column that each belongs to, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from jobs import suite as suites
from jobs.preparation import PreparedLaunch
from jobs.run.endings import by_shard, read_endings
from jobs.timing import request
from warehouse.own_tables.rows import row_labels

State = Literal["done", "partly done", "missing"]


@dataclass(frozen=True)
class OwnRun:
    """One run of the suite."""

    number: int
    """Place of its launch in the suite."""
    prepared: PreparedLaunch
    row: str
    finished: int
    """Samples that have ended, by the run folder."""
    to_time: int = 0
    """Samples that are still to be timed one at a time (`latency-sample`)."""

    @property
    def run_id(self) -> str:
        """Name of the run folder, whether or not it exists."""
        return self.prepared.run.path.name

    @property
    def dataset(self) -> str:
        """The column of the run."""
        return self.prepared.plan.spec.dataset

    @property
    def num_samples(self) -> int:
        """Number of samples of the run."""
        return self.prepared.plan.spec.num_samples

    @property
    def state(self) -> State:
        """How far the run is."""
        return state_of([self])


def own_runs(suite: suites.Suite, columns: Sequence[str] = ()) -> list[OwnRun]:
    """Return every run of a suite once, in the order of the file; columns: only these datasets, or all.

    Writes nothing. Raises ValueError for an unknown column, and what planning a launch raises.
    """
    distinct: dict[str, tuple[int, PreparedLaunch]] = {}
    for number, prepared in enumerate(suites.prepare(suite, None, accept_code_change=True)):
        distinct.setdefault(prepared.run.path.name, (number, prepared))
    named = suite.rows or (None,) * len(suite.launches)
    specs = [prepared.plan.spec for _, prepared in distinct.values()]
    labels = row_labels(specs, [named[number] for number, _ in distinct.values()])
    datasets = list(dict.fromkeys(spec.dataset for spec in specs))
    if unknown := sorted(set(columns) - set(datasets)):
        raise ValueError(f"--column {unknown[0]}: {suite.name} has {', '.join(datasets)}")
    return [
        OwnRun(
            number,
            prepared,
            label,
            _finished(prepared),
            request.num_left(prepared.launch.latency_sample, prepared.run),
        )
        for (number, prepared), label in zip(distinct.values(), labels, strict=True)
        if not columns or prepared.plan.spec.dataset in columns
    ]


def state_of(runs: Sequence[OwnRun]) -> State:
    """Return how far several runs are together, such as those of a row."""
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
