"""The recorded runs that a published table is made of: those of the launches, or of their other way of timing.

Ratios are within a column, and never between two ways of timing. So a column is read in the way in which most of its
samples are finished, and a run that was recorded in the other way alone stands in it without ratios to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.settings.launch_settings import Launch
from warehouse.database import Connection
from warehouse.measures import runs_like
from warehouse.papers import conditions
from warehouse.papers.entries import SuiteRun
from warehouse.timed_measures import progress

Row = Mapping[str, object]
"""A row of `warehouse.measures.runs_like`."""


def recorded_runs(
    connection: Connection, runs: Sequence[SuiteRun], *, exact_scale: bool, either_way: bool
) -> dict[tuple[str, str], Row | None]:
    """Return the recorded run of each by the label of its row and the key of its column; None: there is none.

    `exact_scale`: only those of the launch's number of problems and samples. `either_way`: also those of which the
    latency was measured the other way than that of the launch.
    """
    found: dict[tuple[str, str], Row | None] = {}
    for column in dict.fromkeys(run.plan.column for run in runs):
        members = [run for run in runs if run.plan.column == column]
        planned = [_find(connection, run.launch, exact_scale) for run in members]
        other = [_find(connection, run.other_way, exact_scale) if either_way else None for run in members]
        if sum(_num_finished(connection, row) for row in planned) < sum(
            _num_finished(connection, row) for row in other
        ):
            planned, other = other, planned
        for run, row, instead in zip(members, planned, other, strict=True):
            found[run.plan.row.label, column] = row or instead
    return found


def _num_finished(connection: Connection, row: Row | None) -> int:
    """Return how many samples of a run are finished; none of batches of which no sample was timed alone."""
    if row is None or (row["concurrency"] != 1 and progress(connection, str(row["run_id"])) is None):
        return 0
    return int(str(row["num_finished"]))


def _find(connection: Connection, launch: Launch | None, exact_scale: bool) -> Row | None:
    if launch is None:
        return None
    columns = conditions.run_columns(launch)
    if exact_scale:
        columns |= {"num_problems": conditions.num_problems(launch), "samples": launch.samples}
    return next(iter(runs_like(connection, columns)), None)
