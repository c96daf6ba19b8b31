"""Gates on what hardly varies, and drift: changes that no night alone shows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from warehouse.nightly.cells import Batch, CellNight, changes
from warehouse.statistics.intervals import Floats
from warehouse.statistics.night_changes import change_points

GATES = {
    "samples without an answer that can be read": ("no_answer", "unparsable"),
    "samples cut off": ("truncated",),
    "samples that ended with an error": ("error",),
    "grader timeouts": ("grader_timeout",),
    "golds rejected": ("bad_gold",),
}
"""The rates that are watched, each with the verdicts that it counts. Only a rise is a fault."""
SMALLEST_RISE = 0.01
NOISE_FACTOR = 5.0
"""Smallest rise that is a fault, in standard deviations of a count; chance reaches it once in millions of nights."""
GREEDY_TOKENS = 0.05
"""Tolerated relative change of the emitted tokens under greedy decoding, which should not change at all."""


def changed_inputs(night: CellNight, before: CellNight | None) -> list[str]:
    """Return one phrase for each input (prompts, problems) that differs from the night before."""
    return [] if before is None else changes(before.inputs, night.inputs)


def raised(tonight: Batch, usual: Batch) -> Iterator[str]:
    """Yield one phrase for each rate that rose by more than counting noise explains; usual: the pooled baseline."""
    for what, verdicts in GATES.items():
        now = sum(tonight.verdicts.get(verdict, 0) for verdict in verdicts) / tonight.num_samples
        number = sum(usual.verdicts.get(verdict, 0) for verdict in verdicts)
        before = number / usual.num_samples
        smooth = (number + 0.5) / (usual.num_samples + 1)
        noise = (smooth * (1 - smooth) * (1 / tonight.num_samples + 1 / usual.num_samples)) ** 0.5
        if now - before > max(SMALLEST_RISE, NOISE_FACTOR * noise):
            yield f"{what}: {100 * before:.1f} % → {100 * now:.1f} %"


def token_change(tonight: Batch, baseline: Collection[Batch]) -> str | None:
    """Return a phrase where greedy decoding emits more or fewer tokens than in the baseline, else None."""
    if tonight.emitted_tokens is None:
        return None
    means = [batch.emitted_tokens for batch in baseline if batch.emitted_tokens]
    if not means:
        return None
    usual = sum(means) / len(means)
    if abs(tonight.emitted_tokens - usual) <= GREEDY_TOKENS * usual:
        return None
    return f"greedy tokens per sample: {usual:.1f} → {tonight.emitted_tokens:.1f}"


NEWEST = 120
"""Nights of a segment that are searched, the newest."""
PENALTY = 22.0
"""Penalty per change point, in squared standard errors of a night; see `statistics.changes`."""
RETURNED = 3.0
"""A level within this many standard errors of the median of all earlier nights is a return, and no drift."""


def drift(scores: Sequence[float], noises: Sequence[float | None], night_factor: float) -> tuple[float, int] | None:
    """Return by how much the latest level of these nights differs from the one before it, and the index of its start.

    None where there is one level, or where the latest one is where most earlier nights were: something was repaired.
    noises: standard errors of the scores over re-runs of the same problems; night_factor: standard deviation of what
    all cells of a night have in common.
    """
    skipped = max(0, len(scores) - NEWEST)
    values = np.array(scores[skipped:])
    noise = np.hypot(_known(values, noises[skipped:]), night_factor)
    starts = change_points(values, noise, PENALTY)
    if not starts:
        return None
    start, before = starts[-1], ([0, *starts])[-2]
    error = float(np.sqrt(np.mean(noise**2) * (1 / (len(values) - start) + np.pi / 2 / start)))  # π/2: of a median
    if abs(float(values[start:].mean() - np.median(values[:start]))) <= RETURNED * error:
        return None
    return float(values[start:].mean() - values[before:start].mean()), skipped + start


def _known(scores: Floats, noises: Sequence[float | None]) -> Floats:
    """Return the standard errors; with one sample per problem they come from differences between successive nights."""
    known = [noise for noise in noises if noise is not None]
    if len(known) == len(noises):
        return np.array(known)
    steps = np.diff(scores)
    return np.full(len(scores), float(np.sqrt(np.mean(steps**2) / 2)) if len(steps) else 0.0)
