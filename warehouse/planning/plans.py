"""The plan of a comparison: problems, samples and GPU-hours with which it is decided as often as asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warehouse.planning.pilots import Basis
from warehouse.statistics import bounded, planning
from warehouse.statistics.planning import Components

FEWEST_PROBLEMS = 60
"""Problems that a pilot should have. From so many on, the careful number of problems has a power below 50 % after at
most 2 % of pilots with skewed differences; with 30 it is up to 14 % of them (simulation in
warehouse/statistics/README.md)."""


NOISY_PROBLEMS = 200
"""Problems of a pilot below which the careful number of problems is the one to go by (the same simulation)."""


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

    k: int
    problems: int | None
    """None: more than planning.MOST_PROBLEMS, as in the next."""
    careful_problems: int | None
    """The same for the upper limit of the variance that the pilot leaves open; None also with a baseline alone, or with
    fewer than planning.FEWEST_CAREFUL problems."""
    samples: int | None
    hours: float | None
    """GPU-hours, or hours of workers without a GPU; None: no time is known."""
    share_of_samples: float
    """Share of a difference's variance that more samples per problem could remove."""
    margin_there: float | None
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
    least_problems: int
    """Without any difference on any problem."""

    @property
    def is_pilot_small(self) -> bool:
        """True where the variances of so few problems are too noisy to rest a plan on."""
        return self.basis.num_problems < FEWEST_PROBLEMS

    @property
    def is_pilot_noisy(self) -> bool:
        """True where the careful numbers are those to go by."""
        return self.basis.run is not None and self.basis.num_problems < NOISY_PROBLEMS

    @property
    def cheapest(self) -> Size | None:
        """The size with the fewest samples."""
        return min((size for size in self.sizes if size.samples), key=lambda size: size.samples or 0, default=None)


def has_careful(basis: Basis) -> bool:
    """Return whether a pilot tells how noisy its variances are."""
    return basis.run is not None and basis.num_problems >= planning.FEWEST_CAREFUL


def plan(basis: Basis, question: Question) -> Plan:
    """Plan a comparison."""
    pilot, asked = basis.pilot, (question.margin, question.power, question.difference)
    if basis.run is None:
        found = planning.components_of_one(pilot.first_correct, pilot.first_samples, question.correlation)
    else:
        found = pilot.components
    num_problems = question.num_problems or basis.baseline.summary.dataset_size
    unlimited = Components(found.between, 0.0, found.third).moments(1)
    return Plan(
        basis,
        question,
        found,
        [_size(basis, question, found, k, num_problems) for k in question.ks],
        planning.problems_needed(unlimited, *asked),
        num_problems,
        planning.samples_needed(found, num_problems, *asked),
        planning.power(unlimited, num_problems, question.margin, question.difference),
        bounded.problems_needed(question.margin),
    )


def _size(basis: Basis, question: Question, found: Components, k: int, num_problems: int) -> Size:
    margin, power, difference = question.margin, question.power, question.difference
    moments = found.moments(k)
    problems = planning.problems_needed(moments, margin, power, difference)
    careful = None
    if has_careful(basis):
        careful = planning.problems_needed(basis.pilot.careful(k), margin, power, difference)
    told = [cost.device_hours for cost in basis.costs if cost is not None]
    per_problem = k * sum(told) if len(told) == len(basis.costs) else None
    return Size(
        k,
        problems,
        careful,
        None if problems is None else 2 * k * problems,
        None if problems is None or per_problem is None else per_problem * problems,
        found.share_of_samples(k),
        planning.detectable_margin(moments, num_problems, power, difference),
        None if per_problem is None else per_problem * num_problems,
    )
