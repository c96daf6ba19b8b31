"""Plan the problems and samples of a comparison from recorded runs; print a table or JSON.

The pilot is two runs of different methods on the same problems, or a single run; it also gives the cost per sample. The
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
    FEWEST_CAREFUL,
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
    """Average cost of a sample, and the cost of engine starts, which does not grow with the number of samples."""

    work_hours: float
    """Device-hours per sample."""
    start_hours: float
    """Device-hours of all engine starts of the run."""
    has_gpu: bool


@dataclass(frozen=True)
class Basis:
    """The data for a plan."""

    run: Run | None
    """The method compared with the baseline. None: only the baseline is available."""
    baseline: Run
    pilot: Pilot
    """Samples and correct samples of both runs. With the baseline alone, its counts are used for both."""
    family: Families
    """Families of the pilot's problems, (n,)."""
    pair: Pair
    """The samples that both runs have."""
    costs: Sequence[SampleCost | None]
    """Cost per sample of the method and of the baseline; None if unknown. With the baseline alone, its cost is used for
    both.
    """

    @property
    def runs(self) -> Sequence[Run]:
        """Runs used by the plan."""
        return [run for run in (self.run, self.baseline) if run is not None]

    @property
    def num_problems(self) -> int:
        """Number of problems with known variances."""
        return len(self.pilot.first_samples)


def read(
    connection: Connection, names: Sequence[str], baseline: str | None = None
) -> tuple[Sequence[Basis], Sequence[str]]:
    """Return the data for each possible plan, and the reasons why other runs allow no plan.

    Each named run is paired with the baseline that `warehouse.compare` would choose. A baseline without other runs is a
    pilot by itself. Without names, one run of each setting is used (the newest finished one if any), and vanilla runs
    serve only as baselines. Raises WarehouseError if no plan is possible.
    """
    every = [*([baseline] if baseline else []), *names]
    if not names:
        every += [str(row["run_id"]) for row in rows(connection, _RUNS)]
    if not every:
        raise WarehouseError("no plan possible: the database has no runs")
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
        raise WarehouseError(
            f"no plan possible: {named} is not a baseline for {without}; pass another run on the dataset of {without}"
        )
    if not found:
        unsampled = all(run.is_empty for run in runs)
        why = "; ".join(left_out) or (
            "no run has finished and graded samples"
            if unsampled
            else "no dataset has a run of the target alone with finished and graded samples; pass a RUN as the pilot"
        )
        raise WarehouseError(f"no plan possible: {why}")
    return found, left_out


def _newest(runs: Sequence[Run], named: str | None) -> Iterator[Run]:
    """Yield one run of each setting: the named one, else the newest finished one, else the newest.

    `runs` are ordered newest first.
    """
    seen = set()
    for run in sorted(runs, key=lambda run: (run.run_id != named, run.is_unfinished)):
        summary = run.summary
        models = summary.draft, summary.target, summary.reward, summary.temperature, summary.regime
        setting = (run.dataset, summary.method, str(sorted(summary.params.items())), *models)
        if setting not in seen and not run.is_empty:
            seen.add(setting)
            yield run


def _of(chosen: Baseline, *, is_named: bool) -> Iterator[Run | None]:
    """Yield the runs to be planned against this baseline, or None for a plan from the baseline alone."""
    others = [run for run in chosen.members if run is not chosen.run and not run.is_empty]
    if not is_named:
        others = [run for run in others if run.summary.method != "vanilla"]
    if others:
        yield from others
    elif is_named or chosen.run.manifest.is_target_alone:
        yield None


def _basis(connection: Connection, run: Run | None, base: Run) -> Basis:
    """Return a pilot on the problems with at least two samples. Raises CannotPlan."""
    pair = paired((run or base).outcomes, base.outcomes)
    if not pair.n:
        raise CannotPlan("no problem has samples in both runs")
    counts, family = pilot(run or base, base, pair)
    base_cost = _cost(connection, base)
    own_cost = base_cost if run is None else _cost(connection, run)
    return Basis(run, base, counts, family, pair, [own_cost, base_cost])


