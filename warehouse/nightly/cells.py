"""Cells and nights: what is judged, and the comparable nights that it is judged against.

A cell is a method with its parameters, models and sampling on a dataset. It runs every night with another seed. A
second run in the same night is a re-run that confirms or refutes a suspicion.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import NamedTuple

import numpy as np

from warehouse.statistics.intervals import Counts
from warehouse.statistics.night import FEWEST, MOST, WINDOW
from warehouse.summary import completion

ACCURACY, TIMES = "", "times"
"""Whose conditions must be equal in comparable nights: those of results, or those of times too."""
_DEVICES = "devices"
SCORE = "pass@1"
"""Name of the metric that every run has."""


Key = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Batch:
    """The outcome of one run of a cell."""

    run_id: str
    correct: Counts
    """(n,). Correct samples per problem, in the dataset's order."""
    samples: Counts
    """(n,). Samples per problem."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Number of samples by verdict; a verdict that is not listed has none."""
    num_missing: int = 0
    """Samples not run or not graded."""
    num_not_run: int = 0
    """Those of them that are not run."""
    emitted_tokens: float | None = None
    """Mean emitted tokens per sample; None unless decoding is greedy."""
    measures: Mapping[str, float] = field(default_factory=dict)
    """Values of `metrics.METRICS` by name, on the metric's scale; one that does not apply has none."""

    @cached_property
    def num_samples(self) -> int:
        """Number of planned samples."""
        return int(self.samples.sum())

    @property
    def missing(self) -> str:
        """What is missing, in words."""
        return f"{self.num_missing} of {self.num_samples} samples are not run or not graded"

    @property
    def completion(self) -> str:
        """The command that runs or grades what is missing."""
        return completion(self.run_id, self.num_not_run)

    @cached_property
    def score(self) -> float:
        """pass@1: mean over problems."""
        return float(np.mean(self.correct / self.samples))


