"""What every published table costs: GPU-hours with a latency from a sample of samples, and with every sample alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from harness.settings.launch_settings import Launch
from warehouse.papers import latency_sample, suite
from warehouse.papers.plan_costs import both_ways_of, estimated
from warehouse.papers.suite_runs import Reproduction, timed_runs
from warehouse.papers.vocabulary import TIMES


@dataclass(frozen=True, slots=True)
class Known:
    """GPU-hours of a suite's distinct runs."""

    hours: float
    num_runs: int
    num_without: int
    """Runs that have no estimate, and are not in the hours."""

    def __str__(self) -> str:
        """Return the hours, with the number of runs that are not in them."""
        if self.num_without == self.num_runs:
            return "unknown"
        return f"{self.hours:,.1f}" + (f", {self.num_without} unknown" if self.num_without else "")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a suite takes both ways."""

    name: str
    planned: Known
    """As the suite is planned."""
    alone: Known
    """With every sample alone where the suite has one sample in flight."""
    has_times: bool = True
    """Whether it measures times: where it does not, its runs are in batches and nothing is timed."""

    @property
    def saving(self) -> str:
        """What the plan takes less than every sample alone, in words; no saving of a latency where there is none."""
        if self.planned.num_without or self.alone.num_without or self.planned.hours >= self.alone.hours:
            return "–"
        return f"{100 * (1 - self.planned.hours / self.alone.hours):.0f} %" if self.has_times else "no times"


def costs(overrides: Mapping[str, Any], aligned: str | None, database: Path) -> Iterator[Cost]:
    """Yield the cost of every suite. Raises ValueError where an override is not valid for one."""
    for name in suite.names():
        chosen = suite.load(name)
        planned, alone = (
            _known(Reproduction(chosen, overrides, False, (), aligned, database, every_sample_alone=is_alone))
            for is_alone in (False, True)
        )
        has_times = any(metric.measure in TIMES for metric in chosen.metrics.values())
        yield Cost(name, planned, alone, has_times)


def _known(reproduction: Reproduction) -> Known:
    hours, num_without = 0.0, 0
    seen: list[Launch] = []
    runs, _ = timed_runs(reproduction, tuple(reproduction.suite.columns))
    for run in runs:
        if run.launch is None or run.launch in seen:
            continue
        seen.append(run.launch)
        ways = both_ways_of(reproduction, run)
        cost = None if ways else estimated(reproduction, run.launch, run.plan)
        num_without += ways is None and cost is None
        hours += ways.with_sample if ways else cost.gpu_hours if cost else 0.0
    return Known(hours, len(seen), num_without)


def show(found: Iterator[Cost], console: Console) -> None:
    """Print the table."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("suite", "runs", "GPU-hours", "every sample alone", "less"):
        table.add_column(heading, justify="left" if heading == "suite" else "right")
    has_untimed = False
    for cost in found:
        table.add_row(cost.name, str(cost.planned.num_runs), str(cost.planned), str(cost.alone), cost.saving)
        has_untimed = has_untimed or cost.saving == "no times"
    console.print(table)
    console.print(
        f"Runs that await a model of yours are left out; suites share runs, so all together take less than the sum. "
        f"GPU-hours: by recorded runs, else by what the papers publish, else unknown; "
        f"latency from {latency_sample.TIMED} samples of each run.",
        soft_wrap=not console.is_terminal,
    )
    if has_untimed:
        console.print(
            "no times: the suite measures none, so all its samples run in full batches and none is timed alone.",
            soft_wrap=not console.is_terminal,
        )
