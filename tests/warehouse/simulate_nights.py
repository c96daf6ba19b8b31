"""The nightly verdict on simulated nights: false alarms, and how soon a drop is detected.

    python -m tests.warehouse.simulate_nights --repetitions 200 --seed 1

30 nights × 12 cells with 16 samples a problem. Nights differ by sampling noise alone; in the second half of the nights
one cell may be worse by some points. Every night goes through `warehouse.nightly.judge` as a real one does, and every
cell that it asks for is run again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta

import click
import numpy as np
from scipy import optimize, special

from warehouse.nightly.cells import Batch, CellNight
from warehouse.nightly.judge import CellVerdict, Ledger
from warehouse.statistics.intervals import Floats

NIGHTS = 30
CELLS = 12
SAMPLES = 16
DROP_NIGHT = 15
"""Index of the first night of a drop: as many nights before it as after."""
KINDS: Mapping[str, tuple[int, float]] = {
    "AMC23-like": (40, 0.38),
    "AIME-like": (30, 0.48),
    "MATH-500-like": (500, 0.1),
}
"""Problems, and the Beta distribution's parameter of their difficulty; re-run noise 1.3, 1.6 and 0.3 points."""
NO_ANSWER, TRUNCATED = 0.03, 0.1
START = date(2026, 1, 1)


@dataclass
class Tally:
    """Counts over all repetitions of one setting."""

    num_nights: int = 0
    num_false_nights: int = 0
    """Nights with an alarm (FAIL or WARN) on a cell that had not changed."""
    num_histories: int = 0
    num_false_histories: int = 0
    num_reruns: int = 0
    nights_until_fail: list[int] | None = None
    """Nights from the drop to its first FAIL, 0 for the same night; a drop that is never detected has no entry."""
    num_detected: int = 0
    """Drops that made their cell FAIL or WARN, drift included."""


def chances(rng: np.random.Generator, kind: str) -> Floats:
    """A chance of a right answer for every problem of a cell."""
    n, shape = KINDS[kind]
    return rng.beta(shape, shape, size=n)


def lowered(p: Floats, points: float) -> Floats:
    """Return the chances of the same problems, lower by this many points on average."""
    logits = special.logit(np.clip(p, 1e-9, 1 - 1e-9))
    shift = optimize.brentq(lambda x: special.expit(logits - x).mean() - p.mean() + points / 100, -1, 20)
    return np.asarray(special.expit(logits - shift), dtype=float)


def batch(rng: np.random.Generator, p: Floats, run_id: str) -> Batch:
    """One run."""
    total = len(p) * SAMPLES
    verdicts = {"no_answer": int(rng.binomial(total, NO_ANSWER)), "truncated": int(rng.binomial(total, TRUNCATED))}
    return Batch(run_id, rng.binomial(SAMPLES, p).astype(np.int64), np.full(len(p), SAMPLES), verdicts)


def history(rng: np.random.Generator, kind: str, drop: float, tally: Tally, num_nights: int = NIGHTS) -> None:
    """One history of nights, added to the tally. drop: points that the first cell loses from DROP_NIGHT on."""
    cells = {f"cell{i}": chances(rng, kind) for i in range(CELLS)}
    worse = lowered(cells["cell0"], drop) if drop else cells["cell0"]
    ledger, was_false, fail_index, is_detected = Ledger(), False, None, False
    for index in range(num_nights):
        now = cells | ({"cell0": worse} if index >= DROP_NIGHT else {})
        tonight = [CellNight(cell, START + timedelta(index), batch(rng, p, cell)) for cell, p in now.items()]
        verdict = ledger.judge(tonight)
        if verdict.to_confirm:
            again = {cell.cell for cell in verdict.to_confirm}
            tally.num_reruns += len(again)
            tonight = [replace(n, reruns=(batch(rng, now[n.cell], n.cell),)) if n.cell in again else n for n in tonight]
            verdict = ledger.judge(tonight)
        ledger.keep(tonight, verdict)
        is_false = any(_is_false(cell, bool(drop) and index >= DROP_NIGHT) for cell in verdict.cells)
        tally.num_nights += 1
        tally.num_false_nights += is_false
        was_false = was_false or is_false
        is_detected = is_detected or (index >= DROP_NIGHT and verdict.cells[0].verdict in ("FAIL", "WARN"))
        if fail_index is None and index >= DROP_NIGHT and verdict.cells[0].verdict == "FAIL":
            fail_index = index - DROP_NIGHT
    tally.num_histories += 1
    tally.num_false_histories += was_false
    tally.num_detected += is_detected and bool(drop)
    if drop and fail_index is not None:
        tally.nights_until_fail = [*(tally.nights_until_fail or []), fail_index]


def _is_false(cell: CellVerdict, has_dropped: bool) -> bool:
    return cell.verdict in ("FAIL", "WARN") and not (has_dropped and cell.cell == "cell0")


def simulate(kind: str, drop: float, repetitions: int, seed: int) -> Tally:
    """Many histories of one setting."""
    rng, tally = np.random.default_rng(seed), Tally()
    for _ in range(repetitions):
        history(rng, kind, drop, tally)
    return tally


def table(tallies: Mapping[tuple[str, float], Tally]) -> Iterator[str]:
    """Lines of a Markdown table."""
    yield (
        "| problems | drop, points | histories | nights with a false alarm | any in 30 nights "
        "| drop fails within 15 nights | fails or warns | median night | re-runs |"
    )
    yield "|---" * 9 + "|"
    for (kind, drop), tally in tallies.items():
        after = tally.nights_until_fail or []
        detected_share = f"{100 * len(after) / tally.num_histories:.1f} %" if drop else "–"
        at_all = f"{100 * tally.num_detected / tally.num_histories:.1f} %" if drop else "–"
        median = f"{np.median(after) + 1:.0f}" if after else "–"
        yield (
            f"| {kind} | {drop:g} | {tally.num_histories} | {100 * tally.num_false_nights / tally.num_nights:.2f} % "
            f"| {100 * tally.num_false_histories / tally.num_histories:.1f} % | {detected_share} | {at_all} "
            f"| {median} | {100 * tally.num_reruns / (tally.num_nights * CELLS):.1f} % |"
        )


@click.command()
@click.option("--repetitions", default=200, show_default=True)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), default=list(KINDS))
@click.option("--drop", "drops", multiple=True, type=float, default=[0.0, 3.0])
@click.option("--seed", default=1, show_default=True)
def main(repetitions: int, kinds: tuple[str, ...], drops: tuple[float, ...], seed: int) -> None:
    """Simulate and print a Markdown table."""
    tallies = {(kind, drop): simulate(kind, drop, repetitions, seed) for kind in kinds for drop in drops}
    for line in table(tallies):
        click.echo(line)


if __name__ == "__main__":
    main()