@dataclass(frozen=True)
class CellNight:
    """One cell in one night."""

    cell: str
    night: date
    first: Batch
    reruns: tuple[Batch, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Conditions of accuracy that may change from outside: devices, packages, engine settings, model files, grader."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of prompts and problems, which must not change unless intended."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Further conditions of times: processor, samples in flight, memory shares."""
    dates: Mapping[str, str] = field(default_factory=dict)
    """The date in the prompts, where a chat template has one: a change of it is said, and changes no condition."""
    baseline: str | None = None
    """The cell whose runs of this night the speed-up refers to: the target alone under the same conditions."""
    uncounted: tuple[str, ...] = ()
    """Phrases that say which runs of this night ran under other conditions than the first and are no re-runs of it."""
    untimed: tuple[str, ...] = ()
    """The same for re-runs whose times alone do not count."""

    @property
    def run_ids(self) -> list[str]:
        """The runs that count."""
        return [batch.run_id for batch in (self.first, *self.reruns)]

    @property
    def is_complete(self) -> bool:
        """True if every sample of the first run has a grade."""
        return self.first.num_missing == 0

    @cached_property
    def day(self) -> int:
        """Number of the night's date."""
        return self.night.toordinal()

    @property
    def complete(self) -> list[Batch]:
        """The runs whose samples all have a grade, the first one first."""
        return [batch for batch in (self.first, *self.reruns) if batch.num_missing == 0]

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Values of `metrics.METRICS` by name, each the mean over the complete runs that have it."""
        found = {SCORE: self.together.score}
        for name in self.first.measures:
            values = [batch.measures[name] for batch in self.complete if name in batch.measures]
            if values:
                found[name] = sum(values) / len(values)
        return found

    def num_values(self, name: str) -> int:
        """Return how many complete runs have a metric."""
        return sum(name == SCORE or name in batch.measures for batch in self.complete)

    @cached_property
    def conditions(self) -> Mapping[str, tuple[Mapping[str, str], Mapping[str, str], Key]]:
        """By ACCURACY and TIMES: conditions whose change is judged, those without which nothing is comparable, a key.

        Times on other devices, or with other settings, are other times: only a change of software is judged.
        """
        devices = {name: value for name, value in self.environment.items() if name == _DEVICES}
        fixed = {ACCURACY: self.inputs, TIMES: {**self.inputs, **self.times, **devices}}
        return {
            of: (self.environment, kept, (tuple(sorted(self.environment.items())), tuple(sorted(kept.items()))))
            for of, kept in fixed.items()
        }

    @cached_property
    def together(self) -> Batch:
        """The first run and the complete re-runs, pooled."""
        complete = [batch for batch in self.reruns if batch.num_missing == 0]
        return pooled([self.first, *complete]) if complete else self.first

    @property
    def not_counted(self) -> list[str]:
        """Phrases that say which runs besides the first confirm nothing, and why."""
        incomplete = [batch for batch in self.reruns if batch.num_missing]
        return [
            *self.uncounted,
            *(
                f"re-run {batch.run_id} does not count: it is not finished ({batch.missing}); {batch.completion}"
                for batch in incomplete
            ),
        ]


def pooled(batches: Sequence[Batch]) -> Batch:
    """Pool several runs of the same problems into one batch, without their metrics."""
    verdicts: dict[str, int] = {}
    for batch in batches:
        for verdict, number in batch.verdicts.items():
            verdicts[verdict] = verdicts.get(verdict, 0) + number
    tokens = [batch.emitted_tokens for batch in batches if batch.emitted_tokens is not None]
    return Batch(
        batches[0].run_id,
        np.sum([batch.correct for batch in batches], axis=0),
        np.sum([batch.samples for batch in batches], axis=0),
        verdicts,
        emitted_tokens=sum(tokens) / len(tokens) if tokens else None,
    )


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return one phrase for each difference between two environments."""
    names = sorted({*before, *now})
    return [
        f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


class Reference(NamedTuple):
    """What a metric of tonight is compared with."""

    nights: Sequence[CellNight]
    """At least FEWEST comparable nights, the newest, oldest first."""
    window: Sequence[CellNight]
    """The last nights under tonight's conditions, which are looked at together with tonight."""
    is_opening: bool
    """Whether there are too few under tonight's conditions, so that those of the nearest ones before count."""
    opened: date
    """The first night under tonight's conditions."""
    environment: Mapping[str, str]


@dataclass
class _Alike:
    """The nights of a cell under equal conditions, oldest first."""

    nights: list[CellNight] = field(default_factory=list)
    counted: dict[str, list[CellNight]] = field(default_factory=dict)
    """By metric: those that later nights are compared with."""

    def newest(self, name: str, before: date = date.max) -> list[CellNight]:
        """Return the newest MOST nights that count for a metric."""
        found = self.counted.get(name, [])
        return found[-MOST:] if before == date.max else [night for night in found if night.night < before][-MOST:]


class Past:
    """The earlier nights of one cell, by their conditions. Those of accuracy and of times are sorted separately.

    Nights under equal conditions need not be contiguous: a cell that runs on one of two types of nodes has two kinds of
    nights, and each finds its own.
    """

    def __init__(self) -> None:
        self.last: CellNight | None = None
        self.names: set[str] = set()
        """The metrics that any night had."""
        self._alike: dict[str, dict[Key, _Alike]] = {ACCURACY: {}, TIMES: {}}
        self._opened: dict[str, dict[Key, date]] = {ACCURACY: {}, TIMES: {}}

    def keep(self, night: CellNight, excluded: Container[str], *, is_usable: bool) -> None:
        """Add a judged night. excluded: the metrics that no later night is compared with; is_usable: False: none."""
        self.last = night
        self.names |= night.values.keys()
        for of, (_, _, key) in night.conditions.items():
            self._opened[of].setdefault(key, night.night)
            if is_usable and night.is_complete:
                alike = self._alike[of].setdefault(key, _Alike())
                alike.nights.append(night)
                for name in night.values:
                    if name not in excluded:
                        alike.counted.setdefault(name, []).append(night)

    def own(self, night: CellNight) -> list[CellNight]:
        """Return the nights under tonight's conditions that its accuracy is compared with, the newest."""
        return self._alike[ACCURACY].get(night.conditions[ACCURACY][2], _Alike()).newest(SCORE)

    def reference(self, night: CellNight, of: str, name: str) -> Reference | None:
        """Return what a metric of a night is compared with; None where there are too few comparable nights.

        of: ACCURACY or TIMES, whose conditions must be equal. Where tonight's conditions are new, it is compared with
        the nights under those that differ least, the last of these, of those that had enough nights before.
        """
        environment, _, key = night.conditions[of]
        own = self._alike[of].get(key, _Alike())
        opened = self._opened[of].get(key, night.night)
        window = own.nights[1 - WINDOW :]
        if len(nights := own.newest(name)) >= FEWEST:
            return Reference(nights, window, False, opened, environment)
        others = [
            alike
            for other, alike in self._alike[of].items()
            if other[1] == key[1] and other != key and len(alike.newest(name, opened)) >= FEWEST
        ]
        if not others:
            return None

        def nearness(alike: _Alike) -> tuple[int, date]:
            return -len(changes(alike.nights[-1].environment, environment)), alike.nights[-1].night

        nearest = max(others, key=nearness)
        return Reference(nearest.newest(name), window, True, opened, nearest.nights[-1].environment)
