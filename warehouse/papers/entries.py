"""What stands in a suite's table for each run: ours, the published value, and why the two do not compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.settings.launch_settings import Launch
from warehouse import timed_measures
from warehouse.database import Connection
from warehouse.measures import measure
from warehouse.pairs import unlike_baseline
from warehouse.papers import conditions, suite, vocabulary
from warehouse.papers.table import Cell, Entry, Ours

_Row = Mapping[str, object]
"""A row of `warehouse.measures.runs_like`."""


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """One run of the suite, as the paper has it and as it is asked for here."""

    plan: suite.Planned
    paper: Launch | None
    """The launch of the suite's flags alone; None where the harness lacks what the row needs."""
    launch: Launch | None
    """The launch of the suite's flags with the overrides."""
    awaits: str | None
    other_way: Launch | None = None
    """The launch by which the same run's latency is measured the other way, where both ways are there."""


def entries_of(
    connection: Connection,
    chosen: suite.Suite,
    runs: Sequence[SuiteRun],
    recorded: Mapping[tuple[str, str], _Row | None],
) -> Iterator[tuple[tuple[str, str], Entry]]:
    """Yield an entry for each run by the label of its row and the key of its column; `recorded` is by these too."""
    plans = {(run.plan.row.label, run.plan.column): run for run in runs}
    for key, run in plans.items():
        row = recorded[key]
        if row is None or run.paper is None:
            cells = {name: Cell(None, run.plan.published(chosen, name)) for name in chosen.metrics}
            yield key, Entry(None, cells, {})
            continue
        yield key, _entry(connection, chosen, plans, recorded, run, row)


def _entry(
    connection: Connection,
    chosen: suite.Suite,
    plans: Mapping[tuple[str, str], SuiteRun],
    recorded: Mapping[tuple[str, str], _Row | None],
    run: SuiteRun,
    row: _Row,
) -> Entry:
    assert run.paper is not None
    timed = _timed(connection, run, row)
    cells, reasons = {}, {}
    for name in chosen.metrics:
        baseline_key = (chosen.baseline(run.plan.row, name) or "", run.plan.column)
        baseline, base_row = plans.get(baseline_key), recorded.get(baseline_key)
        printed = run.plan.published(chosen, name)
        taken = chosen.measured(run.plan.row, name)
        of_baseline = chosen.measured(baseline.plan.row, name)[1] if baseline else None
        cells[name] = Cell(_ours(connection, taken, of_baseline, row, base_row, timed), printed)
        if printed is None:
            continue
        reasons[name] = conditions.why_not(chosen, run.plan, run.paper, row, name, timed)
        if baseline is not None and baseline.paper is not None and base_row is not None and base_row != row:
            of_base = _timed(connection, baseline, base_row)
            against = conditions.why_not(chosen, baseline.plan, baseline.paper, base_row, name, of_base)
            reasons[name] += [f"its baseline: {reason}" for reason in against if reason not in reasons[name]]
            across = baseline.paper.concurrency != run.paper.concurrency or (timed is not None and of_base is not None)
            reasons[name] += unlike_baseline(row, base_row, across_concurrencies=across)
    choices = conditions.choices(chosen, run.plan, run.paper, row, timed)
    return Entry(str(row["run_id"]), cells, reasons, choices, timed)


def _timed(connection: Connection, run: SuiteRun, row: _Row) -> tuple[int, int, int] | None:
    """Return how many samples of a run were timed, were to be, and are there.

    None where the paper's has several samples in flight, and where the run's times are those of its samples. Those of a
    run in batches that is to be timed are not, also before the first sample is timed.
    """
    if run.paper is None or run.paper.concurrency != 1:
        return None
    found = timed_measures.progress(connection, str(row["run_id"]))
    asked = next((one.latency_sample for one in (run.launch, run.other_way) if one and one.latency_sample), None)
    if found is None and asked and row["concurrency"] != 1:
        return 0, asked, int(str(row["samples"])) * int(str(row["num_problems"]))
    return found


def _ours(
    connection: Connection,
    taken: tuple[vocabulary.Measure | None, str],
    of_baseline: str | None,
    row: _Row,
    baseline: _Row | None,
    timed: tuple[int, int, int] | None,
) -> Ours | None:
    """Return the value of a measure by a stopwatch; `of_baseline` is the baseline's stopwatch.

    The times of a run of which samples were timed one at a time are estimated from these.
    """
    name, stopwatch = taken
    if name is None or (timed is not None and name in timed_measures.NOT_ESTIMATED):
        return None
    if timed is not None and name in timed_measures.MEASURES:
        measured = timed_measures.measure(connection, name, row, baseline, stopwatch, of_baseline)
    else:
        baseline_id = None if baseline is None else str(baseline["run_id"])
        measured = measure(connection, name, str(row["run_id"]), baseline_id, stopwatch, of_baseline)
    return None if measured is None else Ours(measured.value, measured.low, measured.high)
