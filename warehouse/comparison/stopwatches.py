"""Runs under every paper's definition of latency: values, ratios paired by problem, and rankings that flip.

The views of views/stopwatches.sql hold the definitions, with their sources. A run's value is Σx/Σy over the problems
that every ranked run has by that definition, so that all runs are ranked on the same problems. It is over the run's own
timed samples of them; where these are not the same samples in all runs, the ranking says so. The intervals of
speed-ups cover the run factor where it is known, as those of the view `speed_up` do: every definition is made of the
run's own times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import cast

import numpy as np

from warehouse.database import Connection, rows
from warehouse.statistics.intervals import Interval
from warehouse.statistics.ratios import Fractions, ratio_of_means
from warehouse.statistics.run_factor import RunFactor, between_runs

_ROUNDING = 1e-9
"""Share by which a ratio differs from 1 by rounding alone."""
MEASURED = "measured"
"""The definition that the others are compared with."""
_DEFINITIONS = "SELECT * EXCLUDE (place) FROM stopwatch ORDER BY place"
_PROBLEMS = """
SELECT stopwatch, problem_id || ' ' || content_hash AS problem, x, y
FROM problem_stopwatch JOIN problem USING (run_id, problem_id)
WHERE run_id = $run_id ORDER BY problem_index
"""
_SAMPLES = """
SELECT problem_id || ' ' || content_hash AS problem, list(sample_index) AS samples
FROM timed_sample JOIN sample USING (run_id, sample_id, problem_id) JOIN problem USING (run_id, problem_id)
WHERE run_id = $run_id GROUP BY ALL
"""
_SERIAL = "SELECT max(num_samples) AS samples, sum(num_earlier) AS earlier FROM serial_seconds WHERE run_id = $run_id"
_CLOCKS = """
SELECT stopwatch, value, dataset_hash || ' × ' || samples AS sample_set
FROM run_stopwatch JOIN run USING (run_id) WHERE run_id = $run_id AND n IS NULL
"""


@dataclass(frozen=True)
class Definition:
    """A definition of latency."""

    stopwatch: str
    """Its name in the views."""
    title: str
    unit: str
    is_rate: bool
    """Whether a higher value is faster."""
    definition: str
    source: str
    leaves_out: str

    @property
    def is_sum(self) -> bool:
        """Whether a problem's value is the time of all of its samples, so that twice as many take twice as long."""
        return self.unit == "s/problem"


@dataclass(frozen=True)
class Times:
    """What the definitions measure of one run."""

    problems: Mapping[str, Mapping[str, tuple[float, float]]]
    """x and y by definition and problem."""
    clocks: Mapping[str, float]
    """Values of a whole run by definition, for definitions that cannot be split into problems."""
    sample_set: str = ""
    """Which problems and how many samples of each such a value is over."""
    timed: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Indices of the timed samples by problem: those that are finished, not failed, and not resumed."""
    samples: int = 0
    """Samples of each problem where the definition adds them up."""
    num_earlier: int = 0
    """Of these, over all problems, those that an earlier attempt finished, which count 0 s."""


@dataclass(frozen=True)
class Ranked:
    """A run under one definition."""

    run_id: str
    value: float
    """In the definition's unit."""
    place: int
    """From 1, the fastest."""
    speed_up: Interval | None
    """How many times faster than the baseline, by the definition; None for the baseline itself. Without low and high
    where problems cannot be paired."""


@dataclass(frozen=True)
class Flip:
    """Two runs whose order differs from that by measured wall time."""

    faster: str
    """The run that this definition puts first."""
    slower: str
    speed_up: Interval
    """How many times faster the first is by this definition: 1 or more."""
    measured: Interval
    """How many times faster it is by measured wall time: 1 or less."""

    @property
    def is_significant(self) -> bool:
        """True if neither interval contains 1."""
        low, high = self.speed_up.low, self.measured.high
        return low is not None and high is not None and low > 1 > high


@dataclass(frozen=True)
class Ranking:
    """The runs of a dataset by one definition, the fastest first."""

    dataset: str
    definition: Definition
    baseline: str
    n: int | None
    """Number of problems that all ranked runs have; None for a definition without problems."""
    ranked: Sequence[Ranked]
    without_value: Sequence[str]
    """Runs that have no value by this definition, in the order of the comparison."""
    flips: Sequence[Flip]
    has_other_samples: bool = False
    """Whether the ranked runs did not time the same samples of these problems."""
    regime: str = ""
    """The regime of these runs, where the dataset has a ranking for each; otherwise empty."""


def read_definitions(connection: Connection) -> list[Definition]:
    """Return the definitions of latency, measured wall time first."""
    names = ("stopwatch", "title", "unit", "definition", "source", "leaves_out")
    return [
        Definition(is_rate=bool(row["is_rate"]), **{name: str(row[name]) for name in names})
        for row in rows(connection, _DEFINITIONS)
    ]


def read_times(connection: Connection, run_id: str) -> Times:
    """Return what the definitions measure of a run in the warehouse."""
    problems: dict[str, dict[str, tuple[float, float]]] = {}
    for row in rows(connection, _PROBLEMS, {"run_id": run_id}):
        values = problems.setdefault(str(row["stopwatch"]), {})
        values[str(row["problem"])] = (float(str(row["x"])), float(str(row["y"])))
    clocks = rows(connection, _CLOCKS, {"run_id": run_id})
    sample_set = str(clocks[0]["sample_set"]) if clocks else ""
    timed = {
        str(row["problem"]): frozenset(cast("list[int]", row["samples"]))
        for row in rows(connection, _SAMPLES, {"run_id": run_id})
    }
    [serial] = rows(connection, _SERIAL, {"run_id": run_id})
    return Times(
        problems,
        {str(row["stopwatch"]): float(str(row["value"])) for row in clocks},
        sample_set,
        timed,
        int(str(serial["samples"] or 0)),
        int(str(serial["earlier"] or 0)),
    )


