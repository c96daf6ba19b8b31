"""Gates for rates that hardly vary: they show a broken prompt, parser or budget before any test can."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from warehouse.nightly.cells import Batch, CellNight, changes

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
