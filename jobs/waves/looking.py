"""After a wave: look at the comparison, record what is decided, and plan the next wave of what is not.

Everything that a look needs is in the run folders and the warehouse, and what it finds is recorded in the run folders
before the next wave is planned. A look that was killed anywhere is therefore made again, and comes to the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.plural import counted
from jobs.after import warehouse
from jobs.run import waves
from jobs.run.budget import Meter, Stop
from jobs.run.endings import num_unfinished
from jobs.run.expected import expected_tokens
from jobs.run.folder import RunFolder
from jobs.run.waves import Waves

if TYPE_CHECKING:
    from warehouse.comparison.looks import Look


@dataclass(frozen=True)
class Found:
    """What a look found."""

    wave: int
    """Number of the wave that it followed."""
    decided: Mapping[str, str]
    """What it decided, in words, by run; of a baseline that its comparisons are decided."""
    further: Sequence[RunFolder]
    """The runs that have samples of the next wave now."""
    stop: Stop | None = None
    """The budget that is used up, so that runs which are not decided are drawn no further."""


def open_runs(runs: Sequence[RunFolder]) -> dict[str, Waves]:
    """Return how far the runs are that are neither decided nor looked at after the last wave, by name."""
    begun = {run.path.name: waves.read(run) for run in runs if run.exists()}
    return {
        name: state
        for name, state in begun.items()
        if state is not None and state.decision is None and state.num_looks < len(state.sizes)
    }


def look(runs: Sequence[RunFolder], database: Path, margin: float, baseline: RunFolder | None = None) -> Found | None:
    """Look at runs whose planned samples are all finished and loaded; None where nothing is open any more.

    Where the budget of a run is used up, what is decided is recorded, and no further wave is planned, whose samples
    would count as missing. The same look under a higher budget plans it.

    margin: as a fraction. baseline: what all are compared with, one of the runs or another; None: each dataset's target
    alone. Runs that were planned further than others, because a look was killed, wait for these. Raises
    WarehouseFailed, and RunBusyError where a worker still holds a shard.
    """
    states = open_runs(runs)
    if not states:
        return None
    wave = min(state.wave for state in states.values())
    at_wave = [run for run in runs if run.path.name in states and states[run.path.name].wave == wave]
    earlier = {run.path.name: state.decision for run in runs if (state := waves.read(run)) and state.decision}
    found = warehouse.looked(runs, database, margin, earlier, baseline)
    decided: dict[str, str] = {}
    # Baselines last: one whose stop is recorded without the decisions that it follows would refuse to go on.
    for run in sorted(at_wave, key=lambda run: run.path.name not in found.baselines):
        name = run.path.name
        if states[name].num_looks < wave:
            waves.record_look(run, wave, decision := found.decisions[name], margin, found.baselines.get(name))
            decided |= {name: decision} if decision is not None else {}
    undecided = [run for run in at_wave if run.path.name not in decided and not states[run.path.name].is_whole]
    if undecided and (stop := budget_stop(undecided)):
        return Found(wave, decided, [], stop)
    for run in undecided:
        _draw(run, states[run.path.name], found)
    return Found(wave, decided, undecided)


def budget_stop(runs: Sequence[RunFolder]) -> Stop | None:
    """Return the budget that has stopped a run of a comparison; None where none is used up."""
    return next((stop for run in runs if (stop := Meter(run).stop()) is not None), None)


def stopped_within_a_wave(runs: Sequence[RunFolder]) -> Stop | None:
    """Return the budget that has left samples of a wave unfinished, which no look can follow then."""
    return budget_stop([run for run in runs if num_unfinished(run)])


def undecided_because(stop: Stop) -> str:
    """Return in words that a comparison stays undecided because a budget is used up."""
    return f"undecided: {stop}"


def _draw(run: RunFolder, state: Waves, found: Look) -> None:
    """Plan the next wave of a run."""
    spec, problems = run.spec(), run.problems()
    numbers = found.next_numbers(run.path.name, state.sizes[state.wave], spec.samples)
    waves.draw(run, numbers, expected_tokens(problems, warehouse.spent_tokens(run, spec, problems)))


def drawn(runs: Sequence[RunFolder]) -> str:
    """Return in words how many samples of runs were drawn, how many were not needed, and how many are still open."""
    now, total = sum(run.num_planned() for run in runs), sum(run.spec().num_samples for run in runs)
    left = sum(map(waves.num_open, runs))
    told = f"{now} of {counted(total, 'sample')} drawn; {total - now - left} not needed"
    return f"{told}; {left} left, because nothing is decided without them" if left else told


def lines(found: Found) -> list[str]:
    """Return what a look found, one line for each run that it decided and one for the others."""
    told = [f"Look {found.wave}: {name}: {decision}" for name, decision in found.decided.items()]
    if found.further:
        names = ", ".join(run.path.name for run in found.further)
        told.append(f"Look {found.wave}: not decided yet, and drawn further: {names}")
    elif found.stop is not None:
        told.append(f"Look {found.wave}: {undecided_because(found.stop)}; a higher --max-gpu-hours draws further")
    elif not found.decided:
        told.append(f"Look {found.wave}: not decided, and all samples are drawn")
    return told
