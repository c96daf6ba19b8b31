"""A suite whose runs are drawn in waves until each comparison with the target alone is decided.

On this machine one process draws the waves one after the other. On Slurm the jobs of a wave are followed by a job that
looks (jobs.waves.look_job) and submits the next wave with itself behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.plural import counted
from harness.sizing.job_cards import GPU_MEMORY
from jobs import costs, launching, launching_several, suite
from jobs.after import warehouse
from jobs.after.conclude import report
from jobs.nights import recovery
from jobs.nights.record import NightRecord
from jobs.preparation import PreparedLaunch
from jobs.run import waves
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder
from jobs.suite import BadSuite, Suite
from jobs.waves import look_job, looking


@dataclass(frozen=True)
class Started:
    """What became of a launch until decided."""

    runs: list[RunFolder]
    look_job: str | None
    """The job on Slurm that looks next; None where everything is done here."""
    record: Path
    """The record of its looks on Slurm."""
    notice: str = ""
    """What became of a job that was there already, as the end of a sentence."""


def prepare(chosen: Suite, tag: str | None, *, accept_code_change: bool = False) -> list[PreparedLaunch]:
    """Plan the runs of a suite in waves, without writing anything; a run that was begun with all samples keeps them.

    Raises BadSuite where they are no comparison in waves, and what planning a launch raises.
    """
    prepared = suite.prepare(chosen, tag, accept_code_change=accept_code_change)
    distinct = list({launch.run.path: launch for launch in prepared}.values())
    _check(distinct)
    return [replace(launch, in_waves=True) for launch in distinct]


def _check(prepared: Sequence[PreparedLaunch]) -> None:
    specs = [launch.plan.spec for launch in prepared]
    for dataset in dict.fromkeys(spec.dataset for spec in specs):
        if sum(spec.dataset == dataset for spec in specs) < 2:
            raise BadSuite(f"--until-decided: {dataset} has one run, and a comparison needs two: add the target alone")
    if len(numbers := sorted({spec.samples for spec in specs})) > 1 or numbers[0] < waves.LEAST_SAMPLES:
        shown = ", ".join(map(str, numbers))
        raise BadSuite(
            f"--until-decided: samples {shown}; valid: one number for all runs, at least {waves.LEAST_SAMPLES}"
        )
    if any(launch.launch.latency_sample for launch in prepared):
        raise BadSuite("--until-decided: latency-sample is for runs with all their samples; leave it out")
    if len({launch.cluster for launch in prepared}) > 1:
        raise BadSuite("--until-decided: the runs are on several clusters; valid: one cluster for all runs")


def preview(chosen: Suite, tag: str | None, console: Console, *, accept_code_change: bool = False) -> None:
    """Print what each run would do, the waves, and what this one and all of them are likely to take.

    Writes nothing. Raises what `prepare` raises, and costs.OverBudget.
    """
    prepared = prepare(chosen, tag, accept_code_change=accept_code_change)
    for launch in prepared:
        launching.print_plan(launch, console, is_preview=True)
        finished = launch.num_samples - launch.num_left
        console.print(f"  {finished} of at most {counted(launch.plan.spec.num_samples, 'sample')} finished")
    sizes = waves.sizes_of(prepared[0].plan.spec.samples)
    console.print(f"{counted(len(prepared), 'run')} in waves of {', '.join(map(str, sizes))} samples per problem")
    console.print(f"This wave: {costs.total(prepared)}", soft_wrap=True)
    every = [replace(launch, in_waves=False) for launch in prepared if not _is_decided(launch.run)]
    console.print(f"All waves, unless it is decided earlier: {costs.total(every)}", soft_wrap=True)
    costs.check(prepared)


def _is_decided(run: RunFolder) -> bool:
    begun = waves.read(run) if run.exists() else None
    return begun is not None and begun.decision is not None


def launch(
    chosen: Suite, tag: str | None, margin: float, console: Console, *, accept_code_change: bool = False
) -> Started:
    """Draw the runs of a suite in waves until each comparison is decided; launched again, it goes on.

    margin: as a fraction. Raises what `prepare`, starting a launch and looking raise; costs.OverBudget before anything
    is written.
    """
    prepared = prepare(chosen, tag, accept_code_change=accept_code_change)
    launching.check(prepared)
    runs = [launch.run for launch in prepared]
    whole = [run.path.name for run in runs if run.exists() and waves.read(run) is None]
    if whole:
        console.print(f"Begun with all samples, which they keep: {', '.join(whole)}", soft_wrap=True)
    if prepared[0].cluster == "slurm":
        return _on_slurm(chosen, tag, margin, prepared, console)
    _here(prepared, margin, console)
    return Started(runs, None, _record(chosen, tag).path)


def _here(prepared: Sequence[PreparedLaunch], margin: float, console: Console) -> None:
    """Draw wave after wave on this machine."""
    runs = [launch.run for launch in prepared]
    database = warehouse.database_of(runs[0])
    launching_several.carry_out_several(prepared, console)
    while (stop := looking.stopped_within_a_wave(runs)) is None and (
        found := looking.look(runs, database, margin)
    ) is not None:
        for line in looking.lines(found):
            console.print(line, style="bold", markup=False, soft_wrap=True)
        for run in runs:
            if run.path.name in found.decided:
                report(run, console, database)
        if found.stop is not None:
            break
        # New copies: what is left of a launch is read once. The budget was checked at the start and is kept meanwhile.
        if further := [replace(launch) for launch in prepared if num_unfinished(launch.run)]:
            launching_several.carry_out_several(further, console)
    if stop is not None:
        console.print(f"Not looked at: {looking.undecided_because(stop)}", style="bold", soft_wrap=True)
    for run in runs:
        if waves.num_open(run):
            report(run, console, database)
    console.print(looking.drawn(runs), soft_wrap=True)


def _on_slurm(
    chosen: Suite, tag: str | None, margin: float, prepared: Sequence[PreparedLaunch], console: Console
) -> Started:
    runs, record = [launch.run for launch in prepared], _record(chosen, tag)
    names = {str(number): run.path.name for number, run in enumerate(runs)}
    record.append(
        "launched", runs=names, requests=requests(prepared), margin=margin, page=str(page_of(chosen).resolve())
    )
    launching_several.carry_out_several(prepared, console)
    if not looking.open_runs(runs) and not any(map(num_unfinished, runs)):
        record.append("concluded", verdict="decided")
        return Started(runs, None, record.path)
    active = sorted({job for jobs in recovery.active_jobs(runs).values() for job in jobs})
    job, notice = look_job.jobs_of(record.path.parent, record.path.stem).behind(active)
    return Started(runs, job, record.path, notice)


def _record(chosen: Suite, tag: str | None) -> NightRecord:
    name = f"{chosen.name}{f'.{tag}' if tag else ''}"
    return look_job.record_of(chosen.output.resolve() / look_job.FOLDER, name)


def page_of(chosen: Suite) -> Path:
    """Return the path of the report on a suite."""
    return chosen.output / f"{chosen.name}.html"


def requests(prepared: Sequence[PreparedLaunch]) -> dict[str, Any]:
    """Return how each launch is submitted to Slurm, by the name of its run."""
    return {
        launch.run.path.name: {
            "options": {key: value for key, value in launch.sbatch.items() if key != GPU_MEMORY},
            "shards_per_task": launch.launch.shards_per_task,
            "workers_per_task": launch.launch.workers_per_task,
        }
        for launch in prepared
    }
