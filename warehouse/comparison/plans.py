"""How many problems and samples a comparison needs, from the runs of a database, as a table or JSON.

A plan rests on a pilot: runs of two methods on the same problems, or of one, with what a sample of each has cost. The
statistics are in `warehouse.statistics.planning`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from math import ceil, sqrt
from typing import IO, Any

from harness.cli.messages import counted
from harness.cli.number_format import fixed, signed
from harness.cli.screen import Column, Line, Screen, Table
from warehouse.comparison.compared_runs import Baseline, Run, choose, read_runs
from warehouse.comparison.contrasts import pilot
from warehouse.comparison.outcomes import Pair, paired, resolve
from warehouse.database import Connection, WarehouseError, rows
from warehouse.report.summary import setting_warnings
from warehouse.statistics import planning
from warehouse.statistics.intervals import Families
from warehouse.statistics.planning import (
    ASSURANCE,
    LEAST_GAIN,
    MOST_PROBLEMS,
    MOST_SAMPLES,
    NOISY_PROBLEMS,
    CannotPlan,
    Components,
    Moments,
    Pilot,
)
from warehouse.suites.run_cost import costs

_RUNS = "SELECT run_id FROM run ORDER BY created_at DESC, run_id"


@dataclass(frozen=True)
class SampleCost:
    """What a sample of a method takes on average, and the starts of its engines, which no sample repeats."""

    work_hours: float
    start_hours: float
    has_gpu: bool


@dataclass(frozen=True)
class Basis:
    """What a comparison is planned from."""

    run: Run | None
    """The method that is compared with the baseline; None: only the baseline is known."""
    baseline: Run
    pilot: Pilot
    """The counts of both; a baseline alone stands for both."""
    family: Families
    """(n,). Of the pilot's problems."""
    pair: Pair
    """The samples that both have."""
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
    left_out = [run.why_empty for run in runs if run.is_empty] if names else []
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
    elif is_named or chosen.run.manifest.is_target_alone:
        yield None


def _basis(connection: Connection, run: Run | None, base: Run) -> Basis:
    """Return a pilot of the problems with two samples or more. Raises CannotPlan."""
    pair = paired((run or base).outcomes, base.outcomes)
    if not pair.n:
        raise CannotPlan("they have no problem with a sample of both in common")
    counts, family = pilot(run or base, base, pair)
    base_cost = _cost(connection, base)
    own_cost = base_cost if run is None else _cost(connection, run)
    return Basis(run, base, counts, family, pair, [own_cost, base_cost])


def _cost(connection: Connection, run: Run) -> SampleCost | None:
    """Return what a finished sample took of all devices, as the report's cost has it; None where no time is known."""
    every = costs(connection, run.run_id)
    finished = run.outcomes.num_samples - run.summary.num_not_run
    hours = sum(cost.work_hours for cost in every)
    if not hours or not finished:
        return None
    starts = sum(cost.start_hours for cost in every)
    return SampleCost(hours / finished, starts, any(cost.device != "cpu" for cost in every))


FEWEST_PROBLEMS = 60
"""Problems that a pilot should have. From so many on, the careful number of problems has a power below 50 % after at
most 2 % of pilots with skewed differences; with 30 it is up to 14 % of them (simulation in
docs/statistics.md)."""


@dataclass(frozen=True)
class Question:
    """What a comparison is to show; margin, power and difference as fractions."""

    margin: float = 0.02
    power: float = 0.8
    difference: float = 0.0
    """The true difference for which it is planned, method − baseline."""
    correlation: float = 0.75
    """Correlation of the two methods' true rates over problems, which is assumed where only one is known."""
    ks: Sequence[int] = (1, 2, 4, 8, 16, 32)
    """Samples per problem."""
    num_problems: int | None = None
    """Problems of the set that will be used; None: all of the dataset."""


@dataclass(frozen=True)
class Size:
    """What a comparison with so many samples per problem needs. Samples and hours are of both methods together."""

    samples_per_problem: int
    problems: int | None
    """None: more than planning.MOST_PROBLEMS."""
    samples: int | None
    hours: float | None
    """GPU-hours, or hours of workers without a GPU; None: no time is known."""
    share_of_samples: float
    """Share of a difference's variance that more samples per problem could remove."""
    detectable_margin_there: float | None
    """The smallest margin that the set of `Plan.num_problems` problems shows with the power; None: none."""
    hours_there: float | None
    """Hours of that set with so many samples."""


@dataclass(frozen=True)
class Plan:
    """A planned comparison."""

    basis: Basis
    question: Question
    components: Components
    sizes: Sequence[Size]
    fewest_problems: int | None
    """With unlimited samples; None: more than planning.MOST_PROBLEMS."""
    num_problems: int
    """Problems of the set for which power and margin are stated."""
    samples_there: int | None
    """Samples per problem with which that set is enough; None: with none up to planning.MOST_SAMPLES."""
    power_there: float
    """Power of that set with unlimited samples."""

    @property
    def is_pilot_small(self) -> bool:
        """True where the variances of so few problems are too noisy to rest a plan on."""
        return self.basis.num_problems < FEWEST_PROBLEMS

    @property
    def has_variance(self) -> bool:
        """False where both runs agree on every problem, from which nothing can be planned."""
        return bool(self.sizes)

    @property
    def cheapest(self) -> Size | None:
        """The size with the fewest samples."""
        return min((size for size in self.sizes if size.samples), key=lambda size: size.samples or 0, default=None)


