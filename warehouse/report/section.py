"""What the page above the trace viewer is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from warehouse.report.charts.svg import Chart
from warehouse.report.facts import RunFacts
from warehouse.report.queries import copyable
from warehouse.report.tables import Table


@dataclass(frozen=True)
class Figure:
    """Charts with a common caption."""

    title: str
    charts: Mapping[str, Chart]
    """By the name of the chart's file without its ending, which is unique in the report."""
    caption: str
    keyed: Sequence[int] = ()
    """Indices of the runs in the key below the charts."""
    sql: str = ""
    """The statement behind the figure, for `warehouse.query`."""
    command: str = ""
    """The command that prints what SQL does not give; empty: none."""


@dataclass(frozen=True)
class Section:
    """A section of the page."""

    name: str
    """Anchor in the page."""
    title: str
    short: str
    """Title in the page's navigation."""
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[Table] = field(default=())
    warnings: Sequence[str] = field(default=())
    """Lines for the top of the report."""


def behind(statement: str, runs: Sequence[RunFacts]) -> str:
    """Return the statement behind a figure of these runs."""
    return copyable(statement, [run.summary.run_id for run in runs])
