"""Pilots: runs of two methods on the same problems, or of one, with what a sample of each has cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from warehouse.comparison.baselines import Baseline, choose, empty_message, is_target_alone
from warehouse.comparison.metrics import Run
from warehouse.comparison.named_runs import read_runs
from warehouse.comparison.outcomes import Outcomes, Pair, paired, resolve
from warehouse.database import Connection, WarehouseError, rows
from warehouse.report.facts import costs
from warehouse.statistics.intervals import Counts
from warehouse.statistics.planning import CannotPlan, Pilot

_RUNS = "SELECT run_id FROM run ORDER BY created_at DESC, run_id"


@dataclass(frozen=True)
class SampleCost:
    """What a sample of a method takes on average, with its share of the engines' start-up."""

    device_hours: float
    has_gpu: bool


@dataclass(frozen=True)
class Basis:
    """What a comparison is planned from."""

    run: Run | None
    """The method that is compared with the baseline; None: only the baseline is known."""
    baseline: Run
    pilot: Pilot
    """The counts of both; a baseline alone stands for both."""
    pair: Pair | None
    """The samples that both have; None with a baseline alone."""
    costs: Sequence[SampleCost | None]
    """What a sample of the method and of the baseline takes, None where it is unknown; a baseline stands for both."""

    @property
    def runs(self) -> Sequence[Run]:
        """The runs that are planned from."""
        return [run for run in (self.run, self.baseline) if run is not None]

    @property
    def num_problems(self) -> int:
        """Number of problems whose variances are known."""
        return len(self.pilot.first_samples)


def read(
    connection: Connection, names: Sequence[str], baseline: str | None = None
) -> tuple[Sequence[Basis], Sequence[str]]:
    """Return what can be planned from the named runs, or from all of the database, and why from others nothing can.

    Each run is paired with the baseline that `warehouse.compare` would choose; a baseline without others is a pilot
    alone. Without names, of several runs of the same settings the newest finished one counts, and a model alone is only
    a baseline. Raises WarehouseError where nothing can be planned.
    """
    every = [*([baseline] if baseline else []), *names]
    if not names:
        every += [str(row["run_id"]) for row in rows(connection, _RUNS)]
    if not every:
        raise WarehouseError("nothing can be planned: the database has no runs")
    runs = read_runs(connection, every, votes=False)
    named = resolve(connection, baseline) if baseline else None
    if not names:
        runs = list(_newest(runs, named))
    found: list[Basis] = []
    left_out = [empty_message(run) for run in runs if run.is_empty] if names else []
    for chosen in choose(runs, named):
        for make in _of(chosen, is_named=bool(names)):
            try:
                found.append(_basis(connection, make, chosen.run))
            except CannotPlan as error:
                left_out.append(f"{', '.join(run.run_id for run in (make, chosen.run) if run)}: {error}")
    if named is not None and names and (alone := [basis.baseline.run_id for basis in found if basis.run is None]):
        without = next((run_id for run_id in alone if run_id != named), alone[0])
        raise WarehouseError(f"nothing can be planned: {named} is no baseline of {without}; name a run of its dataset")
    if not found:
        unsampled = all(run.is_empty for run in runs)
        why = "; ".join(left_out) or (
            "no run has a finished and graded sample"
            if unsampled
            else "no dataset has a run of the target alone with finished and graded samples; name a RUN to plan from it"
        )
        raise WarehouseError(f"nothing can be planned: {why}")
    return found, left_out


def _newest(runs: Sequence[Run], named: str | None) -> Iterator[Run]:
    """Yield the newest finished run of each setting, of runs with the newest first, and the named one."""
    seen = set()
    for run in sorted(runs, key=lambda run: (run.run_id != named, run.is_unfinished)):
        summary = run.summary
        models = summary.draft, summary.target, summary.reward, summary.temperature, summary.regime
        setting = (run.dataset, summary.method, str(sorted(summary.params.items())), *models)
        if setting not in seen and not run.is_empty:
            seen.add(setting)
            yield run


def _of(chosen: Baseline, *, is_named: bool) -> Iterator[Run | None]:
    """Yield the runs to plan from with a baseline; None for the baseline alone."""
    others = [run for run in chosen.members if run is not chosen.run and not run.is_empty]
    if not is_named:
        others = [run for run in others if run.summary.method != "vanilla"]
    if others:
        yield from others
    elif is_named or is_target_alone(chosen.run):
        yield None


def _basis(connection: Connection, run: Run | None, base: Run) -> Basis:
    """Return a pilot of the problems with two samples or more. Raises CannotPlan."""
    pair = None if run is None else paired(run.outcomes, base.outcomes)
    if pair is not None and not pair.n:
        raise CannotPlan("they have no problem with a sample of both in common")
    present = base.outcomes.present()
    first = _counts(run or base, present if pair is None else pair.first)
    second = _counts(base, present if pair is None else pair.second)
    places = np.flatnonzero((first[1] > 1) & (second[1] > 1))
    if not len(places):
        places = np.arange(len(first[1]))  # whose lack of samples the pilot names
    pilot = Pilot(*(counts[places] for counts in (*first, *second)))
    base_cost = _cost(connection, base)
    own_cost = base_cost if run is None else _cost(connection, run)
    return Basis(run, base, pilot, pair, [own_cost, base_cost])


def _counts(run: Run, outcomes: Outcomes) -> tuple[Counts, Counts]:
    """Return right answers and samples of each problem; of a greedy run twice, as each would repeat itself if drawn
    again: its one sample shows that it has no noise."""
    times = 2 if run.summary.is_greedy else 1
    return times * outcomes.correct, times * outcomes.samples


def _cost(connection: Connection, run: Run) -> SampleCost | None:
    """Return what a finished sample took of all devices, as the report's cost has it; None where no time is known."""
    every = costs(connection, run.run_id)
    finished = run.outcomes.num_samples - run.summary.num_not_run
    hours = sum(cost.device_hours for cost in every)
    if not hours or not finished:
        return None
    return SampleCost(hours / finished, any(cost.device != "cpu" for cost in every))
