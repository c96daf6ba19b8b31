"""Print what a probe found: `python -m warehouse.probed RUN`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from harness.cli.messages import counted
from harness.cli.number_format import NOTHING, fixed, span
from harness.cli.screen import Column, Line, Page, Screen, Table
from jobs.arguments import RunName
from warehouse.files import WarehouseError
from warehouse.options import WarehouseCommand, database_option, default_database, format_option, wait_option

if TYPE_CHECKING:
    from rich.console import Console

    from warehouse.database import Connection, Record

RATES = {
    "probe_false_acceptance": "wrong accepted",
    "probe_false_rejection": "right refused",
    "probe_loss_of_accepted": "loss, accepted",
    "probe_loss_of_refused": "loss, refused",
}
"""Metrics of the table `estimate` and their headings; all in percent."""
ORACLE = {
    "worth_of_drafts": "every draft kept",
    "worth_of_judge": "the judge",
    "worth": "the oracle",
    "worth_of_target": "every step by the target",
}
"""Rules that take one of two steps, by the metric of the worth of what they take; in percent."""
_GROUPS = {"": "all", "third": "third", "threshold": "threshold"}
_POINTS = """
SELECT any_value(source_run_id) AS source_run_id, count(*) AS num_points, count(*) FILTER (accepted) AS num_accepted,
    count(*) FILTER (num_draft_rollouts > 0 AND num_own_rollouts > 0) AS num_known,
    max(num_draft_rollouts) AS num_rollouts, any_value(kind) AS kind, any_value(num_ending) AS num_ending
FROM probe WHERE run_id = $run_id
"""
_ESTIMATES = """
SELECT metric, group_kind, group_value, n, num_samples, estimate, low_95, high_95, interval_kind
FROM counted_estimate WHERE run_id = $run_id AND metric LIKE 'probe_%'
ORDER BY group_kind NULLS FIRST, try_cast(group_value AS DOUBLE), metric
"""
_JUDGED = """
SELECT auroc, low_95, high_95 FROM judge_auroc WHERE run_id = $run_id
ORDER BY kind NOT IN ('choice', 'score'), kind LIMIT 1
"""
EXPLAINED = (
    "In percent, with 95 % intervals over problems, of the decisions that do not end the reply. Loss of a step: how "
    "much less often the target ends right behind it than from where it began, so that the step there is its own. A "
    "step counts as wrong to the extent of its loss. Wrong accepted: of all that the draft's proposals would cost, the "
    "part that accepted ones cost; where wrong steps are few its interval misses more often than 5 times in 100, and "
    "the losses say more. Right refused: of the steps that cost nothing, the share that was refused. "
    "Third: of the chain. Threshold: what the judge would have accepted at another one, from the stored numbers. "
    "Oracle (Arbitrage, arXiv 2512.05033): takes the step that is worth more, at equal worth the draft's. One half of "
    "the continuations chooses and the other values, so with few of them its worth is a lower bound of the true one's."
)


class NoProbe(WarehouseError):
    """The run is no probe, or its points are not loaded; the message is one line."""


def found(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return what a probe found, as numbers for programs. Raises NoProbe."""
    from warehouse.database import rows

    [points] = rows(connection, _POINTS, {"run_id": run_id})
    if not points["num_points"]:
        raise NoProbe(f"{run_id} is no probe of a run; one is made by: python -m jobs probe RUN")
    estimates = [dict(row) for row in rows(connection, _ESTIMATES, {"run_id": run_id})]
    judged = rows(connection, _JUDGED, {"run_id": points["source_run_id"]})
    return {"run_id": run_id, **points, "estimates": estimates, "judge_auroc": dict(judged[0]) if judged else None}


def lines(probe: Record) -> Iterator[str]:
    """Yield the sentences that stand around a probe's table."""
    yield (
        f"Probe of {probe['source_run_id']}: {counted(probe['num_points'], 'point')}, {probe['num_accepted']} where "
        f"the draft was accepted, with {counted(probe['num_rollouts'] or 0, 'continuation')} each way."
    )
    yield from left_out(probe)
    if missing := probe["num_points"] - probe["num_known"]:
        yield f"UNFINISHED: {counted(missing, 'point has', 'points have')} no graded continuations yet."


