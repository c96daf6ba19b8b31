"""Simulated nights: rate of false alarms, delay until a change is found, and time to judge a year.

There are 12 cells in three groups; a group has the target alone and three methods. A cell has 100 problems × 16 samples
and the measures that nights judge. The logits of the problems' probabilities of a right answer are normal around the
cell's level. `warehouse.nightly.judge` judges every night like a real one, and every cell for which it requests a rerun
is rerun in the same night, with the same night effect.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
from scipy import optimize, special

from warehouse.measures import MEASURES, Measure
from warehouse.nightly.judge import JUDGED, CellNight, Ledger, NightVerdict, Run
from warehouse.nightly.judge import replay as judged
from warehouse.statistics.intervals import Floats

GROUPS, METHODS = 3, 3
CELLS = GROUPS * (1 + METHODS)
CHANGED = 1
"""Index of the cell in which something changes; it is a method's cell."""
PROBLEMS, SAMPLES = 100, 16
DIFFICULTY = 3.0
"""Standard deviation of the difficulty of a cell's problems, in logits."""
START = date(2026, 1, 1)
RUN_FACTOR = 0.03
"""Standard deviation of the logarithm of a run's times."""
LEVELS: Mapping[str, tuple[float, float]] = {
    "fallback_rate": (0.3, 0.08),
    "draft_share": (0.6, 0.06),
    "spent_tokens": (8.0, 0.15),
    "critical_path_tokens": (7.5, 0.15),
    "truncated": (0.1, 0.06),
    "cache_hit_rate": (0.7, 0.06),
}
"""Level of each measure on the comparison scale, and the standard deviation of one problem's contribution to a night's
value. The deviation is multiplied by 1.0 to 1.9, depending on the last digit of the cell's index.
"""
OF_METHODS = ("fallback_rate", "draft_share")
LOG_EFFECT = 1 / 3
"""Ratio of the night effects on tokens and times to those on shares: 5 % correspond to 0.15 logits."""


@dataclass(frozen=True)
class Nights:
    """How nights vary when nothing changes."""

    effect: float = 0.0
    """Standard deviation of a night's effect on each measure of each cell, in logits."""
    autocorrelation: float = 0.0
    missing: float = 0.0
    """Probability that a cell does not run in a night."""


CALM = Nights()
KINDS = {"calm": CALM, "white, 0.15 logits": Nights(0.15), "wandering (ρ 0.8), 0.15 logits": Nights(0.15, 0.8)}
Change = tuple[str, float]
"""A change in one cell from a night on: the measure, and the size on the comparison scale."""
CHANGES: Mapping[str, Change] = {
    "−3 points at k 16": ("pass_at_1", -0.03),
    "fallback +10": ("fallback_rate", 0.1),
    "speed-up −20 %": ("speed_up", float(np.log(0.8))),
}