def rankings(
    dataset: str,
    baseline: str,
    times: Mapping[str, Times],
    definitions: Sequence[Definition],
    factors: Mapping[str, RunFactor] | None = None,
) -> list[Ranking]:
    """Rank the runs of a dataset by every definition.

    times: by run id, in the order of the comparison. A run has no value by a definition that has no time of it, that
    has none for the problems of the runs before it (the baseline is the first), or that adds up other samples than the
    baseline's. factors: the run factor by run id, of the runs that may be compared with the baseline; a run without one
    has intervals within these runs only.
    """
    return [_ranking(dataset, baseline, times, definition, factors or {}) for definition in definitions]


def _factor(runs: set[str], baseline: str, factors: Mapping[str, RunFactor]) -> RunFactor | None:
    """Return the run factor of the ratio of two runs: the run's own against the baseline, else the larger of both."""
    own = [factors.get(run_id) for run_id in sorted(runs - {baseline})]
    known = [factor for factor in own if factor is not None]
    return max(known, key=RunFactor.half_width) if known and len(known) == len(own) else None


def _ranking(
    dataset: str,
    baseline: str,
    times: Mapping[str, Times],
    definition: Definition,
    factors: Mapping[str, RunFactor],
) -> Ranking:
    name = definition.stopwatch
    clocks = {run_id: time.clocks[name] for run_id, time in times.items() if name in time.clocks}
    reference = times[baseline if baseline in clocks else next(iter(clocks))].sample_set if clocks else ""
    clocks = {run_id: value for run_id, value in clocks.items() if times[run_id].sample_set == reference}
    own, problems = _fractions(_addable(definition, baseline, times), baseline)
    values = clocks or {run_id: float(fractions.x.sum() / fractions.y.sum()) for run_id, fractions in own.items()}

    def paired(of: Mapping[str, Fractions], slow: str, fast: str) -> Interval:
        return between_runs(ratio_of_means(of[slow], of[fast]), _factor({slow, fast}, baseline, factors))

    def speed_up(run_id: str, other: str) -> Interval:
        slow, fast = (run_id, other) if definition.is_rate else (other, run_id)
        if clocks:
            return Interval(values[slow] / values[fast], None, None, None, "none: one clock")
        return paired(own, slow, fast)

    order = sorted(values, key=lambda run_id: -values[run_id] if definition.is_rate else values[run_id])
    ranked = [
        Ranked(
            run_id,
            values[run_id],
            order.index(run_id) + 1,
            speed_up(run_id, baseline) if run_id != baseline and baseline in values else None,
        )
        for run_id in order
    ]
    measured, _ = _fractions({run_id: times[run_id].problems.get(MEASURED, {}) for run_id in values}, baseline)
    flips = []
    for faster, slower in combinations(order, 2):
        if {faster, slower} <= set(measured):
            before = paired(measured, slower, faster)
            after = speed_up(faster, slower)
            if before.estimate < 1 - _ROUNDING and after.estimate > 1 + _ROUNDING:
                flips.append(Flip(faster, slower, after, before))
    missing = [run_id for run_id in times if run_id not in values]
    n = None if clocks else len(problems)
    unlike = n is not None and any(
        len({times[run_id].timed.get(problem, frozenset()) for run_id in values}) > 1 for problem in problems
    )
    return Ranking(
        dataset, definition, baseline, n, ranked, missing, flips, has_other_samples=unlike and not definition.is_sum
    )


def _addable(
    definition: Definition, baseline: str, times: Mapping[str, Times]
) -> dict[str, Mapping[str, tuple[float, float]]]:
    """Return the problems of each run by a definition; none for a run that adds up more or fewer samples of each."""
    problems = {run_id: time.problems.get(definition.stopwatch, {}) for run_id, time in times.items()}
    present = [run_id for run_id, values in problems.items() if values]
    if not definition.is_sum or not present:
        return problems
    reference = times[baseline if baseline in present else present[0]].samples
    return {run_id: values if times[run_id].samples == reference else {} for run_id, values in problems.items()}


def _fractions(
    problems: Mapping[str, Mapping[str, tuple[float, float]]], baseline: str
) -> tuple[dict[str, Fractions], list[str]]:
    """Return the fractions of each run over the problems that these runs share, and the problems.

    The baseline is the first, the others are in their order. A run with which no problem would be left, or no time on
    those that are left, has no fractions.
    """
    kept: list[str] = []
    shared: list[str] = []
    for run_id in sorted(problems, key=lambda run_id: run_id != baseline):
        among = set(shared)
        left = [problem for problem in problems[run_id] if not kept or problem in among]
        if all(sum(problems[member][problem][0] for problem in left) > 0 for member in (*kept, run_id)):
            kept, shared = [*kept, run_id], left
    shared.sort()  # the order of the view speed_up, whose resamples these are then
    pairs = {run_id: np.array([problems[run_id][problem] for problem in shared]) for run_id in kept}
    return {run_id: Fractions(pair[:, 0], pair[:, 1]) for run_id, pair in pairs.items()}, shared
