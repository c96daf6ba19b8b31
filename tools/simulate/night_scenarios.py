"""The nights that `tools.simulate.nights` judges: cells of made-up runs, of which one changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
from scipy import optimize, special

from warehouse.nightly.cells import Batch, CellNight
from warehouse.nightly.metrics import (
    CACHE_HITS,
    CRITICAL_PATH,
    DRAFT_SHARE,
    FALLBACK,
    SPEED_UP,
    SPENT,
    TOKEN_TIME,
    TRUNCATED,
    Metric,
)
from warehouse.statistics.intervals import Floats

GROUPS, METHODS = 3, 3
CELLS = GROUPS * (1 + METHODS)
CHANGED = 1
"""Index of the cell in which something changes: a method."""
SAMPLES = 16
CHANGE_NIGHT = 7
"""Index of the first night of a change: so many nights of baseline."""
KINDS: Mapping[str, tuple[int, float]] = {
    "30 problems, AIME-like": (30, 0.48),
    "40 problems, AMC23-like": (40, 0.38),
    "100 problems, mostly sure": (100, 0.38),
    "100 problems, uniform": (100, 1.0),
    "198 problems, unsure": (198, 2.0),
    "500 problems, MATH-500-like": (500, 0.1),
}
"""Problems, and the parameter of the Beta distribution of their difficulty."""
NO_ANSWER, TRUNCATED_SHARE = 0.03, 0.1
START = date(2026, 1, 1)
LEVELS: Mapping[Metric, tuple[float, float]] = {
    FALLBACK: (0.3, 0.08),
    DRAFT_SHARE: (0.6, 0.06),
    SPENT: (8.0, 0.15),
    CRITICAL_PATH: (7.5, 0.15),
    TRUNCATED: (TRUNCATED_SHARE, 0.06),
    CACHE_HITS: (0.7, 0.06),
}
"""Level of each metric, and the standard deviation of one problem's share of a night's value; the last digit of a cell
makes it up to twice as large."""
FALLBACK_RISE = 0.10
SPEED_UP_LOSS = float(np.log(0.8))


@dataclass(frozen=True)
class Setting:
    """What happens in a history."""

    kind: str = "40 problems, AMC23-like"
    num_nights: int = 30
    drop: float = 0.0
    """Points that the changed cell loses."""
    lasting: int = 1000
    """Nights after which the change is repaired."""
    fallback: float = 0.0
    """Rise of the fallback rate."""
    speed_up: float = 0.0
    """Change of the logarithm of the speed-up."""
    run_factor: float = 0.03
    """Standard deviation of the logarithm of a run's times."""
    common: float = 0.0
    """Standard deviation of an effect in logits that all cells of a night share."""
    has_new_environment: bool = False
    """Whether the environment changes together with the cell."""
    num_node_types: int = 1
    """Environments that alternate."""
    first_counted: int = 4
    """Index of the first night whose alarms count."""


def chances(rng: np.random.Generator, kind: str) -> Floats:
    """A chance of a right answer for every problem of a cell."""
    n, shape = KINDS[kind]
    return rng.beta(shape, shape, size=n)


def lowered(p: Floats, points: float) -> Floats:
    """Return the chances of the same problems, lower by this many points on average."""
    if not points:
        return p
    logits = special.logit(np.clip(p, 1e-9, 1 - 1e-9))
    shift = optimize.brentq(lambda x: special.expit(logits - x).mean() - p.mean() + points / 100, -1, 20)
    return np.asarray(special.expit(logits - shift), dtype=float)


@dataclass
class World:
    """The cells of a history and what is drawn of them."""

    rng: np.random.Generator
    setting: Setting

    def __post_init__(self) -> None:
        """Draw the cells."""
        self.chances = [chances(self.rng, self.setting.kind) for _ in range(CELLS)]
        self.worse = lowered(self.chances[CHANGED], self.setting.drop)

    def has_changed(self, index: int) -> bool:
        """Return whether the changed cell is worse in a night."""
        return 0 <= index - CHANGE_NIGHT < self.setting.lasting

    def night(self, index: int) -> list[CellNight]:
        """Return the first runs of all cells."""
        effect = self.setting.common * self.rng.standard_normal()
        self._effect = effect
        clocks = self.rng.standard_normal(CELLS) * self.setting.run_factor
        return [
            CellNight(
                f"cell{cell}",
                START + timedelta(index),
                self._batch(cell, index, clocks[cell], clocks[cell // 4 * 4]),
                environment=self._environment(index),
                baseline=f"cell{cell // 4 * 4}" if cell % 4 else None,
            )
            for cell in range(CELLS)
        ]

    def rerun(self, nights: list[CellNight], cells: set[str], index: int) -> list[CellNight]:
        """Return a night with these cells run again."""
        clocks = dict(zip(sorted(cells), self.rng.standard_normal(len(cells)) * self.setting.run_factor, strict=True))
        done = []
        for night in nights:
            if night.cell in cells:
                base = clocks.get(night.baseline or "", 0.0)
                batch = self._batch(int(night.cell[4:]), index, clocks[night.cell], base)
                done.append(replace(night, reruns=(batch,), num_baseline_runs=1 + (night.baseline in cells)))
            else:
                done.append(night)
        return done

    def _environment(self, index: int) -> dict[str, str]:
        is_new = self.setting.has_new_environment and index >= CHANGE_NIGHT
        return {"vllm": "0.33" if is_new else "0.32", "devices": f"type {index % self.setting.num_node_types}"}

    def _batch(self, cell: int, index: int, clock: float, base_clock: float) -> Batch:
        p = self.worse if cell == CHANGED and self.has_changed(index) else self.chances[cell]
        if self.setting.common:
            p = special.expit(special.logit(np.clip(p, 1e-9, 1 - 1e-9)) + self._effect)
        total = len(p) * SAMPLES
        verdicts = {
            "no_answer": int(self.rng.binomial(total, NO_ANSWER)),
            "truncated": int(self.rng.binomial(total, TRUNCATED_SHARE)),
        }
        correct = self.rng.binomial(SAMPLES, p).astype(np.int64)
        measures = self._measures(cell, index, clock, base_clock, len(p))
        return Batch(f"run{cell}", correct, np.full(len(p), SAMPLES), verdicts, measures=measures)

    def _measures(self, cell: int, index: int, clock: float, base_clock: float, n: int) -> dict[str, float]:
        is_method = cell % 4 > 0
        noise = self.rng.standard_normal(len(LEVELS)) * (1 + cell % 10 / 10) / n**0.5
        found = {
            metric.name: level + spread * float(noise[i])
            for i, (metric, (level, spread)) in enumerate(LEVELS.items())
            if is_method or metric not in (FALLBACK, DRAFT_SHARE)
        }
        found[TOKEN_TIME.name] = -4.0 + clock
        has_changed = cell == CHANGED and self.has_changed(index)
        if is_method:
            found[FALLBACK.name] += self.setting.fallback * has_changed
            change = self.setting.speed_up * has_changed
            found[SPEED_UP.name] = 0.5 + base_clock - clock + change
            found[TOKEN_TIME.name] -= change
        return found
