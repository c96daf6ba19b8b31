"""The nightly verdict on simulated nights: false alarms, how soon a change is found, and how long judging takes.

    python -m tools.simulate.nights --repetitions 20 --seed 1

12 cells in three groups, each of a target alone and three methods, of 100 problems × 16 samples with the metrics of
`warehouse.nightly.metrics`. Chances of a right answer are normal in logits, about a level of the cell. Every night goes
through `warehouse.nightly.judge` as a real one does, and every cell that it asks for is run again the same night, under
the same night effect.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

import click
import numpy as np
from scipy import optimize, special

from warehouse.nightly.cells import Batch, CellNight
from warehouse.nightly.judge import Ledger
from warehouse.nightly.judge import replay as judged
from warehouse.nightly.metrics import JUDGED, PASS_AT_1, SPEED_UP, TOKEN_TIME, Metric
from warehouse.statistics.intervals import Floats

FALLBACK, DRAFT_SHARE, SPENT, CRITICAL_PATH, TRUNCATED, CACHE_HITS = (
    JUDGED[name]
    for name in (
        "fallback_rate", "draft_share", "spent_tokens", "critical_path_tokens", "truncated", "cache_hit_rate"
    )
)  # fmt: skip
GROUPS, METHODS = 3, 3
CELLS = GROUPS * (1 + METHODS)
CHANGED = 1
"""Index of the cell in which something changes: a method."""
PROBLEMS, SAMPLES = 100, 16
DIFFICULTY = 3.0
"""Standard deviation of the problems of a cell, in logits."""
START = date(2026, 1, 1)
RUN_FACTOR = 0.03
"""Standard deviation of the logarithm of a run's times."""
LEVELS: Mapping[Metric, tuple[float, float]] = {
    FALLBACK: (0.3, 0.08),
    DRAFT_SHARE: (0.6, 0.06),
    SPENT: (8.0, 0.15),
    CRITICAL_PATH: (7.5, 0.15),
    TRUNCATED: (0.1, 0.06),
    CACHE_HITS: (0.7, 0.06),
}
"""Level of each metric, and the standard deviation of one problem's share of a night's value; the last digit of a cell
makes it up to twice as large."""
LOG_EFFECT = 1 / 3
"""Night effects of tokens and times, relative to those of shares, which are in logits: 0.15 logits, 5 %."""


@dataclass(frozen=True)
class Nights:
    """How nights differ although nothing changes."""

    name: str
    effect: float = 0.0
    """Standard deviation of the effect of a night on each metric of each cell, in logits."""
    autocorrelation: float = 0.0
    missing: float = 0.0
    """Chance of a cell not to run."""


CALM = Nights("calm")
KINDS = (
    CALM,
    Nights("white, 0.15 logits", 0.15),
    Nights("ρ 0.8, 0.15 logits", 0.15, 0.8),
    Nights("calm, 10 % missing", missing=0.1),
    Nights("white, 0.15 logits, 10 % missing", 0.15, missing=0.1),
    Nights("ρ 0.8, 0.15 logits, 10 % missing", 0.15, 0.8, missing=0.1),
)


@dataclass(frozen=True)
class Change:
    """What changes in one cell from a night on."""

    name: str
    metric: Metric
    size: float
    """In the metric's scale."""


CHANGES = (
    Change("−3 points", PASS_AT_1, -0.03),
    Change("+10 points of fallback", FALLBACK, 0.1),
    Change("−20 % speed-up", SPEED_UP, float(np.log(0.8))),
)


@dataclass
class World:
    """The cells of a history and what is drawn of them."""

    rng: np.random.Generator
    kind: Nights
    change: Change | None = None
    change_night: int = 14

    def __post_init__(self) -> None:
        """Draw the cells."""
        levels = self.rng.normal(0.5, 1.0, CELLS)
        self.logits = self.rng.normal(levels[:, None], DIFFICULTY, (CELLS, PROBLEMS))
        self.effects: Floats = self.rng.standard_normal((CELLS, 2 + len(LEVELS)))
        self.shift = 0.0
        if self.change is not None and self.change.metric is PASS_AT_1:
            self.shift = _shift(self.logits[CHANGED], self.change.size)

    def night(self, index: int) -> list[CellNight]:
        """Return the first runs of the cells of a night."""
        rho = self.kind.autocorrelation
        drawn = self.rng.standard_normal(self.effects.shape)
        self.effects = rho * self.effects + (1 - rho**2) ** 0.5 * drawn
        clocks = self.rng.standard_normal(CELLS) * RUN_FACTOR
        there = self.rng.random(CELLS) >= self.kind.missing
        return [
            CellNight(
                f"cell{cell}",
                START + timedelta(index),
                self._batch(cell, index, clocks),
                baseline=f"cell{cell // 4 * 4}" if cell % 4 else None,
            )
            for cell in np.flatnonzero(there).tolist()
        ]

    def rerun(self, nights: list[CellNight], cells: Collection[str], index: int) -> list[CellNight]:
        """Return a night with these cells run again."""
        clocks = self.rng.standard_normal(CELLS) * RUN_FACTOR
        return [
            replace(night, reruns=(self._batch(int(night.cell[4:]), index, clocks),)) if night.cell in cells else night
            for night in nights
        ]

    def _batch(self, cell: int, index: int, clocks: Floats) -> Batch:
        effects = self.kind.effect * self.effects
        change = self.change if cell == CHANGED and index >= self.change_night else None
        logits = self.logits[cell] + effects[cell, 0] - (self.shift if change else 0.0)
        correct = self.rng.binomial(SAMPLES, special.expit(logits)).astype(np.int64)
        noise = self.rng.standard_normal(len(LEVELS)) * (1 + cell % 10 / 10) / PROBLEMS**0.5
        is_method, base = cell % 4 > 0, cell // 4 * 4
        values: dict[Metric, float] = {}
        for i, (metric, (level, spread)) in enumerate(LEVELS.items()):
            effect = effects[cell, 2 + i]
            usual = level + LOG_EFFECT * effect if metric.is_log else special.expit(special.logit(level) + effect)
            if is_method or metric not in (FALLBACK, DRAFT_SHARE):
                values[metric] = float(usual + spread * noise[i])
        slow = clocks + LOG_EFFECT * effects[:, 1]
        values[TOKEN_TIME] = -4.0 + float(slow[cell])
        if is_method:
            values[SPEED_UP] = 0.5 + float(slow[base] - slow[cell])
        if change is not None and change.metric is not PASS_AT_1:
            values[change.metric] += change.size
        measures = {metric.name: value for metric, value in values.items()}
        return Batch(f"run{cell}", correct, np.full(PROBLEMS, SAMPLES), measures=measures)