def plan(basis: Basis, question: Question) -> Plan:
    """Plan a comparison, of as many families as its problems come from."""
    given, num_problems = basis.pilot, question.num_problems or basis.baseline.summary.dataset_size
    if basis.run is None:
        found = planning.components_of_one(given.first_correct, given.first_samples, question.correlation)
        ratio, members = planning.in_families(given.first_correct / given.first_samples, basis.family)
        moments: Callable[[int], Moments] = found.times(ratio).moments
    else:
        found = given.components
        try:
            moments, members = planning.planned(given, basis.family)
        except CannotPlan:
            return Plan(basis, question, found, [], None, num_problems, None, 0.0)
    asked, clusters = (question.margin, question.power, question.difference), max(2, round(num_problems / members))
    unlimited = moments(MOST_SAMPLES)
    return Plan(
        basis,
        question,
        found,
        [_size(basis, question, found, k, moments(k), members, num_problems) for k in question.ks],
        _problems_of(planning.problems_needed(unlimited, *asked), members),
        num_problems,
        planning.samples_needed(moments, clusters, *asked),
        planning.power(unlimited, clusters, question.margin, question.difference),
    )


def _problems_of(clusters: int | None, members: float) -> int | None:
    return None if clusters is None else ceil(clusters * members)


def _size(
    basis: Basis, question: Question, found: Components, k: int, moments: Moments, members: float, num_problems: int
) -> Size:
    """Return the size with k samples. moments: of a family's mean; members: problems of a family."""
    asked, clusters = (question.power, question.difference), max(2, round(num_problems / members))
    problems = _problems_of(planning.problems_needed(moments, question.margin, *asked), members)
    told = [cost for cost in basis.costs if cost is not None]
    per_problem = k * sum(cost.work_hours for cost in told) if len(told) == len(basis.costs) else None
    starts = sum(cost.start_hours for cost in told)
    return Size(
        k,
        problems,
        None if problems is None else 2 * k * problems,
        None if problems is None or per_problem is None else starts + per_problem * problems,
        found.share_of_samples(k),
        planning.detectable_margin(moments, clusters, *asked),
        None if per_problem is None else starts + per_problem * num_problems,
    )


_EXPLAINED = (
    "k: samples per problem and method. Sampling: share of the variance that more samples could remove.",
    "Margin: the smallest, in points, that is shown with this power.",
    "Hours: of both methods, on the pilot's devices with its samples in flight.",
    "Problems count as a sample of problems like these, and those of a family as one of its size. A pilot of fewer "
    f"than {NOISY_PROBLEMS} problems counts with the upper limit of its variance ({100 * ASSURANCE:g} %).",
)


def write(plans: Sequence[Plan], left_out: Sequence[str], out: IO[str], shape: str) -> None:
    """Write plans as a `table` or as `json`."""
    if shape == "json":
        json.dump({"plans": [_record(plan) for plan in plans], "left_out": list(left_out)}, out, indent=2)
        out.write("\n")
        return
    screen = Screen(out, is_fitted=True)
    for plan in plans:
        items = (Line(line, is_item=True) for line in (*_basis_lines(plan), *_warnings(plan)))
        screen.show([Line(_title(plan), style="bold"), *items])
        if plan.has_variance:
            screen.show([_table(plan), *(Line(line, is_item=True) for line in _conclusions(plan))])
        screen.show([Line("")])
    explained = _EXPLAINED if any(plan.has_variance for plan in plans) else ()
    screen.show(map(Line, (*explained, *(f"NOT PLANNED: {line}" for line in left_out))))


def _points(value: float) -> str:
    return f"{100 * value:g} {'point' if abs(value) == 0.01 else 'points'}"


def _title(plan: Plan) -> str:
    asked = plan.question
    assumed = f"truly differs by {signed(100 * asked.difference, 1)} points" if asked.difference else "is as accurate"
    return (
        f"{plan.basis.baseline.dataset}: to show with a power of {100 * asked.power:g} % that a method that {assumed} "
        f"is not worse by {_points(asked.margin)}"
    )


def _basis_lines(plan: Plan) -> Iterator[str]:
    """Yield what the plan is made from."""
    basis, found = plan.basis, plan.components
    problems = counted(basis.num_problems, "problem")
    names = [place if name is None else name for place, name in enumerate(basis.family)]
    if (families := len(set(names))) < len(names):
        problems += f" in {families} families"
    if basis.run is None:
        yield f"From {basis.baseline.run_id} alone, {problems}."
        yield f"Assumed: the other method has rates like it, with a correlation of {plan.question.correlation:g}"
        yield "over problems (--correlation). The variance between problems follows from that, not from data."
        yield "Problems that only one of them solves are not foreseen; a pilot of both methods shows them."
    else:
        observed = signed(100 * float(basis.pilot.differences.mean()), 2)
        yield f"From {basis.run.run_id} against {basis.baseline.run_id}."
        yield f"{problems}; observed difference {observed} points."
    yield (
        f"Standard deviation of the difference: between problems {100 * sqrt(found.between):.1f} points, "
        f"of single samples {100 * sqrt(found.within):.1f}."
    )


