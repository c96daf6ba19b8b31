"""Coverage of the intervals of warehouse/statistics on synthetic problems: one table.

Each line is a question and a population, at three sizes. A cell is the share of 95 % intervals that contain the true
value, in percent, as a range over abilities and samples per problem, and the number of data sets without an interval.
Further columns give the same without families or with Student's t, and the goal. The lines that miss their goal are
listed below the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from zlib import crc32

import numpy as np
from scipy import stats

from tools.simulate import nights
from tools.simulate.populations import (
    ABILITIES,
    CLUSTERS,
    POPULATIONS,
    SKEWED,
    TIME_RATIO,
    Numbers,
    Population,
    Rng,
    RunNoise,
    Sizes,
    Verdicts,
    decisions,
    family_numbers,
    in_families,
    population_mean,
    run_factors,
    times,
    true_rate,
)
from warehouse.statistics import bounded, intervals, paired, planning, ratios, shares
from warehouse.statistics.intervals import Interval

SEED = 26
N_OF_FAMILIES = 198
Result = Iterator[tuple[float, Interval, Interval | None]]
"""The true value, the interval, and an alternative interval that the harness does not use, per repetition."""
Once = Callable[[Rng, int, int], Result]
"""Function that simulates a number of repetitions at a size."""


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    what: str
    population: str
    sizes: Sequence[int]
    variants: Sequence[Once]
    """Simulations that differ in ability and samples per problem; a cell shows the range of their results."""
    unit: str = "problems"
    slow: int = 1
    """Divisor of the number of repetitions, for slow simulations."""
    goal: tuple[float, float] | None = None
    """Lowest and highest percentage that meet the goal; None: there is no goal."""
    told: str = ""
    """Text in the column of sizes, if `sizes` are list indices."""


@dataclass
class Cell:
    """Results at one size, in percent, one number per variant."""

    used: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)
    none: list[float] = field(default_factory=list)
    """Share of data sets without an interval."""

    def add(self, results: Result) -> None:
        """Count the repetitions of a variant."""
        rows = list(results)
        hits = [_holds(interval, truth) for truth, interval, _ in rows]
        others = [_holds(other, truth) for truth, _, other in rows]
        self.none.append(100 * hits.count(None) / len(rows))
        for numbers, held in ((self.used, hits), (self.other, others)):
            if known := [one for one in held if one is not None]:
                numbers.append(100 * float(np.mean(known)))

    def __str__(self) -> str:
        none = np.mean(self.none)
        return (_range(self.used) or "none") + (f" ({none:.0f} % none)" if 0.5 < none < 100 else "")

    def misses(self, low: float, high: float) -> bool:
        """Return whether a variant's printed percentage is below `low` or above `high`; variants without intervals do
        not count.
        """
        return any(not low <= round(one, 1) <= high for one in self.used)


def _holds(interval: Interval | None, truth: float) -> bool | None:
    if interval is None or interval.low is None or interval.high is None:
        return None
    return interval.low <= truth <= interval.high


def cells(line: Line, repetitions: int) -> Iterator[Cell]:
    """Yield the cell of each size."""
    for size in line.sizes:
        cell = Cell()
        for number, once in enumerate(line.variants):
            rng = np.random.default_rng([SEED, crc32(f"{line.what}{line.population}".encode()), size, number])
            cell.add(once(rng, max(2, repetitions // line.slow), size))
        yield cell


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    ends = [f"{end:.1f}" for end in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]}–{ends[1]}"


def table(lines: Iterable[Line], repetitions: int) -> Iterator[str]:
    """Yield the lines of a Markdown table, and finally a sentence on which of them miss their goal."""
    yield f"| question | population | sizes ({' / '.join(map(str, _ALONE))} problems) | % | alternative, % | goal |"
    yield "|---|---|---|---|---|---|"
    former, missed = "", []
    for line in lines:
        found = list(cells(line, repetitions))
        others = [_range(cell.other) for cell in found]
        otherwise = " / ".join(others) if any(others) else ""
        sizes = "" if tuple(line.sizes) == _ALONE else line.told or f"{' / '.join(map(str, line.sizes))} {line.unit}"
        what, former = "" if line.what == former else line.what, line.what
        meant = "" if line.goal is None else f"{line.goal[0]:g}–{line.goal[1]:g}"
        row = what, line.population, sizes, " / ".join(map(str, found)), otherwise, meant
        yield f"|{'|'.join(f' {text} ' if text else '' for text in row)}|"
        places = [
            str(size) for size, cell in zip(line.sizes, found, strict=True) if line.goal and cell.misses(*line.goal)
        ]
        missed += [f"{line.what}, {line.population} ({', '.join(places)})"] if places else []
    yield f"\nLines that miss their goal: {'; '.join(missed) or 'none'}."


def _labels(family: Numbers | None) -> list[str] | None:
    return None if family is None else [str(number) for number in family]


def _accuracy(
    rng: Rng, repetitions: int, size: int, *, level: float, k: int, sizes: Sizes | None, lost: float
) -> Result:
    """Yield accuracies, of `size` problems or of problems in `size` families; a share `lost` of the problems (families)
    is never solved. Alternative: the interval without families.
    """
    family = None if sizes is None else family_numbers(size, N_OF_FAMILIES, sizes)
    n = size if family is None else len(family)
    labels, truth = _labels(family), (1 - lost) * population_mean(level, 3.0)
    _, chances = Population(level).chances(rng, repetitions, n, 0.0, family)
    is_lost = rng.random((repetitions, size)) < lost
    chances = np.where(is_lost if family is None else is_lost[:, family], 0.0, chances)
    for correct in rng.binomial(k, chances) / k:
        plain = intervals.mean(correct) if labels else None
        yield truth, intervals.mean(correct, labels), plain


def _difference(
    rng: Rng, repetitions: int, size: int, *, population: Population, k: int, sizes: Sizes | None
) -> Result:
    """Yield differences of two equally accurate methods. Alternative: the interval without families."""
    family = None if sizes is None else family_numbers(size, N_OF_FAMILIES, sizes)
    n, labels = size if family is None else len(family), _labels(family)
    own, base = population.chances(rng, repetitions, n, 0.0, family)
    for first, second in zip(rng.binomial(k, own) / k, rng.binomial(k, base) / k, strict=True):
        yield 0.0, paired.paired(first, second, labels), paired.paired(first, second) if labels else None


def _worst_case(
    rng: Rng, repetitions: int, size: int, *, population: Population, k: int, sizes: Sizes | None
) -> Result:
    family = None if sizes is None else family_numbers(size, N_OF_FAMILIES, sizes)
    n, labels = size if family is None else len(family), _labels(family)
    own, base = population.chances(rng, repetitions, n, 0.0, family)
    for first, second in zip(rng.binomial(k, own) / k, rng.binomial(k, base) / k, strict=True):
        yield 0.0, bounded.worst_case(first, second, 0.0, labels), None


def _event(happened: bool) -> Interval:
    """Return an interval that contains the true value 0 only if the event happened, to count events like coverage."""
    return Interval(0.0, *((0.0, 0.0) if happened else (1.0, 1.0)), None, "")


def _not_worse(rng: Rng, repetitions: int, size: int, *, population: Population, k: int) -> Result:
    """Yield whether "not worse" is withheld from a method that is worse by the margin of 2 points. Alternative: the
    decision by Student's t.
    """
    own, base = population.chances(rng, repetitions, size, -0.02)
    for first, second in zip(rng.binomial(k, own) / k, rng.binomial(k, base) / k, strict=True):
        found, t = bounded.worst_case(first, second, 0.02), paired.paired(first, second)
        yield 0.0, _event((found.p or 0) >= 0.025), _event(t.low is None or t.low <= -0.02)


def _planned(rng: Rng, repetitions: int, size: int, *, population: Population, families: bool) -> Result:
    """Yield whether a comparison of equally accurate methods shows non-inferiority, if its size is planned from a pilot
    with `size` problems.
    """
    for _ in range(repetitions):
        family = np.arange(size) // 3 if families else None
        [own], [base] = population.chances(rng, 1, size, 0.0, family)
        samples = np.full(size, 4)
        pilot = planning.Pilot(rng.binomial(4, own), samples, rng.binomial(4, base), samples)
        n = planning.plan(pilot, 0.05, 4, family=_labels(family)) or planning.MOST_PROBLEMS
        family = np.arange(n) // 3 if families else None
        [own], [base] = population.chances(rng, 1, n, 0.0, family)
        found = bounded.worst_case(rng.binomial(4, own) / 4, rng.binomial(4, base) / 4, 0.05, _labels(family))
        yield 0.0, _event((found.p or 0) < 0.025), None


def _on_these(rng: Rng, repetitions: int, size: int, *, level: float, k: int) -> Result:
    """Yield differences on the same problems; each repetition draws other problems."""
    own, base = Population(level, method_spread=1.0).chances(rng, repetitions, size, 0.02)
    samples = np.full(size, k)
    for p, q in zip(own, base, strict=True):
        first, second = rng.binomial(k, p), rng.binomial(k, q)
        yield float(np.mean(p - q)), paired.on_these(first, samples, second, samples), None


def _time(rng: Rng, repetitions: int, size: int, *, spread: float | None, what: str) -> Result:
    for _ in range(repetitions):
        first, second, of_means = times(rng, size, spread)
        if what == "mean":
            truth = 2.0 if spread is None else float(np.exp(2 + spread**2 / 2))
            yield truth, ratios.mean_time([second], resamples=999), intervals.mean_t(second)
        else:
            found = ratios.ratio([first], [second], resamples=999)
            yield (of_means, found.of_means, None) if what == "of means" else (TIME_RATIO, found.geometric_mean, None)


def _repeated(rng: Rng, repetitions: int, size: int, *, noise: RunNoise, n: int, spread: float) -> Result:
    """Yield ratios of means of two settings with `size` repeats each. Run noise has the same distribution in both
    settings, so it leaves the true ratio unchanged.
    """
    for _ in range(repetitions):
        first, second, truth = times(rng, n, spread)
        # One more run of each setting is drawn than is used, so the seeds give the numbers in the documentation.
        own, base = (
            [one * np.exp(factor + rng.normal(0, 0.05, n)) for factor in run_factors(rng, size + 1, noise)][1:]
            for one in (first, second)
        )
        yield truth, ratios.ratio(own, base, resamples=999).of_means, None


def _rate(rng: Rng, repetitions: int, size: int, *, looping: float) -> Result:
    for _ in range(repetitions):
        refused, count = decisions(rng, size, looping)
        yield true_rate(looping), shares.rate(refused, count), None


@lru_cache(maxsize=8)
def _true_area(level: float) -> float:
    drawn = Verdicts(np.random.default_rng(0), 100_000, 1, level)
    right, wrong = drawn.rating[drawn.is_correct], drawn.rating[~drawn.is_correct]
    return float(stats.mannwhitneyu(right, wrong).statistic) / (len(right) * len(wrong))


def _area(rng: Rng, repetitions: int, size: int, *, level: float, k: int) -> Result:
    for _ in range(repetitions):
        drawn = Verdicts(rng, size, k, level)
        yield _true_area(level), shares.auroc(drawn.rating, drawn.is_correct, drawn.sample, drawn.problem), None


def _false_night(rng: Rng, repetitions: int, size: int, *, kind: nights.Nights) -> Result:
    """Yield whether an unchanged night has a false alarm. Alternative: whether its verdict is INCONCLUSIVE. size:
    percentage of missing cells.
    """
    for is_false, is_inconclusive in nights.false_nights(rng, repetitions, replace(kind, missing=size / 100)):
        yield 0.0, _event(is_false), _event(is_inconclusive)


def _found(rng: Rng, repetitions: int, size: int, *, kind: nights.Nights) -> Result:
    """Yield whether a change in one cell is found within three nights. size: index of the change in nights.CHANGES."""
    for found in nights.found_within_three(rng, repetitions, kind, list(nights.CHANGES.values())[size]):
        yield 0.0, _event(found), None


def _of(once: Callable[..., Result], **choices: Iterable[object]) -> list[Once]:
    """Return a variant of a simulation for every combination of choices."""
    found: list[dict[str, object]] = [{}]
    for name, values in choices.items():
        found = [known | {name: value} for known in found for value in values]
    return [partial(once, **known) for known in found]


_LEVELS, _KS = tuple(ABILITIES.values()), (1, 4, 16)
_ALONE = (30, 100, 198)
_USUAL, _TIMES = (94.0, 97.0), (93.0, 100.0)
_GROUPED: Sequence[tuple[Sizes, Sequence[int], tuple[float, float]]] = (
    ("equal", (20, 66), _USUAL),
    ("unequal", (10, 20, 66), (91.0, 100.0)),
)
_METHODS = [Population(level, method_spread=1.0) for level in _LEVELS]


def lines() -> Iterator[Line]:
    """Yield the table's lines."""
    yield from _of_answers()
    yield from _of_times()
    for name, looping in (("no loops", 0.0), ("6 % of problems loop", 0.06)):
        yield Line("fallback (`rate`)", name, _ALONE, _of(_rate, looping=[looping]), slow=4)
    for name, level in ABILITIES.items():
        yield Line("AUROC (`auroc`)", f"{name}, k 1, 4", _ALONE, _of(_area, level=[level], k=[1, 4]), slow=8)
    for name, population, families in (
        ("symmetric, middle", "symmetric, middle", False),
        ("3 % lost", "3 % lost", False),
        ("families of 3", "symmetric, middle", True),
    ):
        variants = _of(_planned, population=[POPULATIONS[population]], families=[families])
        yield Line("power that `plan` meant to be 80", name, (30, 100, 240), variants, slow=20)
    yield from _of_nights()