def _shift(logits: Floats, size: float) -> float:
    """Return by how many logits problems are harder whose mean chance changes by this much."""
    before = special.expit(logits).mean()
    return float(optimize.brentq(lambda x: special.expit(logits - x).mean() - before - size, -1, 20))


@dataclass
class Tally:
    """Counts over all histories of one setting."""

    num_nights: int = 0
    num_false: int = 0
    """Nights with a FAIL or WARN of something that did not change."""
    num_inconclusive: int = 0
    num_cells: int = 0
    num_reruns: int = 0
    found: list[int] = field(default_factory=list)
    """Nights from the change to the first that finds it; a change that is never found has no entry."""
    num_histories: int = 0
    detectable: list[float] = field(default_factory=list)
    """Change that the first night of the change says it would find, in the changed cell."""


def history(world: World, num_nights: int, first_counted: int, tally: Tally) -> None:
    """One history of nights, added to the tally."""
    ledger, found = Ledger(), None
    change = world.change
    for index in range(num_nights):
        tonight = world.night(index)
        verdict = ledger.judge(tonight)
        if verdict.to_confirm:
            again = {cell.cell for cell in verdict.to_confirm}
            tally.num_reruns += len(again)
            tonight = world.rerun(tonight, again, index)
            verdict = ledger.judge(tonight)
        ledger.keep(tonight, verdict)
        tally.num_cells += len(tonight)
        sides = {(cell.cell, metric.metric): metric for cell in verdict.cells for metric in cell.metrics if metric.side}
        if change is not None and index >= world.change_night:
            changed = sides.pop((f"cell{CHANGED}", change.metric), None)
            found = index - world.change_night if found is None and changed is not None else found
            if index == world.change_night:
                of_cell = [cell for cell in verdict.cells if cell.cell == f"cell{CHANGED}"]
                tally.detectable += [
                    m.detectable_change for c in of_cell for m in c.metrics if m.metric is change.metric
                ]
        if index >= first_counted:
            tally.num_nights += 1
            tally.num_false += bool(sides)
            tally.num_inconclusive += verdict.verdict == "INCONCLUSIVE"
    tally.num_histories += 1
    tally.found += [] if found is None else [found]


def false_nights(kind: Nights, repetitions: int, seed: int) -> str:
    """A line of a Markdown table: 46 nights of each history, the first 14 uncounted."""
    rng, tally = np.random.default_rng(seed), Tally()
    for _ in range(repetitions):
        history(World(rng, kind), 60, 14, tally)
    shares = tally.num_false / tally.num_nights, tally.num_inconclusive / tally.num_nights
    again = tally.num_reruns / tally.num_cells
    false = f"{100 * shares[0]:.2f} % of {tally.num_nights:,}"
    return f"| {kind.name} | {false} | {100 * shares[1]:.1f} % | {100 * again:.1f} % |"


def power(kind: Nights, change: Change, repetitions: int, seed: int) -> str:
    """A line of a Markdown table: a change after 14 nights."""
    rng, tally = np.random.default_rng(seed), Tally()
    for _ in range(repetitions):
        history(World(rng, kind, change), 17, 17, tally)
    within = [100 * sum(night < nights for night in tally.found) / tally.num_histories for nights in (1, 3)]
    unit = "%" if change.metric.is_log else "points"
    detectable = 100 * float(np.median(tally.detectable))
    return f"| {change.name} | {kind.name} | {within[0]:.1f} % | {within[1]:.1f} % | {detectable:.1f} {unit} |"


def seconds(num_nights: int, seed: int) -> float:
    """Return the processor time of judging so many nights, one after the other."""
    world = World(np.random.default_rng(seed), CALM)
    nights = [world.night(index) for index in range(num_nights)]
    began = time.process_time()
    judged(nights)
    return time.process_time() - began


@click.command()
@click.option("--repetitions", default=20, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(repetitions: int, seed: int) -> None:
    """Simulate and print Markdown tables."""
    click.echo("| nights | false nights | INCONCLUSIVE nights | re-runs |\n|---|---|---|---|")
    for kind in KINDS:
        click.echo(false_nights(kind, repetitions, seed))
    click.echo(
        "\n| change in one cell | nights | found the same night | within three | detectable |\n|---|---|---|---|---|"
    )
    for change in CHANGES:
        for kind in KINDS[:3]:
            click.echo(power(kind, change, 4 * repetitions, seed))
    click.echo(f"\n365 nights × {CELLS} cells: {seconds(365, seed):.1f} s of processor time")


if __name__ == "__main__":
    main()
