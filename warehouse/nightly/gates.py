"""Gates for what hardly varies: a broken prompt, parser or budget shows here before any test could see it."""

from __future__ import annotations

from collections.abc import Iterator

from warehouse.nightly.cells import Batch, CellNight, changes

GATES = {
    "samples without an answer that can be read": ("no_answer", "unparsable"),
    "samples cut off": ("truncated",),
    "samples that ended with an error": ("error",),
    "grader timeouts": ("grader_timeout",),
    "golds rejected": ("bad_gold",),
}
"""What is counted, by the verdicts that it is made of. Only a rise is a fault."""
SMALLEST_RISE = 0.01
NOISE_FACTOR = 5.0
"""A rise counts from so many standard deviations of a count on: chance alone reaches it once in millions of nights."""
GREEDY_TOKENS = 0.05
"""Relative change of the emitted tokens under greedy decoding, where they should not change at all."""


def changed_inputs(night: CellNight, before: CellNight | None) -> list[str]:
    """Prompts or problems that are not last night's, one phrase each."""
    return [] if before is None else changes(before.inputs, night.inputs)


def raised(tonight: Batch, usual: Batch) -> Iterator[str]:
    """Rates that rose beyond anything that counting noise explains, one phrase each; usual: the baseline as one."""
    for what, verdicts in GATES.items():
        now = sum(tonight.verdicts.get(verdict, 0) for verdict in verdicts) / tonight.num_samples
        number = sum(usual.verdicts.get(verdict, 0) for verdict in verdicts)
        before = number / usual.num_samples
        smooth = (number + 0.5) / (usual.num_samples + 1)
        noise = (smooth * (1 - smooth) * (1 / tonight.num_samples + 1 / usual.num_samples)) ** 0.5
        if now - before > max(SMALLEST_RISE, NOISE_FACTOR * noise):
            yield f"{what}: {100 * before:.1f} % → {100 * now:.1f} %"


def token_change(tonight: Batch, baseline: list[Batch]) -> str | None:
    """A phrase where greedy decoding emits more or fewer tokens than it did."""
    known = [batch.emitted_tokens for batch in baseline if batch.emitted_tokens]
    if not known or tonight.emitted_tokens is None:
        return None
    usual = sum(known) / len(known)
    if abs(tonight.emitted_tokens - usual) <= GREEDY_TOKENS * usual:
        return None
    return f"greedy tokens a sample: {usual:.1f} → {tonight.emitted_tokens:.1f}"
