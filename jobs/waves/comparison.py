"""Runs that are drawn in waves until each comparison with their baseline is decided.

On this machine one process draws the waves one after the other. On Slurm the jobs of a wave are followed by a job that
looks (jobs.waves.look_job) and submits the next wave with itself behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isclose
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.plural import counted
from harness.sizing.job_cards import GPU_MEMORY
from jobs import costs, launching, launching_several
from jobs.after import warehouse
from jobs.after.conclude import report
from jobs.nights import recovery
from jobs.nights.record import NightRecord
from jobs.preparation import PreparedLaunch
from jobs.run import waves
from jobs.run.endings import num_unfinished
from jobs.run.folder import RunFolder
from jobs.waves import look_job, looking, turns
from jobs.waves.planned import NotInWaves, Planned, check_decisions


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


def is_ended(planned: Planned, margin: float, console: Console, *, is_waiting: bool) -> bool:
    """Launch a comparison in waves and return whether it has ended; on Slurm it has where this waited for its result.

    margin: as a fraction. Raises what `launch` raises, and LaunchFailed where jobs ended without a result.
    """
    started = launch(planned, margin, console)
    if started.look_job is not None:
        _print(
            f"The comparison is looked at by job {started.look_job}{started.notice}, which submits what is needed",
            console,
        )
        if not is_waiting:
            console.print(f"The report will be {planned.page}; the record is {started.record}", soft_wrap=True)
            return False
        console.print(f"{planned.name}: {look_job.wait(started.record)}", markup=False, soft_wrap=True)
    return True


def compare(planned: Planned, margin: float) -> None:
    """Print the comparison and write the report on all of its runs. Raises WarehouseFailed."""
    warehouse.compare_and_report(planned.runs, planned.page, margin, planned.baseline)


def preview(planned: Planned, margin: float, console: Console) -> None:
    """Print what each run would do, the waves, and what this one and all of them are likely to take.

    Writes nothing. margin: as a fraction. Raises NotInWaves and costs.OverBudget.
    """
    check_decisions(planned, margin)
    prepared = planned.launches
    for launch in prepared:
        launching.print_plan(launch, console, is_preview=True)
        finished = launch.num_samples - launch.num_left
        console.print(f"  {finished} of at most {counted(launch.plan.spec.num_samples, 'sample')} finished")
    sizes = waves.sizes_of(prepared[0].plan.spec.samples)
    _print(
        f"{counted(len(prepared), 'run')} in waves of {', '.join(map(str, sizes))} samples per problem, with a look "
        f"after each wave: at most {len(sizes)} looks",
        console,
    )
    if planned.all_alike:
        _print(alike(planned.all_alike), console)
    if reason := undecidable(planned, margin):
        _print(reason, console)
    if planned.baseline is not None:
        console.print(f"Compared with {planned.baseline.path.name}", soft_wrap=True)
    _print(costs.total(prepared, "This wave"), console)
    every = [replace(launch, in_waves=False) for launch in prepared if not _is_decided(launch.run)]
    _print(costs.total(every, "All waves, unless it is decided earlier"), console)
    costs.check(prepared)


def _print(sentence: str, console: Console, style: str | None = None) -> None:
    """Print a sentence, which a terminal wraps between words."""
    console.print(sentence, style=style, markup=False, soft_wrap=not console.is_terminal)


def _is_decided(run: RunFolder) -> bool:
    begun = waves.read(run) if run.exists() else None
    return begun is not None and begun.decision is not None


def launch(planned: Planned, margin: float, console: Console) -> Started:
    """Draw runs in waves until each comparison is decided; launched again, it goes on.

    margin: as a fraction. Raises what starting a launch and looking raise; NotInWaves and costs.OverBudget before
    anything is written.
    """
    check_decisions(planned, margin)
    launching.check(planned.launches)
    whole = [run.path.name for run in planned.runs if run.exists() and waves.read(run) is None]
    if whole:
        _print(f"Begun with all samples, which they keep: {', '.join(whole)}", console)
    if planned.baseline is not None and planned.baseline not in planned.runs:
        _have_results(planned.baseline, console)
    if planned.all_alike:
        _print(f"  {alike(planned.all_alike)}", console)
    if reason := undecidable(planned, margin):
        _print(f"  {reason}", console)
    with turns.alone(planned.runs):
        check_decisions(planned, margin)  # those of a launch that has ended since
        if planned.launches[0].cluster == "slurm":
            return _on_slurm(planned, margin, console)
        _here(planned, margin, console)
    return Started(planned.runs, None, planned.record.path)


def alike(names: Sequence[str]) -> str:
    """Say of runs at temperature 0 that further samples of a problem show nothing; those of the others do."""
    return (
        f"At temperature 0 every sample of a problem is the same in {', '.join(names)}: later waves repeat the "
        "first one there, and only the samples of the other runs differ"
    )


def undecidable(planned: Planned, margin: float) -> str:
    """Say that so few problems cannot show "not worse", if even runs that never differ could not; otherwise nothing.

    margin: as a fraction.
    """
    spec = planned.launches[0].plan.spec
    n = spec.num_samples // spec.samples
    enough = warehouse.problems_needed(waves.sizes_of(spec.samples), margin)
    if n >= enough:
        return ""
    return (
        f"{counted(n, 'problem')} cannot show that a run is not worse by {100 * margin:g} points, even if none "
        f"differed: all samples are drawn unless it is worse. {enough} problems can, or a larger --margin"
    )


def _have_results(baseline: RunFolder, console: Console) -> None:
    """Grade and load a finished run that others are to be compared with, unless the warehouse has its results."""
    name, database = baseline.path.name, warehouse.database_of(baseline)
    if warehouse.num_graded(database, [name]).get(name, 0) < baseline.num_planned():
        launching.conclude(baseline, console)


def _here(planned: Planned, margin: float, console: Console) -> None:
    """Draw wave after wave on this machine."""
    prepared, runs = planned.launches, planned.runs
    database = warehouse.database_of(runs[0])
    launching_several.carry_out_several(prepared, console)
    while (stop := looking.stopped_within_a_wave(runs)) is None and (
        found := looking.look(runs, database, margin, planned.baseline)
    ) is not None:
        for line in looking.lines(found):
            _print(line, console, style="bold")
        for run in runs:
            if run.path.name in found.decided:
                report(run, console, database)
        if found.stop is not None:
            break
        # New copies: what is left of a launch is read once. The budget was checked at the start and is kept meanwhile.
        if further := [replace(launch) for launch in prepared if num_unfinished(launch.run)]:
            launching_several.carry_out_several(further, console)
    if stop is not None:
        _print(f"Not looked at: {looking.undecided_because(stop)}", console, style="bold")
    for run in runs:
        if waves.num_open(run):
            report(run, console, database)
    _print(looking.drawn(runs), console)


def _on_slurm(planned: Planned, margin: float, console: Console) -> Started:
    runs, record = planned.runs, planned.record
    _check_under_way(record, margin)
    record.append("launched", **launched(planned, margin))
    launching_several.carry_out_several(planned.launches, console)
    if not looking.open_runs(runs) and not any(map(num_unfinished, runs)):
        record.append("concluded", verdict="decided")
        return Started(runs, None, record.path)
    active = sorted({job for jobs in recovery.active_jobs(runs).values() for job in jobs})
    job, notice = look_job.jobs_of(record.path.parent, record.path.stem).behind(active)
    return Started(runs, job, record.path, notice)


def _check_under_way(record: NightRecord, margin: float) -> None:
    """Raise NotInWaves where jobs look at this comparison by another margin."""
    earlier = record.last("launched")
    if earlier is not None and not record.is_concluded and not isclose(earlier["margin"], margin):
        raise NotInWaves(
            f"--margin {100 * margin:g}: {record.path.stem} is under way with a margin of {100 * earlier['margin']:g} "
            "points; valid: that one, until it is decided"
        )


def launched(planned: Planned, margin: float) -> dict[str, Any]:
    """Return what the record of the looks keeps of a launch, and the jobs that look go by."""
    return {
        "runs": {str(number): run.path.name for number, run in enumerate(planned.runs)},
        "requests": _requests(planned.launches),
        "margin": margin,
        "page": str(planned.page.resolve()),
        "baseline": None if planned.baseline is None else planned.baseline.path.name,
    }


def _requests(prepared: Sequence[PreparedLaunch]) -> dict[str, Any]:
    """Return how each launch is submitted to Slurm, by the name of its run."""
    return {
        launch.run.path.name: {
            "options": {key: value for key, value in launch.sbatch.items() if key != GPU_MEMORY},
            "shards_per_task": launch.launch.shards_per_task,
            "workers_per_task": launch.launch.workers_per_task,
        }
        for launch in prepared
    }
