"""Bias of a probe's rates, and coverage of their intervals: `python -m tools.simulate.probes`.

The decisions of a run are simulated: for each step, the probabilities of a right answer after the draft's proposal and
after the target's step are drawn from a population, and a judge accepts and rejects with errors. A probe draws points
by strata, continues each point several times, and estimates the rates over all decisions of the population.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from warehouse.statistics import probes
from warehouse.statistics.intervals import Floats

Draw = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""Function that draws the probabilities of a right answer after each step of one problem: with the draft's step, and
with the target's own step.
"""
_RATES = ("false_acceptance", "false_rejection", "loss_of_accepted", "loss_of_refused")
_MARGIN = 0.5
"""Loss from which the simulated judge treats a step as wrong, and from which counting does."""


@dataclass(frozen=True)
class _Decisions:
    problem: probes.Numbers
    draft: Floats
    own: Floats
    accepted: probes.Flags


def sure(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Draw a problem that is almost surely solved unless a wrong step ruins it, as with the bundled pair."""
    own = np.full(n, rng.beta(12, 1))
    ruined = rng.random(n) < 0.15
    return np.where(ruined, own * rng.beta(1, 12, n), own), own


def spread(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Draw probabilities and losses of every size, as in a hard benchmark."""
    own = np.full(n, rng.beta(1.5, 1.5))
    return np.clip(own - np.where(rng.random(n) < 0.3, rng.beta(2, 2, n), rng.normal(0, 0.05, n)), 0.0, 1.0), own


def easy(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Draw a problem with few wrong steps, after which the answer is right about half as often."""
    own = np.full(n, rng.beta(30, 1))
    return np.where(rng.random(n) < 0.05, own * rng.beta(2, 2, n), own), own


POPULATIONS: dict[str, Draw] = {"sure": sure, "spread": spread, "easy": easy}


def decisions(rng: np.random.Generator, draw: Draw, problems: int, steps: int) -> _Decisions:
    """Return the decisions of a run by a judge that errs. A problem has `steps` + 1 steps on average."""
    sizes = rng.poisson(steps, problems) + 1
    chances = [draw(rng, size) for size in sizes]
    draft, own = (np.concatenate(part) for part in zip(*chances, strict=True))
    chance = np.where(own - draft >= _MARGIN, 0.25, 0.93)
    return _Decisions(np.repeat(np.arange(problems), sizes), draft, own, rng.random(len(draft)) < chance)


def truth(of: _Decisions) -> dict[str, float]:
    """Return the true rates over all decisions."""
    loss, accepted = of.own - of.draft, of.accepted
    return {
        "false_acceptance": float((loss * accepted).sum() / loss.sum()),
        "false_rejection": float(((1 - loss) * ~accepted).sum() / (1 - loss).sum()),
        "loss_of_accepted": float(loss[accepted].mean()),
        "loss_of_refused": float(loss[~accepted].mean()),
    }


def counted(of: probes.Points) -> dict[str, float]:
    """Return the rates obtained by counting a point as wrong if its observed loss is at least the margin."""
    wrong, w, accepted = of.loss >= _MARGIN, of.weight, of.accepted
    return {
        "false_acceptance": float(w[wrong & accepted].sum() / w[wrong].sum()) if wrong.any() else float("nan"),
        "false_rejection": float(w[~wrong & ~accepted].sum() / w[~wrong].sum()),
        "loss_of_accepted": float(w[wrong & accepted].sum() / w[accepted].sum()),
        "loss_of_refused": float(w[wrong & ~accepted].sum() / max(w[~accepted].sum(), 1)),
    }


def drawn(rng: np.random.Generator, of: _Decisions, num_points: int, rollouts: int) -> probes.Points:
    """Return the points of a probe; half of them are rejections, if there are enough rejections."""
    refused = min(int((~of.accepted).sum()), num_points // 2)
    chosen, weights = [], []
    for accepted, most in ((True, num_points - refused), (False, refused)):
        places = np.flatnonzero(of.accepted == accepted)
        size = min(most, len(places))
        chosen.append(rng.choice(places, size, replace=False))
        weights.append(np.full(size, len(places) / max(size, 1)))
    at, n = np.concatenate(chosen), rollouts
    totals, splitter = np.full(len(at), n), rng.spawn(1)[0]
    draft_right, own_right = rng.binomial(n, of.draft[at]), rng.binomial(n, of.own[at])
    draft_even, own_even = (splitter.hypergeometric(right, n - right, n - n // 2) for right in (draft_right, own_right))
    return probes.Points(
        problem=of.problem[at],
        family=of.problem[at],
        weight=np.concatenate(weights),
        accepted=of.accepted[at],
        third=np.ones(len(at), dtype=np.int64),
        rating=np.full(len(at), np.nan),
        draft_right=draft_right,
        draft_total=totals,
        own_right=own_right,
        own_total=totals,
        draft_even=draft_even / (n - n // 2),
        draft_odd=(draft_right - draft_even) / (n // 2),
        own_even=own_even / (n - n // 2),
        own_odd=(own_right - own_even) / (n // 2),
    )


def _simulated(draw: Draw, size: tuple[int, int, int], repetitions: int, seed: int) -> dict[str, tuple[float, ...]]:
    """Return for each rate: its true value, the biases of the estimate and of counting, the coverage, and three shares.

    The shares are those of repetitions without an estimate, of unbounded intervals, and of bounded intervals that cover
    the true value. All numbers are in percent. The coverage includes unbounded intervals, which always cover. `size`:
    numbers of problems, points and continuations.
    """
    rng = np.random.default_rng(seed)
    problems, points, rollouts = size
    found: dict[str, list[list[float]]] = {name: [] for name in _RATES}
    for _ in range(repetitions):
        run = decisions(rng, draw, problems, 10)
        probe = drawn(rng, run, points, rollouts)
        estimated, plain = probes.rates(probe), counted(probe)
        for name in _RATES:
            interval = getattr(estimated, name)
            unbounded = interval.kind.startswith("unbounded")
            found[name].append([interval.estimate, plain[name], interval.low, interval.high, unbounded])
    # The intervals are for similar problems, so the true values come from many problems.
    true = truth(decisions(np.random.default_rng(seed + 1), draw, 20_000, 10))
    rows = {}
    for name in _RATES:
        values = np.array(found[name], dtype=float)
        known = values[~np.isnan(values).any(axis=1)]
        covered = (known[:, 2] <= true[name]) & (true[name] <= known[:, 3])
        bias, off = (float(known[:, column].mean() - true[name]) for column in (0, 1))
        bounded = known[:, 4] == 0
        shares = (covered.mean(), 1 - len(known) / len(values), 1 - bounded.mean(), covered[bounded].mean())
        rows[name] = tuple(100 * float(one) for one in (true[name], bias, off, *shares))
    return rows


def main() -> None:
    """Print one row for each population, size and rate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(
        "| population | problems × points × continuations | rate | truth | bias | bias of counting | coverage "
        "| no estimate | unbounded | coverage of bounded |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, draw in POPULATIONS.items():
        for size in ((40, 200, 8), (100, 200, 8), (40, 100, 4)):
            for rate, row in _simulated(draw, size, options.repetitions, options.seed).items():
                true, bias, off, *shares = row
                shown = " × ".join(map(str, size))
                cells = [f"{true:.1f}", f"{bias:+.1f}", f"{off:+.1f}", *(f"{share:.1f}" for share in shares)]
                print("|", " | ".join([name, shown, rate, *cells]), "|", flush=True)


if __name__ == "__main__":
    main()
