"""Every run against its baseline, from the functions of `warehouse.compare`, as a figure and a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from shlex import quote

from warehouse.comparison import show
from warehouse.comparison.compared_runs import Run, read_runs
from warehouse.comparison.contrasts import Comparison, Row, Settings, compare
from warehouse.comparison.outcomes import num_shared_problems
from warehouse.comparison.show import pairing_warnings
from warehouse.database import Connection, WarehouseError
from warehouse.report import queries
from warehouse.report.charts import Dot, Dots, Reference
from warehouse.report.facts import Flips, RunFacts, by_regime, over_the_same_problems
from warehouse.report.tables import Figure, Section, Table, limited_label

_CELLS = slice(show.HEADERS.index("difference"), show.HEADERS.index("MDE") + 1)


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
    tables: list[Table] = []
    for comparison in differences.comparisons:
        for rows in _over_the_same_problems(runs, comparison):
            name = f"differences-{len(figures) + 1}" if figures else "differences"
            figures.append(_figure(runs, comparison, rows, name))
        if rows := [row for row in comparison.rows if row.contrast is not None]:
            tables.append(_table(runs, comparison, rows, differences.reasons))
    return Section("differences", "Differences from the baseline", "Differences", figures, tables)


def _over_the_same_problems(runs: Sequence[RunFacts], comparison: Comparison) -> list[list[Row]]:
    """Return the rows with a baseline in groups whose differences are over the same problems; a figure has one's."""
    problems = {run.summary.run_id: run.problems for run in runs}
    groups: dict[tuple[str, frozenset[tuple[str, str]]], list[Row]] = {}
    for row in comparison.rows:
        if row.contrast is not None:
            shared = problems[row.run.run_id] & problems[row.contrast.baseline]
            groups.setdefault((_regime(comparison, row.contrast.baseline), shared), []).append(row)
    return list(groups.values())


def _regime(comparison: Comparison, baseline: str) -> str:
    return next(row.run.summary.regime for row in comparison.rows if row.run.run_id == baseline)


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
    places = {run.summary.run_id: place for place, run in enumerate(runs)}
    dots = []
    for row in rows:
        assert row.contrast is not None
        difference, place = row.contrast.difference, places[row.run.run_id]
        verdict = show.contrast_cells(row.contrast)
        low, high = (None if end is None else 100 * end for end in (difference.low, difference.high))
        interval = "" if low is None else f" ({verdict[1]})"
        dots.append(Dot(runs[place].label, place, 100 * difference.estimate, low, high, f"{verdict[0]}{interval}"))
    margin, baselines = 100 * comparison.settings.margin, list(dict.fromkeys(_baseline(runs, row) for row in rows))
    title = f"pass@1 minus that of {' or '.join(baselines)}, percentage points"
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
        f"paired by problem. Solid: no difference. Dashed: the margin, −{margin:g} points; a run is shown to be not "
        "worse if its interval lies above it. The SQL gives the means; intervals and tests are those of python -m "
        "warehouse.compare."
    )
    pairs = [(row.run.run_id, row.contrast.baseline) for row in rows if row.contrast]
    return Figure(title, {name: chart}, caption, sql=queries.differences(pairs), command=_command(comparison))


def _command(comparison: Comparison) -> str:
    names = dict.fromkeys(row.run.run_id for row in comparison.rows)
    margin = 100 * comparison.settings.margin
    return f"python -m warehouse.compare {' '.join(map(quote, names))} --margin {margin:g} --all"


def _baseline(runs: Sequence[RunFacts], row: Row) -> str:
    assert row.contrast is not None
    return next(run.label for run in runs if run.summary.run_id == row.contrast.baseline)


def _table(runs: Sequence[RunFacts], comparison: Comparison, rows: Sequence[Row], reasons: Sequence[str]) -> Table:
    labels = {run.summary.run_id: limited_label(run) for run in runs}
    cells = [
        (
            labels[row.run.run_id],
            _baseline(runs, row),
            str(row.contrast.n if row.contrast else 0),
            *show.contrast_cells(row.contrast),
        )
        for row in rows
    ]
    names = ["not worse" if name == "non-inferior" else name.strip() for name in show.HEADERS[_CELLS]]
    names[1] = "95 % interval"
    columns = ("run", "baseline", "problems", *names)
    lines = [
        *reasons,
        *pairing_warnings(comparison),
        *show.baseline_lines(comparison),
        *show.contrast_legend(comparison),
    ]
    caption = " ".join(line if line.endswith(".") else f"{line}." for line in lines)
    caption = caption.replace("Non-inferior:", "Not worse (non-inferior):")
    places = [place for row in rows for place, run in enumerate(runs) if run.summary.run_id == row.run.run_id]
    return Table("differences", "Differences from the baseline", columns, cells, caption, places=places)


def overview(compared: Differences) -> Section:
    """Return the section with one line per setting and its speed-up in both regimes; empty without both."""
    found_tables: list[Table] = []
    for comparison in compared.comparisons:
        if found := show.regimes(comparison):
            headers, cells = show.regimes_table(found)
            columns = [header.replace("\n", " ") for header in headers]
            caption = " ".join([*(regime.heading for regime in found), show.regimes_legend(found)])
            name = f"regimes-{len(found_tables) + 1}" if found_tables else "regimes"
            found_tables.append(Table(name, "Latency and throughput", columns, cells, caption))
    return Section("regimes", "Latency and throughput", "Regimes", (), found_tables)


def drawn_together(runs: Sequence[RunFacts]) -> dict[str, list[RunFacts]]:
    """Return the runs in groups of one regime over the same problems, by a short name; a figure has one group's."""
    regimes = by_regime(runs)
    if len(regimes) == 1:
        return over_the_same_problems(runs)
    return {
        f"{regime}: {name}": members
        for regime, group in regimes.items()
        for name, members in over_the_same_problems(group).items()
    }


def within(pairs: Sequence[Flips], runs: Sequence[RunFacts]) -> list[Flips]:
    """Return the pairs of runs of one regime."""
    regimes = [{run.place for run in group} for group in by_regime(runs).values()]
    return [pair for pair in pairs if any({pair.first, pair.second} <= regime for regime in regimes)]


def tables_by_regime(make: Callable[[Sequence[RunFacts]], Table | None], runs: Sequence[RunFacts]) -> list[Table]:
    """Return a table of the runs, or one for each regime."""
    regimes = by_regime(runs)
    made = [(regime, group, make(group)) for regime, group in regimes.items()]
    return [
        table
        if len(regimes) == 1
        else replace(
            table,
            name=f"{table.name}-{regime}",
            title=f"{table.title}: {regime}",
            places=[group[place].place for place in table.places],
        )
        for regime, group, table in made
        if table is not None
    ]