def left_out(probe: Record) -> Iterator[str]:
    """Yield how many decisions no probe can look at; nothing where there are none, or it is not known."""
    if number := probe["num_ending"]:
        yield f"{counted(number, 'decision')} about the end of the reply cannot be continued and are left out."


def table(probe: Record) -> Table:
    """Return the rates as a table: a row for all decisions, for each third of the chain and for each threshold."""
    columns = [Column(""), *(Column(heading, is_right=True) for heading in RATES.values())]
    return Table(columns, list(_cells(probe["estimates"])))


def _cells(estimates: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield a row of cells for each group of decisions: its name, and the rates in the order of RATES."""
    groups: dict[tuple[str, str], dict[str, Record]] = {}
    for row in estimates:
        groups.setdefault((row["group_kind"] or "", row["group_value"] or ""), {})[row["metric"]] = row
    for (kind, value), by_metric in groups.items():
        if any(metric in by_metric for metric in RATES):
            yield f"{_GROUPS[kind]} {value}".strip(), *(_cell(by_metric.get(metric)) for metric in RATES)


def areas(probe: Record) -> Iterator[str]:
    """Yield how well the decisions' numbers tell wrong from right steps, and beside it the correlation with answers."""
    own = next((row for row in probe["estimates"] if row["metric"] == "probe_auroc"), None)
    if own is not None and own["estimate"] is not None:
        yield f"AUROC of the judge's number against what the step was worth: {_area(own, 'estimate')}."
    if probe["judge_auroc"] is not None and probe["judge_auroc"]["auroc"] is not None:
        yield f"Against the final answer of the sample, which is a correlation: {_area(probe['judge_auroc'], 'auroc')}."


def oracle(probe: Record) -> Iterator[str]:
    """Yield what an oracle would make of the decisions, next to the judge and to either model alone."""
    by_metric = {row["metric"]: row for row in probe["estimates"]}
    cells = {name: _cell(by_metric.get(f"probe_oracle_{name}")) for name in ORACLE}
    if all(cell == NOTHING for cell in cells.values()):
        yield f"Oracle: {NOTHING}."
        return
    yield f"Right answers behind a step: {', '.join(f'{ORACLE[name]} {cell}' for name, cell in cells.items())}."
    yield (
        f"The oracle takes the target's step at {_cell(by_metric['probe_oracle_escalated'])} of the decisions, and "
        f"is better than the judge by {_cell(by_metric['probe_oracle_over_judge'])}."
    )


def refused(probe: Record) -> Iterator[str]:
    """Yield why some numbers are not given."""
    reasons = dict.fromkeys(row["interval_kind"] for row in probe["estimates"] if row["estimate"] is None)
    if reasons:
        yield f"{NOTHING}: {'; '.join(reason.removeprefix('none: ') for reason in reasons)}."


def _cell(row: Record | None) -> str:
    if row is None or row["estimate"] is None:
        return NOTHING
    return f"{fixed(row['estimate'], 1, 100)} ({span(row['low_95'], row['high_95'], 0, 100).replace(' to ', '–')})"


def _area(row: Record, name: str) -> str:
    return f"{fixed(row[name], 3)} ({span(row['low_95'], row['high_95'], 3)})"


def print_found(probe: Record, out: IO[str] | Console) -> None:
    """Print a probe's result for people."""
    below = (*oracle(probe), *refused(probe), *areas(probe), EXPLAINED)
    page: Page = [*map(Line, lines(probe)), table(probe), *map(Line, below)]
    Screen(out, is_fitted=True).show(page)


@click.command(cls=WarehouseCommand)
@click.argument("run", metavar="RUN", type=RunName())
@database_option()
@format_option(("table", "json"), default="table")
@wait_option()
def main(run: str, database: Path | None, output_format: str | None, wait_seconds: float) -> None:
    """Print how often a judge accepts wrong steps and refuses right ones, as a probe of its run found.

    RUN is the run of the probe, which python -m jobs probe makes.
    """
    from warehouse.comparison.outcomes import resolve
    from warehouse.database import reader

    with reader(database or default_database(run), wait_seconds) as connection:
        probe = found(connection, resolve(connection, run))
    if output_format == "json":
        json.dump(probe, sys.stdout, indent=2)
        print()
    else:
        print_found(probe, sys.stdout)


if __name__ == "__main__":
    main(prog_name="python -m warehouse.probed")
