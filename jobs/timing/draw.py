"""Which samples of a run are timed: a stratified random sample, drawn from the run's seed.

Samples are ordered by level and, within a level, by length, alternately upwards and downwards, so that neighbors are
alike across levels too. Strata are blocks of this order, of equal size, and each block gives equally many samples
(implicit stratification; Cochran, Sampling Techniques, 1977, sections 5A.7 and 8.11): no stratum is too small to say
how much its samples differ, however many levels there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

SAMPLES_PER_STRATUM = 4
"""Timed samples of a stratum: two would leave half of them to estimate the spread within strata, four leave three
quarters."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A sample that may be timed."""

    sample_id: str
    level: str
    """Level of its problem; empty where the benchmark has none."""
    length: int
    """Emitted tokens."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A sample with its stratum, and whether it is timed."""

    sample_id: str
    stratum: int
    is_timed: bool


def draw(samples: Iterable[Ended], number: int, seed: str) -> list[Drawn]:
    """Return every sample with its stratum; `number` of them are timed, or all where there are no more.

    The same samples, number and seed give the same draw, in whatever order the samples come.
    """
    ordered = _ordered(list(samples))
    number = min(number, len(ordered))
    if not number:
        return []
    strata = max(1, number // SAMPLES_PER_STRATUM)
    drawn: list[Drawn] = []
    for stratum, (block, size) in enumerate(zip(_parts(len(ordered), strata), _parts(number, strata), strict=True)):
        members = ordered[block.start : block.stop]
        chosen = set(sorted((one.sample_id for one in members), key=lambda one: _random(seed, one))[: len(size)])
        drawn += [Drawn(one.sample_id, stratum, one.sample_id in chosen) for one in members]
    return drawn


def _ordered(samples: Sequence[Ended]) -> list[Ended]:
    ordered: list[Ended] = []
    by_level = sorted(samples, key=lambda one: (one.level, one.length, one.sample_id))
    for number, (_, of_level) in enumerate(groupby(by_level, key=lambda one: one.level)):
        ordered += list(of_level)[:: -1 if number % 2 else 1]
    return ordered


def _parts(total: int, number: int) -> list[range]:
    """Return ranges of 0 to total, as many as asked for, whose sizes differ by one at most."""
    bounds = [total * part // number for part in range(number + 1)]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _random(seed: str, sample_id: str) -> str:
    return hashlib.sha256(f"{seed} {sample_id}".encode()).hexdigest()
