"""Cells and nights: what is judged, and the comparable nights that it is judged against.

A cell is a method with its parameters, models and sampling on a dataset. It runs every night with another seed. A
second run in the same night is a re-run that confirms or refutes a suspicion.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import islice
from typing import Literal, NamedTuple

from warehouse.statistics.night import FEWEST, MOST, WINDOW

Verdict = Literal["PASS", "WARN", "FAIL", "INCONCLUSIVE"]
Said = tuple[Verdict, str]
DEVICES = "devices"
Key = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Conditions whose change is judged, and those without which nothing is comparable."""


@dataclass(frozen=True)
class Run:
    """What is judged of one run of a cell."""

    run_id: str
    values: Mapping[str, float]
    """By measure, as they are compared; one that does not apply has none."""
    variances: Mapping[str, float] = field(default_factory=dict)
    """Sampling variances of values, where they are known: were the same problems run again."""
    verdicts: Mapping[str, int] = field(default_factory=dict)
    """Number of samples by verdict; a verdict that is not listed has none."""
    num_problems: int = 1
    num_samples: int = 1
    """Of all problems, as planned."""
    lacking: str = ""
    """What is not run or not graded, with the command that adds it; empty where nothing is missing."""


@dataclass(frozen=True)
class CellNight:
    """One cell in one night."""

    cell: str
    night: date
    first: Run
    reruns: tuple[Run, ...] = ()
    """Complete ones under the same conditions."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Conditions of accuracy that may change from outside: devices, packages, engine settings, model files, grader."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Hashes of prompts and problems, which must not change unless intended."""
    times: Mapping[str, str] = field(default_factory=dict)
    """Further conditions of times: processor, samples in flight, memory shares."""
    baseline: str | None = None
    """The cell whose runs of this night the speed-up refers to: the target alone under the same conditions."""
    cards: str = ""
    """With how many cards both sides of the speed-up were timed, where they differ."""
    uncounted: tuple[str, ...] = ()
    """Phrases that say which runs of this night are no re-runs of the first, and why."""

    @cached_property
    def day(self) -> int:
        """Number of the night's date."""
        return self.night.toordinal()

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs that count."""
        return self.first, *self.reruns

    def num_runs(self, name: str) -> int:
        """Return how many runs have a measure."""
        return sum(name in run.values for run in self.runs)

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Measures by name, each the mean over the runs that have it."""
        return {
            name: sum(run.values.get(name, 0.0) for run in self.runs) / self.num_runs(name)
            for name in self.first.values
        }

    @cached_property
    def keys(self) -> tuple[Key, Key]:
        """The conditions of accuracy, and of times.

        Times on other devices, or with other settings, are other times: only a change of software is judged.
        """
        environment = tuple(sorted(self.environment.items()))
        devices = {name: value for name, value in self.environment.items() if name == DEVICES}
        of_accuracy, of_times = self.inputs, {**self.inputs, **self.times, **devices}
        return (environment, tuple(sorted(of_accuracy.items()))), (environment, tuple(sorted(of_times.items())))


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return one phrase for each difference between two environments."""
    return [
        f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}"
        for name in sorted({*before, *now})
        if before.get(name) != now.get(name)
    ]


class Reference(NamedTuple):
    """What a measure of tonight is compared with."""

    nights: Sequence[CellNight]
    """At least FEWEST comparable nights, the newest, oldest first."""
    window: Sequence[CellNight]
    """The last nights under tonight's conditions, which are looked at together with tonight."""
    opened: date | None = None
    """The first night under tonight's conditions, where these have too few, so that the nearest ones' before count."""


class Past:
    """The earlier nights of one cell, oldest first.

    Nights under equal conditions need not be contiguous: a cell that runs on one of two types of nodes has two kinds of
    nights, and each finds its own.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[CellNight, frozenset[str] | None]] = []

    @property
    def last(self) -> CellNight | None:
        """The newest night."""
        return self._kept[-1][0] if self._kept else None

    def keep(self, night: CellNight, excluded: Collection[str], *, is_usable: bool) -> None:
        """Add a judged night. excluded: the measures that no later night is compared with; is_usable: False: none."""
        self._kept.append((night, frozenset(night.values.keys() - excluded) if is_usable else None))

    def forbids(self, night: CellNight) -> list[Said]:
        """Return why a night cannot be compared with any: its inputs are others, or it lacks samples."""
        inputs = changes(self.last.inputs, night.inputs) if self.last else []
        lacking: list[Said] = [("INCONCLUSIVE", night.first.lacking)] if night.first.lacking else []
        return [("FAIL", f"inputs changed: {one}; ignore this if it was intended") for one in inputs] or lacking

    def alike(self, key: Key, place: int, name: str = "", most: int = MOST, before: date = date.max) -> list[CellNight]:
        """Return the newest nights under conditions with which a measure is compared, or any, the oldest first.

        place: that of the conditions in `CellNight.keys`.
        """
        found = (
            night
            for night, counted in reversed(self._kept)
            if counted is not None
            and (not name or name in counted)
            and night.night < before
            and night.keys[place] == key
        )
        return list(islice(found, most))[::-1]

    def reference(self, night: CellNight, name: str, place: int) -> Reference | None:
        """Return what a measure of a night is compared with; None where there are too few comparable nights.

        Where tonight's conditions are new, it is compared with the nights under those that differ least, the last of
        these, of those that had enough nights before.
        """
        own = night.keys[place]
        nights, window = self.alike(own, place, name), self.alike(own, place, most=WINDOW - 1)
        if len(nights) >= FEWEST:
            return Reference(nights, window)
        opened = next((kept.night for kept, _ in self._kept if kept.keys[place] == own), night.night)
        others = dict.fromkeys(kept.keys[place] for kept, _ in self._kept)
        found = [self.alike(key, place, name, before=opened) for key in others if key != own and key[1] == own[1]]

        def nearness(nights: Sequence[CellNight]) -> tuple[int, date]:
            return -len(changes(nights[-1].environment, night.environment)), nights[-1].night

        nearest = max((nights for nights in found if len(nights) >= FEWEST), key=nearness, default=None)
        return Reference(nearest, window, opened) if nearest else None
