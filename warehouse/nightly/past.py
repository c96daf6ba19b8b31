"""The earlier nights of a cell, in segments of equal conditions, and which of them tonight is measured by.

A segment need not be contiguous: a cell that runs on one of two types of nodes has two, and every night finds its own.
A night whose segment is still too short is measured by the one that differs least from it, the last one of these, of
those that had a baseline before the segment's first night: what came later is no successor of them, but another type of
node, say, that runs side by side with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import islice

from warehouse.nightly.cells import Batch, CellNight, changes, pooled

SHORTEST_BASELINE = 3
"""Number of baseline nights below which nothing is measured by a segment."""
WINDOW = 3
"""Nights, tonight included, that are also tested together."""
ACCURACY, TIMES = "pass@1", "times"
"""Quantities with segments of their own; ACCURACY is also the name of what is judged besides the metrics."""
_DEVICES = "devices"
Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Level:
    """Number, mean and sum of squared deviations of values, to which single values are added and taken away."""

    num: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def added(self, value: float) -> Level:
        """Return the level with one more value."""
        mean = self.mean + (value - self.mean) / (self.num + 1)
        return Level(self.num + 1, mean, self.squares + (value - self.mean) * (value - mean))

    def without(self, value: float) -> Level:
        """Return the level without one of its values."""
        if self.num <= 1:
            return Level()
        mean = self.mean - (value - self.mean) / (self.num - 1)
        return Level(self.num - 1, mean, max(0.0, self.squares - (value - self.mean) * (value - mean)))


@dataclass
class Segment:
    """The nights of a cell under equal conditions."""

    environment: Mapping[str, str]
    nights: list[CellNight] = field(default_factory=list)
    """Complete nights that did not fail, oldest first."""
    scores: list[float] = field(default_factory=list)
    """Their pass@1, first runs only."""
    noises: list[float | None] = field(default_factory=list)
    """Standard errors of these over re-runs of the same problems; None with one sample per problem."""
    members: dict[date, Batch] = field(default_factory=dict)
    """The runs, pooled by night, of the baseline of accuracy."""
    usual: Batch | None = None
    """These, pooled."""
    levels: dict[str, Level] = field(default_factory=dict)
    """The baseline of each metric."""
    values: dict[str, dict[date, float]] = field(default_factory=dict)
    """The values of each metric that are in its baseline."""

    @property
    def window(self) -> list[CellNight]:
        """The nights that are tested together with tonight."""
        return self.nights[-(WINDOW - 1) :]

    def keep(self, night: CellNight, doubtful: frozenset[str]) -> None:
        """Add a night that did not fail. doubtful: the quantities whose baseline it does not enter."""
        self.nights.append(night)
        self.scores.append(night.first.score)
        self.noises.append(night.first.noise)
        if ACCURACY not in doubtful:
            self.members[night.night] = night.together
            self.usual = night.together if self.usual is None else pooled([self.usual, night.together])
        for name, value in night.first.measures.items():
            if name not in doubtful:
                self.levels[name] = self.levels.get(name, Level()).added(value)
                self.values.setdefault(name, {})[night.night] = value


@dataclass(frozen=True, slots=True)
class Reference:
    """What tonight is measured by."""

    segment: Segment
    """The segment whose baseline counts."""
    own: Segment | None
    """The segment that tonight belongs to; None where tonight is its first night."""
    opened: date
    """The first night under tonight's conditions, whatever became of it."""

    @property
    def is_opening(self) -> bool:
        """True if tonight's own segment is too short, so that the last one before it counts."""
        return self.segment is not self.own

    @property
    def window(self) -> Sequence[CellNight]:
        """Earlier nights of tonight's segment, which are tested together with tonight."""
        return self.own.window if self.own is not None else ()