def _of_nights() -> Iterator[Line]:
    goals = dict(zip(nights.KINDS, (1.0, 1.5, 3.0), strict=True))
    for name, kind in nights.KINDS.items():
        variants = _of(_false_night, kind=[kind])
        missing = (0, 10) if kind is nights.CALM else (0,)
        yield Line("nights: false", name, missing, variants, "% of cells missing", 200, (0.0, goals[name]))
    for name, kind in nights.KINDS.items():
        goal = (90.0, 100.0) if kind is nights.CALM else None
        told = " / ".join(nights.CHANGES)
        yield Line("nights: found within three", name, (0, 1, 2), _of(_found, kind=[kind]), "", 40, goal, told)


def _of_answers() -> Iterator[Line]:
    what = "accuracy (`mean`)"
    yield Line(what, "logits", _ALONE, _of(_accuracy, level=_LEVELS, k=_KS, sizes=[None], lost=[0.0]), goal=_USUAL)
    yield Line(what, "5 % of problems lost", _ALONE, _of(_accuracy, level=[8.0], k=_KS, sizes=[None], lost=[0.05]))
    for sizes, numbers, goal in _GROUPED:
        variants = _of(_accuracy, level=_LEVELS, k=_KS, sizes=[sizes], lost=[0.0])
        yield Line(what, f"{sizes} families", numbers, variants, "families", goal=goal)
    what = "difference (`paired`)"
    yield Line(what, "logits, k 1", _ALONE, _of(_difference, population=_METHODS, k=[1], sizes=[None]), goal=_USUAL)
    variants = _of(_difference, population=_METHODS, k=[4, 16], sizes=[None])
    yield Line(what, "logits, k 4, 16", _ALONE, variants, goal=_USUAL)
    for sizes, numbers, goal in _GROUPED:
        variants = _of(_difference, population=_METHODS, k=_KS, sizes=[sizes])
        yield Line(what, f"{sizes} families", numbers, variants, "families", goal=goal)
    broken: Mapping[str, tuple[Population, Sizes | None, Sequence[int]]] = {
        "3 % of problems lost": (SKEWED["3 % lost"], None, _ALONE),
        "8 % of problems lost": (SKEWED["8 % lost"], None, _ALONE),
        "6 % of samples loop": (SKEWED["6 % loop"], None, _ALONE),
        "two clusters": (CLUSTERS, None, _ALONE),
        "8 % of families lost": (in_families(SKEWED["8 % lost"]), "equal", (20, 40, 66)),
        "two clusters of families": (in_families(CLUSTERS), "equal", (20, 40, 66)),
    }
    for what, once, slow in (("difference (`paired`)", _difference, 1), ("worst case (`worst_case`)", _worst_case, 12)):
        for name, (population, grouped, numbers) in broken.items():
            variants = _of(once, population=[population], k=_KS, sizes=[grouped])
            meant = (94.0, 100.0) if once is _worst_case else None
            yield Line(what, name, numbers, variants, "families" if grouped else "problems", slow, meant)
    for name in ("3 % lost", "8 % lost", "6 % loop"):
        variants = _of(_not_worse, population=[SKEWED[name]], k=_KS)
        yield Line('"not worse" withheld at −2 points (97.5)', name, _ALONE, variants, slow=12)
    for shown, ks in (("2", [2]), ("4, 16", [4, 16])):
        variants = _of(_on_these, level=_LEVELS, k=ks)
        yield Line("on these problems (`on_these`)", f"logits, k {shown}", _ALONE, variants, goal=(93.0, 97.0))