def _cost(connection: Connection, run: Run) -> SampleCost | None:
    """Return a finished sample's average cost on all devices, as in the report; None if no time is known."""
    every = costs(connection, run.run_id)
    finished = run.outcomes.num_samples - run.summary.num_not_run
    hours = sum(cost.work_hours for cost in every)
    if not hours or not finished:
        return None
    starts = sum(cost.start_hours for cost in every)
    return SampleCost(hours / finished, starts, any(cost.device != "cpu" for cost in every))


FEWEST_PROBLEMS = 60
"""Recommended minimum of pilot problems. With this many, at most 2 % of pilots with skewed differences lead a careful
plan to a number of problems with a power below 50 %; with 30 problems, up to 14 % do.
"""


@dataclass(frozen=True)
class Question:
    """The goal of a comparison; margin, power and difference as fractions."""

    margin: float = 0.02
    power: float = 0.8
    difference: float = 0.0
    """Assumed true difference, method − baseline."""
    correlation: float = 0.75
    """Assumed correlation of the two methods' true rates over problems, if only one method is known."""
    ks: Sequence[int] = (1, 2, 4, 8, 16, 32)
    """Samples per problem."""
    num_problems: int | None = None
    """Number of problems that will be used. None: all of the dataset."""


@dataclass(frozen=True)
class Size:
    """Requirements of a comparison with k samples per problem. Samples and hours are totals of both methods."""

    samples_per_problem: int
    problems: int | None
    """Number of problems needed. None: more than planning.MOST_PROBLEMS."""
    samples: int | None
    hours: float | None
    """GPU-hours, or worker-hours without a GPU. None: unknown."""
    share_of_samples: float
    """Share of the variance of a problem's difference that more samples per problem could remove."""
    detectable_margin_there: float | None
    """Smallest margin detectable with the plan's power on `Plan.num_problems` problems. None: no margin below 1."""
    hours_there: float | None
    """Hours for `Plan.num_problems` problems with k samples each."""


@dataclass(frozen=True)
class Plan:
    basis: Basis
    question: Question
    components: Components
    sizes: Sequence[Size]
    fewest_problems: int | None
    """Minimum number of problems with unlimited samples. None: more than planning.MOST_PROBLEMS."""
    num_problems: int
    """Number of problems for which power and margin are reported."""
    samples_there: int | None
    """Samples per problem needed with `num_problems` problems. None: more than planning.MOST_SAMPLES."""
    power_there: float
    """Power with `num_problems` problems and unlimited samples."""

    @property
    def is_pilot_small(self) -> bool:
        """Whether the pilot has too few problems for reliable variances."""
        return self.basis.num_problems < FEWEST_PROBLEMS

    @property
    def has_variance(self) -> bool:
        """False if both runs agree on every problem, so no plan is possible."""
        return bool(self.sizes)

    @property
    def cheapest(self) -> Size | None:
        """The plan's size with the fewest samples."""
        return min((size for size in self.sizes if size.samples), key=lambda size: size.samples or 0, default=None)


def plan(basis: Basis, question: Question) -> Plan:
    """Plan a comparison. If problems share families, the families are the independent observations."""
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
    """Return the requirements with k samples. moments: of a family's mean; members: problems per family."""
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
    "Margin: smallest margin (points) detectable with this power.",
    "Hours: total of both methods, with the pilot's devices and number of samples in flight.",
    "Plans are for similar problems in families of the same size. With a pilot of two runs on "
    f"{FEWEST_CAREFUL} to {NOISY_PROBLEMS - 1} problems, a plan uses the upper {100 * ASSURANCE:g} % limit of the "
    "variance.",
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
    differs = f"a method that truly differs by {signed(100 * asked.difference, 1)} points"
    assumed = differs if asked.difference else "an equally accurate method"
    return (
        f"{plan.basis.baseline.dataset}: problems and samples needed to show, with power {100 * asked.power:g} %, that "
        f"{assumed} is less than {_points(asked.margin)} worse"
    )


