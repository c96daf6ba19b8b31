"""The plan of a published table: its runs with their flags, and what they take each and together."""

from __future__ import annotations

from rich.console import Console

from harness.settings import layers
from harness.settings.launch_settings import Launch
from jobs.engine_plan import planned_starts
from warehouse.papers import conditions, timing_plan
from warehouse.papers.entries import SuiteRun
from warehouse.papers.estimate import Estimate
from warehouse.papers.latency_sample import Hours
from warehouse.papers.plan_costs import both_ways_of, estimated, every_alone
from warehouse.papers.suite_runs import Reproduction
from warehouse.papers.table import about
from warehouse.papers.timing_plan import Choice


def print_plan(console: Console, reproduction: Reproduction, runs: list[SuiteRun], choice: Choice) -> None:
    """Print every distinct run with what it takes and its flags, the total, and what a latency sample saves."""
    chosen = reproduction.suite
    title = f"{chosen.name}: {chosen.title} ({chosen.paper}, {chosen.version}, {chosen.place})"
    console.print(title, style="bold", soft_wrap=not console.is_terminal)
    known: list[float] = []
    both_ways = Hours()
    printed: list[Launch] = []
    left_out: list[str] = []
    for run in runs:
        label = f"{run.plan.row.label} · {chosen.columns[run.plan.column].label}"
        if run.launch is None:
            left_out.append(label)
            console.print(
                f"  {label}: not planned, awaits {run.awaits}", soft_wrap=not console.is_terminal, markup=False
            )
        elif run.launch in printed:
            console.print(
                f"  {label}: the same run as one above, with these flags",
                soft_wrap=not console.is_terminal,
                markup=False,
            )
        else:
            printed.append(run.launch)
            cost = estimated(reproduction, run.launch, run.plan)
            ways = both_ways_of(reproduction, run) or Hours()
            if cost is None:
                left_out.append(label)
            else:
                known.append(cost.gpu_hours + ways.timing)
            both_ways += ways
            size = f"{conditions.num_problems(run.launch)} problems × {run.launch.samples} samples"
            line = f"  {label}: {run.launch.method}, {size}, {_cost_in_words(cost)}"
            if ways.timing:
                line += f", and {ways.timing:,.1f} for {run.launch.latency_sample} samples timed one at a time"
            elif run.launch.latency_sample and (slow := estimated(reproduction, every_alone(run.launch), run.plan)):
                line += f"; with every sample alone {_cost_in_words(slow)}"
            console.print(line, soft_wrap=not console.is_terminal, markup=False)
            words = " ".join(layers.arguments(run.plan.flags))
            console.print(f"      {words}", soft_wrap=True, markup=False, style="dim")
    total = f"{sum(known):,.1f} GPU-hours" if known else "GPU-hours unknown"
    console.print(f"Total: {total}", soft_wrap=not console.is_terminal)
    if both_ways.alone:
        console.print(both_ways.as_asked(), soft_wrap=not console.is_terminal)
    is_timed = any(launch.latency_sample for launch in printed)
    if is_timed and choice.way == "sample" and "latency_sample" not in reproduction.overrides:
        console.print(f"{timing_plan.FLAG} measures every sample.", soft_wrap=not console.is_terminal)
    alone, together = planned_starts(printed)
    if together < alone:
        console.print(f"Starts of engines on each worker: {together}; {alone} if every run started its own.")
    if left_out:
        console.print(f"Not included: {'; '.join(left_out)}", soft_wrap=not console.is_terminal, markup=False)
    about(chosen, console)


def _cost_in_words(cost: Estimate | None) -> str:
    if cost is None:
        return "no estimate"
    if not cost.gpu_hours:
        return f"{cost.worker_hours:,.1f} worker-hours ({cost.source})"
    return f"{cost.gpu_hours:,.1f} GPU-hours ({cost.source})"
