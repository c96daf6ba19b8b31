"""Every run against its baseline, from the functions of `warehouse.compare`, as a figure and a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from shlex import quote

from warehouse.comparison import show
from warehouse.comparison.compared_runs import Run, read_runs
from warehouse.comparison.contrasts import Comparison, Row, Settings, compare
from warehouse.comparison.outcomes import num_shared_problems
from warehouse.comparison.show import pairing_warnings
from warehouse.database import Connection, WarehouseError
from warehouse.report.charts import Dot, Dots, Reference
from warehouse.report.facts import Estimate, RunFacts
from warehouse.report.run_tables import Figure, RunTable, Section, limited_label, run_table


@dataclass(frozen=True)
class Differences:
    """The comparisons that the runs of a report allow."""

    comparisons: Sequence[Comparison]
    """Usually one; runs over disjoint problems are in different ones."""
    reasons: Sequence[str]
    """Why runs are in none of them."""


def read_differences(
    connection: Connection, run_ids: Sequence[str], settings: Settings, baseline: str | None = None
) -> Differences:
    """Compare the runs with their baselines as `warehouse.compare` does; runs that share no problem are kept apart.

    Raises WarehouseError where `baseline`, a run id, is given and not comparable.
    """
    if len(run_ids) < 2:
        return Differences((), ())
    runs = read_runs(connection, run_ids, votes=False)
    try:
        return Differences([compare(runs, settings, baseline)], ())
    except WarehouseError:
        if baseline is not None:
            raise
    comparisons, reasons = [], []
    for group in _sharing_problems(runs):
        try:
            comparisons.append(compare(group, settings))
        except WarehouseError as error:
            reasons.append(str(error))
    return Differences(comparisons, reasons)


def section(runs: Sequence[RunFacts], differences: Differences) -> Section:
    """Return the section on differences, empty where no run has a baseline among the others."""
    figures: list[Figure] = []
    tables: list[RunTable] = []
    for comparison in differences.comparisons:
        for rows in _over_the_same_problems(runs, comparison):
            name = f"differences-{len(figures) + 1}" if figures else "differences"
            figures.append(_figure(runs, comparison, rows, name))
        if rows := [row for row in comparison.rows if row.contrast is not None]:
            tables.append(_table(runs, comparison, rows, differences.reasons))
    return Section("differences", "Differences from the baseline", figures, tables)


def _over_the_same_problems(runs: Sequence[RunFacts], comparison: Comparison) -> list[list[Row]]:
    """Return the rows by their baseline and the problems that both have; a figure has one group's."""
    problems = {run.summary.run_id: run.problems for run in runs}
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[Row]] = {}
    for row in comparison.rows:
        if row.contrast is not None:
            shared = problems[row.run.run_id] & problems[row.contrast.baseline]
            groups.setdefault((row.contrast.baseline, shared), []).append(row)
    return list(groups.values())


def _sharing_problems(runs: Sequence[Run]) -> list[list[Run]]:
    """Return the runs in groups, in which every run shares a problem of its dataset with an earlier one."""
    groups: list[list[Run]] = []
    for run in runs:
        group = next((group for group in groups if any(_share_problems(run, other) for other in group)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return groups


def _share_problems(run: Run, other: Run) -> bool:
    is_same_dataset = run.dataset == other.dataset
    return is_same_dataset and num_shared_problems(run.outcomes, other.outcomes) > 0


def _figure(runs: Sequence[RunFacts], comparison: Comparison, rows: Sequence[Row], name: str) -> Figure:
    members = {run.summary.run_id: run for run in runs}
    dots = []
    for row in rows:
        assert row.contrast is not None
        difference, run = row.contrast.difference, members[row.run.run_id]
        verdict = show.contrast_cells(row.contrast)
        low, high = (None if end is None else 100 * end for end in (difference.low, difference.high))
        interval = "" if low is None else f" ({verdict[1]})"
        value = Estimate(100 * difference.estimate, row.contrast.n, low, high)
        dots.append(Dot(run.label, run.place, value, f"{verdict[0]}{interval}"))
    margin = 100 * comparison.settings.margin
    chart = Dots(
        dots,
        "difference in pass@1 (points)",
        "Difference in accuracy of each run from its baseline, with interval",
        low=-100.0,
        high=100.0,
        references=[Reference(0.0, is_dashed=False), Reference(-margin, is_dashed=True)],
    )
    caption = (
        "Mark: mean over the problems that both runs have, of the samples that neither lacks. Line: 95 % interval, "
        f"paired by problem. Solid: no difference. Dashed: the margin, −{margin:g} points."
    )
    names = dict.fromkeys(row.run.run_id for row in comparison.rows)
    command = f"python -m warehouse.compare {' '.join(map(quote, names))} --margin {margin:g} --all"
    title = f"pass@1 minus that of {_baseline(members, rows[0])}, percentage points"
    return Figure(name, title, chart, caption, command=command)


def _baseline(members: Mapping[str, RunFacts], row: Row) -> str:
    assert row.contrast is not None
    return members[row.contrast.baseline].label


def _table(runs: Sequence[RunFacts], comparison: Comparison, rows: Sequence[Row], reasons: Sequence[str]) -> RunTable:
    members = {run.summary.run_id: run for run in runs}
    cells = [
        (
            limited_label(members[row.run.run_id]),
            _baseline(members, row),
            str(row.contrast.n if row.contrast else 0),
            *show.contrast_cells(row.contrast),
        )
        for row in rows
    ]
    lines = [
        *reasons,
        *pairing_warnings(comparison),
        *show.baseline_lines(comparison),
        *show.contrast_legend(comparison),
    ]
    caption = " ".join(line if line.endswith(".") else f"{line}." for line in lines)
    columns, places = (
        ("run", "baseline", "problems", *show.CONTRAST_HEADERS),
        [members[row.run.run_id].place for row in rows],
    )
    return run_table("differences", "Differences from the baseline", columns, cells, caption, places=places)