def _basis_lines(plan: Plan) -> Iterator[str]:
    basis, found = plan.basis, plan.components
    problems = counted(basis.num_problems, "problem")
    names = [place if name is None else name for place, name in enumerate(basis.family)]
    if (families := len(set(names))) < len(names):
        problems += f" in {families} families"
    if basis.run is None:
        yield f"Pilot: {basis.baseline.run_id} alone, {problems}."
        yield (
            "Assumed: the other method's true rates vary over problems as much as this run's, and the correlation of "
            f"the two is {plan.question.correlation:g} (--correlation). The standard deviation between problems "
            "follows from this assumption; it is not observed."
        )
        yield "A pilot of both methods would also show which problems only one of them solves."
    else:
        observed = signed(100 * float(basis.pilot.differences.mean()), 2)
        yield f"Pilot: {basis.run.run_id} vs. {basis.baseline.run_id}."
        yield f"{problems}; observed difference {observed} points."
    yield (
        f"Standard deviation of the difference: between problems {100 * sqrt(found.between):.1f} points, "
        f"within problems {100 * sqrt(found.within):.1f} points."
    )


def _warnings(plan: Plan) -> Iterator[str]:
    basis = plan.basis
    for run in basis.runs:
        summary = run.summary
        for line in setting_warnings(summary):
            yield f"{run.run_id}: {line}"
    if basis.pair.num_missing_samples:
        remedies = "; ".join(dict.fromkeys(run.remedy for run in basis.runs if run.is_unfinished))
        yield (
            f"UNFINISHED: {basis.pair.num_missing_samples} of {basis.pair.num_planned_samples} planned samples are "
            "missing in a run, mostly long chains. The variances describe only the easier samples, so the required "
            f"numbers are larger than shown; {remedies}."
        )
    if left_out := basis.pair.num_shared_problems - basis.num_problems:
        yield f"Left out: {counted(left_out, 'problem')} with fewer than two samples in a run."
    observed = float(basis.pilot.differences.mean()) if basis.run is not None else 0.0
    if observed <= -plan.question.margin < plan.question.difference:
        yield (
            f"OBSERVED LOSS: the pilot shows {signed(100 * observed, 2)} points. If that is the true difference, "
            "non-inferiority cannot be shown with any number of problems. The plan assumes otherwise."
        )
    if plan.is_pilot_small:
        yield (
            f"SMALL PILOT: {counted(basis.num_problems, 'problem')}. With fewer than {FEWEST_PROBLEMS}, the actual "
            "power is often far below the requested power."
        )
    if not plan.has_variance:
        yield "NO VARIANCE: both runs agree on every problem, so no plan is possible. Use a larger pilot."


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
    """Yield how many samples and problems are useful or enough, one sentence each."""
    enough = plan.components.enough_samples
    gain = f"lower the standard error by at most {100 * LEAST_GAIN:g} %"
    if enough is None:
        yield "The pilot shows no variance between problems: more samples always help."
    else:
        yield f"Beyond {enough} per problem, more samples hardly help: doubling them would {gain}."
        yield f"Even with unlimited samples, {_problems(plan.fewest_problems)} problems are needed."
    if plan.cheapest is not None:
        yield (
            f"Fewest samples, if enough problems are available: {plan.cheapest.samples_per_problem} per problem, "
            f"{plan.cheapest.samples:,} for both methods together."
        )
    there = counted(plan.num_problems, "problem")
    if plan.samples_there is not None:
        yield f"Needed with {there}: {counted(plan.samples_there, 'sample')} per problem."
    else:
        power = f"power at most {100 * plan.power_there:.0f} %"
        yield f"Not enough: {there}; {power}, even with {MOST_SAMPLES:,} samples per problem."
    if any(cost is None for cost in plan.basis.costs):
        yield "Hours are unknown, because the cost per sample of at least one method is unknown."


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