def _warnings(plan: Plan) -> Iterator[str]:
    """Yield what limits the validity of the plan."""
    basis = plan.basis
    for run in basis.runs:
        summary = run.summary
        for line in setting_warnings(summary):
            yield f"{run.run_id}: {line}"
    if basis.pair.num_missing_samples:
        remedies = "; ".join(dict.fromkeys(run.remedy for run in basis.runs if run.is_unfinished))
        yield (
            f"UNFINISHED: {basis.pair.num_missing_samples} of {basis.pair.num_planned_samples} planned samples are not "
            "there in every run, mostly long chains, so that the variances are those of the easier part and the true "
            f"numbers are larger; {remedies}."
        )
    if left_out := basis.pair.num_shared_problems - basis.num_problems:
        yield f"{counted(left_out, 'problem')} without two samples of each run left out."
    observed = float(basis.pilot.differences.mean()) if basis.run is not None else 0.0
    if observed <= -plan.question.margin < plan.question.difference:
        yield (
            f"OBSERVED LOSS: the pilot shows {signed(100 * observed, 2)} points. If that is the true difference, no "
            "number of problems shows that the method is not worse; the plan assumes that it is not."
        )
    if plan.is_pilot_small:
        yield (
            f"SMALL PILOT: {counted(basis.num_problems, 'problem')}. Plans from fewer than {FEWEST_PROBLEMS} often "
            "have much less power than asked for."
        )
    if not plan.has_variance:
        yield "NO VARIANCE: both runs agree on every problem, which plans nothing. Use a larger pilot."


def _table(plan: Plan) -> Table:
    hours, there = _unit(plan), plan.num_problems
    names = ["k", "problems", hours, "sampling", f"margin at {there}", f"hours at {there}"]
    rows = [
        (
            str(size.samples_per_problem),
            _problems(size.problems),
            size.hours,
            f"{100 * size.share_of_samples:.0f} %",
            fixed(size.detectable_margin_there, 1, 100),
            size.hours_there,
        )
        for size in plan.sizes
    ]
    return Table([Column(name, is_right=True) for name in names], rows)


def _conclusions(plan: Plan) -> Iterator[str]:
    """Yield where samples stop helping, what the set that there is comes to, and what the columns mean."""
    enough = plan.components.enough_samples
    gain = f"lower the standard error by less than {100 * LEAST_GAIN:g} %"
    if enough is None:
        yield "The pilot shows no variance between problems: more samples always help."
    else:
        yield f"More samples stop helping at {enough} per problem: twice as many {gain}."
        yield f"With any number of samples {_problems(plan.fewest_problems)} problems are needed."
    if plan.cheapest is not None:
        yield (
            f"Cheapest where further problems can be had: {plan.cheapest.samples_per_problem} per problem, "
            f"{plan.cheapest.samples:,} samples of both methods."
        )
    there = counted(plan.num_problems, "problem")
    if plan.samples_there is not None:
        yield f"{there} need {counted(plan.samples_there, 'sample')} each."
    else:
        power = f"power {100 * plan.power_there:.0f} % at most"
        yield f"{there} are too few: {power}, even with {MOST_SAMPLES:,} samples each."
    if any(cost is None for cost in plan.basis.costs):
        yield "What a sample takes is not known of both methods, so nothing is said of hours."


def _problems(value: int | None) -> str:
    return f"> {MOST_PROBLEMS:,}" if value is None else f"{value:,}"


def _unit(plan: Plan) -> str:
    return "GPU-hours" if any(cost is not None and cost.has_gpu for cost in plan.basis.costs) else "worker-hours"


def _record(plan: Plan) -> dict[str, Any]:
    asked, basis = plan.question, plan.basis
    return {
        "dataset": basis.baseline.dataset,
        "run": basis.run and basis.run.run_id,
        "baseline": basis.baseline.run_id,
        "pilot_problems": basis.num_problems,
        "pilot_families": len({name or place for place, name in enumerate(basis.family)}),
        "margin": asked.margin,
        "power": asked.power,
        "true_difference": asked.difference,
        "correlation": asked.correlation if basis.run is None else None,
        "observed_difference": float(basis.pilot.differences.mean()) if basis.run else None,
        "variance_between": plan.components.between,
        "variance_within": plan.components.within,
        "sizes": [asdict(size) for size in plan.sizes],
        "cheapest_samples_per_problem": plan.cheapest and plan.cheapest.samples_per_problem,
        "hours_are": _unit(plan),
        "problems_with_unlimited_samples": plan.fewest_problems,
        "samples_stop_helping_at": plan.components.enough_samples,
        "problems_there": plan.num_problems,
        "samples_needed_there": plan.samples_there,
        "highest_power_there": plan.power_there,
        "is_pilot_small": plan.is_pilot_small,
        "warnings": list(_warnings(plan)),
    }
