"""What every published table costs: GPU-hours with a latency from a sample of samples, and with every sample alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from harness.launch_options import Launch
from warehouse.papers import latency_sample, suite
from warehouse.papers.plan_costs import both_ways_of, estimated, machine_of
from warehouse.papers.suite_runs import Reproduction, timed_runs
from warehouse.papers.vocabulary import TIMES


@dataclass(frozen=True, slots=True)
class Cost:
    """GPU-hours of a suite's distinct runs."""

    name: str
    num_runs: int
    planned: float
    """As the suite is planned."""
    alone: float
    """With every sample alone where the suite has one sample in flight."""
    num_without: int
    """Runs that have no estimate."""
    has_times: bool = True
    """Whether it measures times: where it does not, its runs are in batches and nothing is timed."""

    @property
    def saving(self) -> str:
        """What the plan takes less than every sample alone, in words; no saving of a latency where there is none."""
        if self.planned >= self.alone:
            return "–"
        return f"{100 * (1 - self.planned / self.alone):.0f} %" if self.has_times else "no times"


def costs(overrides: Mapping[str, Any], aligned: str | None, database: Path) -> Iterator[Cost]:
    """Yield the cost of every suite. Raises ValueError where an override is not valid for one."""
    for name in suite.names():
        chosen = suite.load(name)
        hours = {}
        for every_sample_alone in (False, True):
            reproduction = Reproduction(
                chosen, overrides, False, (), aligned, None, database, every_sample_alone=every_sample_alone
            )
            hours[every_sample_alone] = _hours(reproduction)
        (planned, num_runs, num_without), (alone, *_) = hours[False], hours[True]
        has_times = any(metric.measure in TIMES for metric in chosen.metrics.values())
        yield Cost(name, num_runs, planned, alone, num_without, has_times)


def _hours(reproduction: Reproduction) -> tuple[float, int, int]:
    """Return the GPU-hours of the distinct runs, their number, and that of those without an estimate."""
    machine, hours, num_without = machine_of(reproduction), 0.0, 0
    seen: list[Launch] = []
    runs, _ = timed_runs(reproduction, tuple(reproduction.suite.columns))
    for run in runs:
        if run.launch is None or run.launch in seen:
            continue
        seen.append(run.launch)
        asked = run.launch.latency_sample
        ways = both_ways_of(reproduction, run, machine, asked) if asked else None
        cost = None if ways else estimated(reproduction, run, machine)
        num_without += ways is None and cost is None
        hours += ways.with_sample if ways else cost.gpu_hours if cost else 0.0
    return hours, len(seen), num_without


def show(found: Iterator[Cost], console: Console) -> None:
    """Print the table."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("suite", "runs", "GPU-hours", "every sample alone", "less"):
        table.add_column(heading, justify="left" if heading == "suite" else "right")
    num_without, has_untimed = 0, False
    for cost in found:
        table.add_row(cost.name, str(cost.num_runs), f"{cost.planned:,.1f}", f"{cost.alone:,.1f}", cost.saving)
        num_without += cost.num_without
        has_untimed = has_untimed or cost.saving == "no times"
    console.print(table)
    console.print(
        f"Runs that await a model of yours are left out; suites share runs, so all together take less than the sum. "
        f"GPU-hours: by recorded runs, else by what the papers publish, else by the latency model; "
        f"latency from {latency_sample.TIMED} samples of each run.",
        soft_wrap=not console.is_terminal,
    )
    if has_untimed:
        console.print(
            "no times: the suite measures none, so all its samples run in full batches and none is timed alone.",
            soft_wrap=not console.is_terminal,
        )
    if num_without:
        console.print(f"{num_without} runs have no estimate and are not in it.")
