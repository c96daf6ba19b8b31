"""Runs with one sample in flight and runs with several, apart: their times answer different questions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from warehouse.comparison import show_regimes
from warehouse.report.differences import Differences
from warehouse.report.facts import Flips, RunFacts
from warehouse.report.problem_sets import by_regime, over_the_same_problems
from warehouse.report.section import Section
from warehouse.report.tables import Table


def overview(compared: Differences) -> Section:
    """Return the section with one line per setting and its speed-up in both regimes; empty without both."""
    found_tables: list[Table] = []
    for comparison in compared.comparisons:
        if found := show_regimes.regimes(comparison):
            columns = [header.replace("\n", " ") for header in show_regimes.headers(found)]
            caption = " ".join([*(regime.heading for regime in found), show_regimes.legend(found)])
            name = f"regimes-{len(found_tables) + 1}" if found_tables else "regimes"
            found_tables.append(Table(name, "Latency and throughput", columns, show_regimes.cells(found), caption))
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


def tables(make: Callable[[Sequence[RunFacts]], Table | None], runs: Sequence[RunFacts]) -> list[Table]:
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
