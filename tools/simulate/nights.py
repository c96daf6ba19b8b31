"""The nightly verdict on simulated nights: false alarms, and how soon a change is found.

    python -m tools.simulate.nights --repetitions 200 --seed 1 --scenario "nothing changes"

12 cells in three groups, each of a target alone and three methods, with 16 samples a problem and the metrics of
`warehouse.nightly.metrics`. In the first cell that is a method something changes from the eighth night on. Every night
goes through `warehouse.nightly.judge` as a real one does, and every cell that it asks for is run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import click
import numpy as np

from tools.simulate.night_scenarios import (
    CELLS,
    CHANGE_NIGHT,
    CHANGED,
    FALLBACK_RISE,
    KINDS,
    SPEED_UP_LOSS,
    Setting,
    World,
)
from warehouse.nightly.judge import CellVerdict, Ledger
from warehouse.nightly.metrics import (
    SPEED_UP,
)

SCENARIOS: Mapping[str, list[Setting]] = {
    "nothing changes": [
        *(
            Setting(kind, run_factor=factor)
            for kind, factor in zip(KINDS, (0.03, 0.05, 0.03, 0.03, 0.02, 0.12), strict=True)
        ),
        Setting(has_new_environment=True),
        Setting(num_node_types=2),
    ],
    "drop of 3 points": [Setting(kind, 10, drop=3) for kind in KINDS],
    "drop of 12 points with a new environment": [
        *(Setting(kind, 10, drop=12, has_new_environment=True) for kind in KINDS),
        Setting(num_nights=10, drop=12, num_node_types=2),
    ],
    "drop of 3 points that lasts": [Setting(kind, CHANGE_NIGHT + 20, drop=3) for kind in list(KINDS)[:3]],
    "repaired after 2 nights": [
        Setting(num_nights=20, drop=12, lasting=2),
        Setting(num_nights=20, drop=6, lasting=2),
        Setting(num_nights=20, drop=3, lasting=3),
    ],
    "all cells of a night alike": [
        Setting(common=0.05, first_counted=8),
        Setting(common=0.15, first_counted=8),
        Setting("100 problems, mostly sure", common=0.15, first_counted=8),
    ],
    "fallback rate + 10 points": [Setting(kind, 10, fallback=FALLBACK_RISE) for kind in list(KINDS)[:3]],
    "speed-up − 20 %": [
        Setting(num_nights=10, speed_up=SPEED_UP_LOSS, run_factor=factor) for factor in (0.02, 0.03, 0.05, 0.12)
    ],
}


@dataclass
class Tally:
    """Counts over all repetitions of one setting."""

    num_nights: int = 0
    num_false_nights: int = 0
    """Nights with an alarm (FAIL or WARN) on a cell that had not changed, or has been repaired."""
    num_histories: int = 0
    num_false_histories: int = 0
    num_cell_nights: int = 0
    num_reruns: int = 0
    found: list[int] = field(default_factory=list)
    """Nights from the change to its first FAIL, 0 for the same night; a change that is never found has no entry."""
    fails: list[list[bool]] = field(default_factory=list)
    """Whether the changed cell failed, by history and night from the change on."""
    shifts: list[list[float]] = field(default_factory=list)
    """How far the baseline of the changed cell has moved, in points, by history and night from the change on."""
    detectable: list[float] = field(default_factory=list)
    """What the first night of the change says that it would find: of pass@1, in points."""
    detectable_speed_ups: list[float] = field(default_factory=list)


def history(rng: np.random.Generator, setting: Setting, tally: Tally) -> None:
    """One history of nights, added to the tally."""
    world, ledger, was_false, found = World(rng, setting), Ledger(), False, None
    fails: list[bool] = []
    baselines: list[float] = []
    for index in range(setting.num_nights):
        tonight = world.night(index)
        verdict = ledger.judge(tonight)
        if verdict.to_confirm:
            again = {cell.cell for cell in verdict.to_confirm}
            tally.num_reruns += len(again)
            tonight = world.rerun(tonight, again, index)
            verdict = ledger.judge(tonight)
        ledger.keep(tonight, verdict)
        tally.num_cell_nights += CELLS
        if index == CHANGE_NIGHT:
            _keep_detectable(verdict.cells[CHANGED], tally)
        if index >= setting.first_counted:
            is_false = any(_is_false(cell, has_changed=world.has_changed(index)) for cell in verdict.cells)
            tally.num_nights += 1
            tally.num_false_nights += is_false
            was_false = was_false or is_false
        if index >= CHANGE_NIGHT:
            fails.append(verdict.cells[CHANGED].verdict == "FAIL")
            baselines.append(100 * (verdict.cells[CHANGED].baseline_score or 0.0))
        if found is None and world.has_changed(index) and verdict.cells[CHANGED].verdict == "FAIL":
            found = index - CHANGE_NIGHT
    tally.num_histories += 1
    tally.fails.append(fails)
    tally.shifts.append([baseline - baselines[0] for baseline in baselines])
    tally.num_false_histories += was_false
    tally.found += [] if found is None else [found]


def _keep_detectable(cell: CellVerdict, tally: Tally) -> None:
    tally.detectable += [] if cell.detectable_drop is None else [100 * cell.detectable_drop]
    tally.detectable_speed_ups += [metric.detectable for metric in cell.metrics if metric.metric is SPEED_UP]


def _is_false(cell: CellVerdict, *, has_changed: bool) -> bool:
    return cell.verdict in ("FAIL", "WARN") and not (has_changed and cell.cell == f"cell{CHANGED}")


def simulate(setting: Setting, repetitions: int, seed: int) -> Tally:
    """Many histories of one setting."""
    rng, tally = np.random.default_rng(seed), Tally()
    for _ in range(repetitions):
        history(rng, setting, tally)
    return tally


def described(setting: Setting) -> str:
    """Return what sets a setting apart."""
    parts = [setting.kind]
    parts += [f"−{setting.drop:g} points"] * bool(setting.drop)
    parts += [f"for {setting.lasting} nights"] * (setting.lasting < setting.num_nights)
    parts += ["new environment"] * setting.has_new_environment
    parts += [f"{setting.num_node_types} node types alternate"] * (setting.num_node_types > 1)
    parts += [f"common effect {setting.common:g} logits"] * bool(setting.common)
    parts += [f"run factor {100 * setting.run_factor:g} %"]
    return ", ".join(parts)


def row(setting: Setting, tally: Tally) -> str:
    """A line of a Markdown table."""
    has_change = bool(setting.drop or setting.fallback or setting.speed_up)
    within = [f"{100 * sum(night < nights for night in tally.found) / tally.num_histories:.1f} %" for nights in (1, 3)]
    detectable = f"{np.median(tally.detectable):.1f} points" if tally.detectable else "–"
    speed_up = f"{-100 * np.expm1(-np.median(tally.detectable_speed_ups)):.0f} %" if tally.detectable_speed_ups else "–"
    if setting.drop and setting.num_nights > CHANGE_NIGHT + setting.lasting:
        within[1] += f"; {_after(setting, tally)}"
    if setting.drop and setting.lasting > setting.num_nights > 10:
        within[1] += f"; {_lasting(tally)}"
    cells = [
        described(setting),
        f"{tally.num_histories}",
        f"{100 * tally.num_false_nights / tally.num_nights:.2f} % of {tally.num_nights:,}",
        *(within if has_change else ("–", "–")),
        detectable,
        speed_up,
        f"{100 * tally.num_reruns / tally.num_cell_nights:.1f} %",
    ]
    return f"| {' | '.join(cells)} |"


def _after(setting: Setting, tally: Tally) -> str:
    """Return how often nights after the repair fail."""
    return f"nights after the repair that fail: {100 * np.mean(np.array(tally.fails)[:, setting.lasting :]):.2f} %"


def _lasting(tally: Tally) -> str:
    """Return what became of the baseline, and how often nights fail, each 5 nights."""
    shifts, fails = np.array(tally.shifts).mean(axis=0), np.array(tally.fails).mean(axis=0)
    moved = " / ".join(f"{shifts[night - 1]:+.2f}" for night in (5, 10, 15, 20))
    failing = " / ".join(f"{100 * fails[night - 5 : night].mean():.0f}" for night in (5, 10, 15, 20))
    return f"after 5 / 10 / 15 / 20 nights: baseline moved by {moved} points, nights that fail {failing} %"


HEADER = (
    "| setting | histories | nights with a false alarm | found the same night | within 3 nights | "
    "detectable drop, 8th night | detectable loss of speed-up | re-runs |"
)


def table(name: str, repetitions: int, seed: int) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield HEADER
    yield "|---" * 8 + "|"
    for setting in SCENARIOS[name]:
        yield row(setting, simulate(setting, repetitions, seed))


@click.command()
@click.option("--repetitions", default=100, show_default=True)
@click.option("--scenario", "scenarios", multiple=True, type=click.Choice(list(SCENARIOS)), default=list(SCENARIOS))
@click.option("--seed", default=1, show_default=True)
def main(repetitions: int, scenarios: tuple[str, ...], seed: int) -> None:
    """Simulate and print Markdown tables."""
    for name in scenarios:
        click.echo(f"\n{name}:\n")
        for line in table(name, repetitions, seed):
            click.echo(line)


if __name__ == "__main__":
    main()