def _of_times() -> Iterator[Line]:
    spreads = {"log-normal, σ 0.6": 0.6, "log-normal, σ 1.2": 1.2, "Pareto, α 2": None}
    for what in ("mean", "of means", "geometric mean"):
        shown = {"mean": "mean time (`mean_time`)"}.get(what, f"ratio, {what} (`ratio`)")
        for name, spread in spreads.items():
            goal, slow = None if spread is None or what == "mean" else _TIMES, 4 if what == "mean" else 2
            yield Line(shown, name, _ALONE, _of(_time, spread=[spread], what=[what]), slow=slow, goal=goal)
    for noise in ("normal", "t3", "one in ten 1.5 × as slow"):
        variants = _of(_repeated, noise=[noise], n=[198], spread=[0.6])
        meant = None if noise.startswith("one") else _TIMES
        yield Line("ratio of settings, 198 problems", f"run noise: {noise}", (2, 3, 5), variants, "repeats", 2, meant)


def half_lengths(repetitions: int) -> str:
    """Return the mean half-widths, in points, of intervals at AIME24's size."""
    rng, found = np.random.default_rng(SEED), defaultdict(list)
    samples = np.full(30, 16)
    own, base = Population(0.0, method_spread=1.0).chances(rng, max(2, repetitions // 20), 30, 0.0)
    for p, q in zip(own, base, strict=True):
        first, second = rng.binomial(16, p), rng.binomial(16, q)
        for name, interval in (
            ("like these", paired.paired(first / 16, second / 16)),
            ("on these", paired.on_these(first, samples, second, samples)),
            ("worst case", bounded.worst_case(first / 16, second / 16, 0.02)),
        ):
            if interval.low is not None and interval.high is not None:
                found[name].append(50 * (interval.high - interval.low))
    shown = ", ".join(f"{name} ±{np.mean(values):.1f}" for name, values in found.items())
    return f"Mean half-width in points at 30 problems × 16 samples: {shown}."
