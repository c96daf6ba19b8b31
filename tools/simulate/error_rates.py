"""How often the intervals of warehouse/statistics hold the truth, on synthetic problems: one table.

Each line is a question and a population, at three sizes. A cell is the share of 95 % intervals that hold the truth, in
percent, as a range over abilities and samples per problem, and how many data sets had no interval. The last column is
the same for what was used before, or for problems whose families are not stated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from zlib import crc32

import numpy as np
from scipy import stats

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
from warehouse.statistics.intervals import Floats, Interval
from warehouse.statistics.run_factor import between_runs, run_factor

SEED = 26
N_OF_FAMILIES = 198
Result = Iterator[tuple[float, Interval, Interval | None]]
"""Truth, interval, and the one that it replaces, of each repetition."""
Once = Callable[[Rng, int, int], Result]
"""A simulation of some repetitions at a size."""


@dataclass(frozen=True)
class Line:
    """A line of the table."""

    what: str
    population: str
    sizes: Sequence[int]
    variants: Sequence[Once]
    """Abilities and samples per problem, of which a cell gives the range."""
    unit: str = "problems"
    slow: int = 1
    """By how much the repetitions are divided."""


@dataclass
class Tally:
    """What was counted of one variant at one size."""

    found: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))

    def add(self, column: str, interval: Interval | None, truth: float) -> None:
        if interval is not None and interval.low is not None and interval.high is not None:
            self.found[column].append(interval.low <= truth <= interval.high)


def cells(line: Line, repetitions: int) -> Iterator[tuple[str, str]]:
    """Yield for each size the cell of the interval and that of what it replaces."""
    count = max(2, repetitions // line.slow)
    for size in line.sizes:
        covers: dict[str, list[float]] = defaultdict(list)
        missing = []
        for number, once in enumerate(line.variants):
            rng = np.random.default_rng([SEED, crc32(f"{line.what}{line.population}".encode()), size, number])
            tally = Tally()
            for truth, interval, replaced in once(rng, count, size):
                tally.add("used", interval, truth)
                tally.add("replaced", replaced, truth)
            missing.append(1 - len(tally.found["used"]) / count)
            for column, hits in tally.found.items():
                if hits:
                    covers[column].append(100 * float(np.mean(hits)))
        shown = _range(covers["used"]) or "none"
        none = f" ({100 * float(np.mean(missing)):.0f} % none)" if 0.005 < np.mean(missing) < 1 else ""
        yield shown + none, _range(covers["replaced"])


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    ends = [f"{end:.1f}" for end in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]}–{ends[1]}"


def table(lines: Iterable[Line], repetitions: int) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| interval | population | sizes ({' / '.join(map(str, _ALONE))} problems) | covers, % | before, % |"
    yield "|---|---|---|---|---|"
    former = ""
    for line in lines:
        used, replaced = zip(*cells(line, repetitions), strict=True)
        before = " / ".join(replaced) if any(replaced) else ""
        sizes = "" if tuple(line.sizes) == _ALONE else " / ".join(map(str, line.sizes)) + f" {line.unit}"
        what, former = "" if line.what == former else line.what, line.what
        yield f"| {what} | {line.population} | {sizes} | {' / '.join(used)} | {before} |"


def _labels(family: Numbers | None) -> list[str] | None:
    return None if family is None else [str(number) for number in family]


def _accuracy(
    rng: Rng, repetitions: int, size: int, *, level: float, k: int, sizes: Sizes | None, lost: float
) -> Result:
    """Accuracy of problems that stand alone, or are in `size` families; a share of them (of the families) is lost."""
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
    """Difference of two methods that are equally accurate."""
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
    """Return an interval that holds 0 if something happened."""
    return Interval(0.0, *((0.0, 0.0) if happened else (1.0, 1.0)), None, "")


def _not_worse(rng: Rng, repetitions: int, size: int, *, population: Population, k: int) -> Result:
    """Whether "not worse" is withheld from a method that is worse by the margin of 2 points; before: by t."""
    own, base = population.chances(rng, repetitions, size, -0.02)
    for first, second in zip(rng.binomial(k, own) / k, rng.binomial(k, base) / k, strict=True):
        found, t = bounded.worst_case(first, second, 0.02), paired.paired(first, second)
        yield 0.0, _event((found.p or 0) >= 0.025), _event(t.low is None or t.low <= -0.02)


def _planned(rng: Rng, repetitions: int, size: int, *, population: Population, families: bool) -> Result:
    """Whether a comparison of equally accurate methods, as large as a pilot of `size` problems says, shows it."""
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
    """Difference on these very problems, whose chances are drawn anew in each repetition."""
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
    """Ratio of means of two settings with `size` repeats each.

    Before: of one more run of each, widened by the factor of the repeats of one setting.
    """
    for _ in range(repetitions):
        first, second, truth = times(rng, n, spread)
        every = [
            [one * np.exp(factor + rng.normal(0, 0.05, n)) for factor in run_factors(rng, size + 1, noise)]
            for one in (first, second)
        ]
        runs = [repeats[1:] for repeats in every]
        pair = ratios.mean_of(every[0][0]), ratios.mean_of(every[1][0])
        factor = run_factor([np.log(np.stack(runs[0]))])
        # A run in ten that is slower makes every setting slower in the same way: the ratio stays.
        yield (
            truth,
            ratios.ratio(runs[0], runs[1], resamples=999).of_means,
            between_runs(ratios.ratio_of_means(*pair, resamples=999), factor),
        )


def _former_share(x: Floats, y: Floats) -> Interval:
    """Return t of Σx/Σy with two pseudo-problems of mean y, one with all of it in x and one with none, of weight ¼."""
    mean, weights = float(y.mean()), np.append(np.ones(len(x)), [0.25, 0.25])
    x, y = np.append(x, [0.0, mean]), np.append(y, [mean, mean])
    total, weight = float(weights.sum()), float(weights @ y)
    centre = float(weights @ x) / weight
    error = float(np.sqrt(weights @ (x - centre * y) ** 2 * total / (total - 1))) / weight
    half = float(stats.t.ppf(0.975, total - 1)) * error
    return Interval(centre, max(0.0, centre - half), min(1.0, centre + half), error, "")


def _rate(rng: Rng, repetitions: int, size: int, *, looping: float) -> Result:
    for _ in range(repetitions):
        refused, count = decisions(rng, size, looping)
        yield true_rate(looping), shares.rate(refused, count), _former_share(refused, count)


@lru_cache(maxsize=8)
def _true_area(level: float) -> float:
    drawn = Verdicts(np.random.default_rng(0), 100_000, 1, level)
    right, wrong = drawn.rating[drawn.is_correct], drawn.rating[~drawn.is_correct]
    return float(stats.mannwhitneyu(right, wrong).statistic) / (len(right) * len(wrong))


def _area(rng: Rng, repetitions: int, size: int, *, level: float, k: int) -> Result:
    for _ in range(repetitions):
        drawn = Verdicts(rng, size, k, level)
        yield _true_area(level), shares.auroc(drawn.rating, drawn.is_correct, drawn.sample, drawn.problem), None


def _of(once: Callable[..., Result], **choices: Iterable[object]) -> list[Once]:
    """Return a variant for every combination of choices."""
    found: list[dict[str, object]] = [{}]
    for name, values in choices.items():
        found = [known | {name: value} for known in found for value in values]
    return [partial(once, **known) for known in found]


_LEVELS, _KS = tuple(ABILITIES.values()), (1, 4, 16)
_ALONE, _FAMILIES = (30, 100, 198), (10, 20, 66)
_METHODS = [Population(level, method_spread=1.0) for level in _LEVELS]


def lines() -> Iterator[Line]:
    """Yield the table's lines."""
    what = "accuracy (`mean`)"
    yield Line(what, "logits", _ALONE, _of(_accuracy, level=_LEVELS, k=_KS, sizes=[None], lost=[0.0]))
    yield Line(what, "5 % of problems lost", _ALONE, _of(_accuracy, level=[8.0], k=_KS, sizes=[None], lost=[0.05]))
    for sizes in ("equal", "unequal"):
        variants = _of(_accuracy, level=_LEVELS, k=_KS, sizes=[sizes], lost=[0.0])
        yield Line(what, f"{sizes} families", _FAMILIES, variants, "families")
    what = "difference (`paired`)"
    yield Line(what, "logits, k 1", _ALONE, _of(_difference, population=_METHODS, k=[1], sizes=[None]))
    yield Line(what, "logits, k 4, 16", _ALONE, _of(_difference, population=_METHODS, k=[4, 16], sizes=[None]))
    for sizes in ("equal", "unequal"):
        variants = _of(_difference, population=_METHODS, k=_KS, sizes=[sizes])
        yield Line(what, f"{sizes} families", _FAMILIES, variants, "families")
    broken: Mapping[str, tuple[Population, Sizes | None, Sequence[int]]] = {
        "3 % of problems lost": (SKEWED["3 % lost"], None, _ALONE),
        "8 % of problems lost": (SKEWED["8 % lost"], None, _ALONE),
        "6 % of samples loop": (SKEWED["6 % loop"], None, _ALONE),
        "two clusters": (CLUSTERS, None, _ALONE),
        "8 % of families lost": (in_families(SKEWED["8 % lost"]), "equal", (20, 40, 66)),
        "two clusters of families": (in_families(CLUSTERS), "equal", (20, 40, 66)),
    }
    for what, once, slow in (("difference (`paired`)", _difference, 1), ("worst case (`worst_case`)", _worst_case, 3)):
        for name, (population, grouped, numbers) in broken.items():
            variants = _of(once, population=[population], k=_KS, sizes=[grouped])
            yield Line(what, name, numbers, variants, "families" if grouped else "problems", slow)
    for name in ("3 % lost", "8 % lost", "6 % loop"):
        variants = _of(_not_worse, population=[SKEWED[name]], k=_KS)
        yield Line('"not worse" withheld at −2 points (97.5)', name, _ALONE, variants, slow=3)
    yield Line("on these problems (`on_these`)", "logits, k 2", _ALONE, _of(_on_these, level=_LEVELS, k=[2]))
    yield Line("on these problems (`on_these`)", "logits, k 4, 16", _ALONE, _of(_on_these, level=_LEVELS, k=[4, 16]))
    spreads = {"log-normal, σ 0.6": 0.6, "log-normal, σ 1.2": 1.2, "Pareto, α 2": None}
    for what in ("mean", "of means", "geometric mean"):
        shown = {"mean": "mean time (`mean_time`)"}.get(what, f"ratio, {what} (`ratio`)")
        for name, spread in spreads.items():
            yield Line(shown, name, _ALONE, _of(_time, spread=[spread], what=[what]), slow=2)
    for noise in ("normal", "t3", "one in ten 1.5 × as slow"):
        variants = _of(_repeated, noise=[noise], n=[198], spread=[0.6])
        yield Line("ratio of settings, 198 problems", f"run noise: {noise}", (2, 3, 5), variants, "repeats", 2)
    for name, looping in (("no loops", 0.0), ("6 % of problems loop", 0.06)):
        yield Line("fallback (`rate`)", name, _ALONE, _of(_rate, looping=[looping]))
    for name, level in ABILITIES.items():
        yield Line("AUROC (`auroc`)", f"{name}, k 1, 4", _ALONE, _of(_area, level=[level], k=[1, 4]), slow=2)
    for name in ("symmetric, middle", "3 % lost"):
        variants = _of(_planned, population=[POPULATIONS[name]], families=[False])
        yield Line("power that `plan` meant to be 80", name, (30, 100, 240), variants, slow=5)
    variants = _of(_planned, population=[POPULATIONS["symmetric, middle"]], families=[True])
    yield Line("power that `plan` meant to be 80", "families of 3", (30, 100, 240), variants, slow=5)


def half_lengths(repetitions: int) -> str:
    """Return what the intervals of AIME24's size are wide: half lengths in points, means over data sets."""
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
    return f"Half length in points at 30 problems × 16 samples: {shown}."