@dataclass
class World:
    """The cells of a history, and their random effects."""

    rng: np.random.Generator
    kind: Nights
    change: Change | None = None
    change_night: int = 14

    def __post_init__(self) -> None:
        """Draw the cells' levels, problems and first night effects."""
        levels = self.rng.normal(0.5, 1.0, CELLS)
        self.logits = self.rng.normal(levels[:, None], DIFFICULTY, (CELLS, PROBLEMS))
        self.effects: Floats = self.rng.standard_normal((CELLS, 2 + len(LEVELS)))
        self.shift = 0.0
        if self.change is not None and self.change[0] == "pass_at_1":
            self.shift = _shift(self.logits[CHANGED], self.change[1])

    def night(self, index: int) -> list[CellNight]:
        """Return the cells of a night, each with its first run."""
        rho = self.kind.autocorrelation
        drawn = self.rng.standard_normal(self.effects.shape)
        self.effects = rho * self.effects + (1 - rho**2) ** 0.5 * drawn
        clocks = self.rng.standard_normal(CELLS) * RUN_FACTOR
        there = self.rng.random(CELLS) >= self.kind.missing
        return [
            CellNight(
                f"cell{cell}",
                START + timedelta(index),
                self._run(cell, index, clocks),
                baseline=f"cell{cell // 4 * 4}" if cell % 4 else None,
            )
            for cell in np.flatnonzero(there).tolist()
        ]

    def rerun(self, nights: list[CellNight], cells: Collection[str], index: int) -> list[CellNight]:
        """Return a night in which these cells also have a rerun."""
        clocks = self.rng.standard_normal(CELLS) * RUN_FACTOR
        return [
            replace(night, reruns=(self._run(int(night.cell[4:]), index, clocks),)) if night.cell in cells else night
            for night in nights
        ]

    def _run(self, cell: int, index: int, clocks: Floats) -> Run:
        effects = self.kind.effect * self.effects
        change = self.change if cell == CHANGED and index >= self.change_night else None
        logits = self.logits[cell] + effects[cell, 0] - (self.shift if change else 0.0)
        shares = self.rng.binomial(SAMPLES, special.expit(logits)) / SAMPLES
        noise = self.rng.standard_normal(len(LEVELS)) * (1 + cell % 10 / 10) / PROBLEMS**0.5
        is_method, base = cell % 4 > 0, cell // 4 * 4
        values = {"pass_at_1": float(shares.mean())}
        for i, (name, (level, spread)) in enumerate(LEVELS.items()):
            effect = effects[cell, 2 + i]
            usual = level + LOG_EFFECT * effect if level > 1 else special.expit(special.logit(level) + effect)
            if is_method or name not in OF_METHODS:
                values[name] = float(usual + spread * noise[i])
        slow = clocks + LOG_EFFECT * effects[:, 1]
        values["seconds_per_token"] = -4.0 + float(slow[cell])
        if is_method:
            values["speed_up"] = 0.5 + float(slow[base] - slow[cell])
        if change is not None and change[0] != "pass_at_1":
            values[change[0]] += change[1]
        variance = float(np.sum(shares * (1 - shares))) / (SAMPLES - 1) / PROBLEMS**2
        return Run(f"run{cell}", values, {"pass_at_1": variance}, {}, PROBLEMS, PROBLEMS * SAMPLES)


def _shift(logits: Floats, size: float) -> float:
    """Return the increase in difficulty, in logits, that changes the mean probability of a right answer by `size`."""
    before = special.expit(logits).mean()
    return float(optimize.brentq(lambda x: special.expit(logits - x).mean() - before - size, -1, 20))


def history(
    world: World, num_nights: int, measures: Sequence[Measure] = JUDGED
) -> Iterator[tuple[NightVerdict, set[tuple[str, str]]]]:
    """Yield the verdict on each night, including reruns, and the changed (cell, measure) pairs that it reports."""
    ledger = Ledger(measures)
    for index in range(num_nights):
        tonight = world.night(index)
        verdict = ledger.judge(tonight)
        if verdict.to_confirm:
            tonight = world.rerun(tonight, {cell.cell for cell in verdict.to_confirm}, index)
            verdict = ledger.judge(tonight)
        ledger.keep(tonight, verdict)
        yield verdict, {(cell.cell, m.measure.name) for cell in verdict.cells for m in cell.metrics if m.side}


def false_nights(rng: np.random.Generator, histories: int, kind: Nights) -> Iterator[tuple[bool, bool]]:
    """Yield, for each of the 46 nights after the first 14 of each history, whether any change is reported, and whether
    the verdict is INCONCLUSIVE.
    """
    for _ in range(histories):
        for verdict, found in list(history(World(rng, kind), 60))[14:]:
            yield bool(found), verdict.verdict == "INCONCLUSIVE"


def found_within_three(rng: np.random.Generator, histories: int, kind: Nights, change: Change) -> Iterator[bool]:
    """Yield, for each history, whether a change after 14 nights is found within three nights. Only the changed measure
    is judged.
    """
    for _ in range(histories):
        nights = list(history(World(rng, kind, change), 17, [MEASURES[change[0]]]))[14:]
        yield any((f"cell{CHANGED}", change[0]) in found for _, found in nights)


def seconds(num_nights: int, seed: int) -> float:
    """Return the CPU time of judging a number of nights in sequence."""
    world = World(np.random.default_rng(seed), CALM)
    nights = [world.night(index) for index in range(num_nights)]
    began = time.process_time()
    judged(nights)
    return time.process_time() - began