class Past:
    """The earlier nights of one cell. Accuracy and times have segments of their own."""

    def __init__(self) -> None:
        self.last: CellNight | None = None
        self._segments: dict[str, dict[tuple[Key, Key], Segment]] = {ACCURACY: {}, TIMES: {}}
        self._opened: dict[str, dict[tuple[Key, Key], date]] = {ACCURACY: {}, TIMES: {}}
        self._keyed: tuple[CellNight, dict[str, tuple[Key, Key]]] | None = None

    def keep(self, night: CellNight, doubtful: frozenset[str], *, is_baseline: bool) -> None:
        """Add a judged night. is_baseline: whether it may be in any baseline, in drift or in windows."""
        self.last = night
        for what, opened in self._opened.items():
            opened.setdefault(self._key(night, what), night.night)
        if not is_baseline or not night.is_complete:
            return
        for what, segments in self._segments.items():
            segments.setdefault(self._key(night, what), Segment(_conditions(night, what)[0])).keep(night, doubtful)

    def own(self, night: CellNight, what: str = ACCURACY) -> Segment | None:
        """Return the segment that a night belongs to, if it has earlier nights."""
        return self._segments[what].get(self._key(night, what))

    def reference(self, night: CellNight, what: str, name: str) -> Reference | None:
        """Return what a night is measured by; None where no segment has a baseline.

        what: ACCURACY or TIMES, whose conditions must be equal; name: ACCURACY or a metric's, whose baseline counts.
        """
        key = self._key(night, what)
        own = self._segments[what].get(key)
        if own is not None and num_baseline(own, name) >= SHORTEST_BASELINE:
            return Reference(own, own, self.opened(night, what))
        opened = self.opened(night, what)
        others = [
            segment
            for other, segment in self._segments[what].items()
            if other[1] == key[1] and segment is not own and _had_baseline(segment, name, opened)
        ]
        tonight = _conditions(night, what)[0]
        nearest = max(others, key=lambda other: _nearness(other, tonight), default=None)
        return None if nearest is None else Reference(nearest, own, opened)

    def opened(self, night: CellNight, what: str = ACCURACY) -> date:
        """Return the first night under the conditions of a night, whether it failed or not; else that night's date."""
        return self._opened[what].get(self._key(night, what), night.night)

    def _key(self, night: CellNight, what: str) -> tuple[Key, Key]:
        """Return what a night's segment is found by; each metric of a night asks for it."""
        if self._keyed is None or self._keyed[0] is not night:
            self._keyed = night, {quantity: _key(night, quantity) for quantity in self._segments}
        return self._keyed[1][what]


def _nearness(segment: Segment, tonight: Mapping[str, str]) -> tuple[int, date]:
    """Return what the segment is chosen by that an opening night is measured by: least changed, and then last.

    Where two types of nodes alternate, an upgrade is measured by the nights on tonight's type and not by last night's.
    """
    return -len(changes(segment.environment, tonight)), segment.nights[-1].night


def num_baseline(segment: Segment, name: str) -> int:
    """Return the number of nights in the baseline of a quantity."""
    return len(segment.members) if name == ACCURACY else segment.levels.get(name, Level()).num


def _had_baseline(segment: Segment, name: str, before: date) -> bool:
    """Return whether the baseline of a quantity was long enough before a date."""
    nights = segment.members if name == ACCURACY else segment.values.get(name, {})
    last_needed = next(islice(nights, SHORTEST_BASELINE - 1, None), None)
    return last_needed is not None and last_needed < before


def _conditions(night: CellNight, what: str) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the conditions whose change begins a segment, and those without which nothing is comparable.

    Times on other devices, or with other settings, are other times: only a change of software is tested.
    """
    if what == ACCURACY:
        return night.environment, night.inputs
    devices = {name: value for name, value in night.environment.items() if name == _DEVICES}
    return night.environment, {**night.inputs, **night.times, **devices}


def _key(night: CellNight, what: str) -> tuple[Key, Key]:
    environment, fixed = _conditions(night, what)
    return tuple(sorted(environment.items())), tuple(sorted(fixed.items()))
