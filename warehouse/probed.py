"""Print the results of a probe: `python -m warehouse.probed RUN`."""

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
"""Metrics of the table `estimate` with their headings; all in percent."""
ORACLE = {
    "worth_of_drafts": "every draft kept",
    "worth_of_judge": "the judge",
    "worth": "the oracle",
    "worth_of_target": "every step by the target",
}
"""Rules for choosing between the draft's and the target's step, by the metric that measures the chosen steps."""
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
    "Rates are in percent, with 95 % intervals over problems, and cover the decisions that do not end the reply. "
    "Loss of a step: how much less often the target's answer is correct after the step than after the target's own "
    "step. A step counts as wrong in proportion to its loss. Wrong accepted: share of the loss of all proposals "
    "that is due to accepted ones. With few wrong steps, this share's interval misses the true value more often than "
    "5 times in 100; use the losses instead. Right refused: share of the right steps that were rejected. Third: third "
    "of the chain. Threshold: results if the judge had used another threshold, from the stored scores. Oracle "
    "(Arbitrage, arXiv 2512.05033): takes the better step, or the draft's if both are equal. Half of the "
    "continuations select the step and the other half measure it; with few continuations, the result is a lower "
    "bound."
)


class NoProbe(WarehouseError):
    """The run is not a probe, or its points are not loaded. The message is one line."""


def found(connection: Connection, run_id: str) -> dict[str, Any]:
    """Return the results of a probe as a record. Raises NoProbe."""
    from warehouse.database import rows

    [points] = rows(connection, _POINTS, {"run_id": run_id})
    if not points["num_points"]:
        raise NoProbe(f"{run_id} has no points of a probe; create a probe with: python -m jobs probe RUN")
    estimates = [dict(row) for row in rows(connection, _ESTIMATES, {"run_id": run_id})]
    judged = rows(connection, _JUDGED, {"run_id": points["source_run_id"]})
    return {"run_id": run_id, **points, "estimates": estimates, "judge_auroc": dict(judged[0]) if judged else None}


def lines(probe: Record) -> Iterator[str]:
    """Yield the lines above a probe's table."""
    yield (
        f"Probe of {probe['source_run_id']}: {counted(probe['num_points'], 'point')}, {probe['num_accepted']} with "
        f"an accepted draft; {counted(probe['num_rollouts'] or 0, 'continuation')} per point with the draft's step, "
        "and as many without."
    )
    yield from left_out(probe)
    if missing := probe["num_points"] - probe["num_known"]:
        yield f"UNFINISHED: {counted(missing, 'point lacks', 'points lack')} graded continuations."


def left_out(probe: Record) -> Iterator[str]:
    """Yield a line with the number of decisions that cannot be probed, if there are any."""
    if number := probe["num_ending"]:
        yield f"Excluded: {counted(number, 'decision')} on proposals that end the reply, so nothing can follow."


def table(probe: Record) -> Table:
    """Return the rates as a table: one row for all decisions, per third of the chain, and per threshold."""
    columns = [Column(""), *(Column(heading, is_right=True) for heading in RATES.values())]
    return Table(columns, list(_cells(probe["estimates"])))


def _cells(estimates: Sequence[Record]) -> Iterator[tuple[str, ...]]:
    """Yield a row of cells per group of decisions: its name, and the rates in the order of RATES."""
    groups: dict[tuple[str, str], dict[str, Record]] = {}
    for row in estimates:
        groups.setdefault((row["group_kind"] or "", row["group_value"] or ""), {})[row["metric"]] = row
    for (kind, value), by_metric in groups.items():
        if any(metric in by_metric for metric in RATES):
            yield f"{_GROUPS[kind]} {value}".strip(), *(_cell(by_metric.get(metric)) for metric in RATES)


def areas(probe: Record) -> Iterator[str]:
    """Yield the AUROC of the judge's score for step values and, for comparison, for final answers."""
    own = next((row for row in probe["estimates"] if row["metric"] == "probe_auroc"), None)
    if own is not None and own["estimate"] is not None:
        yield f"AUROC of the judge's score for predicting step value: {_area(own, 'estimate')}."
    if probe["judge_auroc"] is not None and probe["judge_auroc"]["auroc"] is not None:
        area = _area(probe["judge_auroc"], "auroc")
        yield f"AUROC of the score for predicting a correct final answer (not the step's effect): {area}."


def oracle(probe: Record) -> Iterator[str]:
    """Yield the oracle's results, compared with the judge and with each model alone."""
    by_metric = {row["metric"]: row for row in probe["estimates"]}
    cells = {name: _cell(by_metric.get(f"probe_oracle_{name}")) for name in ORACLE}
    if all(cell == NOTHING for cell in cells.values()):
        yield f"Oracle: {NOTHING}."
        return
    yield f"Correct answers after a step: {', '.join(f'{ORACLE[name]} {cell}' for name, cell in cells.items())}."
    yield (
        f"The oracle takes the target's step in {_cell(by_metric['probe_oracle_escalated'])} of the decisions, and "
        f"is better than the judge by {_cell(by_metric['probe_oracle_over_judge'])}."
    )


def refused(probe: Record) -> Iterator[str]:
    """Yield why some metrics are not available."""
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
    """Print a probe's result as text."""
    below = (*oracle(probe), *refused(probe), *areas(probe), EXPLAINED)
    page: Page = [*map(Line, lines(probe)), table(probe), *map(Line, below)]
    Screen(out, is_fitted=True).show(page)


@click.command(cls=WarehouseCommand)
@click.argument("run", metavar="RUN", type=RunName())
@database_option()
@format_option(("table", "json"), default="table")
@wait_option()
def main(run: str, database: Path | None, output_format: str | None, wait_seconds: float) -> None:
    """Print how often a judge accepts wrong steps and rejects right ones, from a probe of the judge's run.

    RUN: the run of the probe, created by python -m jobs probe.
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
