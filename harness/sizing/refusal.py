"""Says in one line why engines do not fit on their cards, and what the next larger choice is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from harness.plural import counted
from harness.sizing.cards import Card, known_card
from harness.sizing.engine_plan import Demand, Plan, fits, lacking
from harness.sizing.memory_model import GIB

_COUNTS = (2, 4, 8)
_MIG = " MIG "
"""Part of the names that harness.gpus gives to slices of cards."""
_LARGER_CARDS = ("A100-40", "L40S", "H100-80", "H200")


def explain(cards: Sequence[Card], demands: Sequence[Demand], best: Plan | None) -> str:
    """Return one line: what is needed, what there is, and what would do.

    `best` is the plan with the largest caches; None where not even the weights fit.
    """
    there = describe_cards(cards)
    models = ", ".join(f"{d.name} {d.shape.name} ({d.shape.weight_bytes(1, d.dtype) / GIB:.1f} GiB)" for d in demands)
    if best is None:
        reason = f"the weights of {models} with {_overhead(cards, demands):.1f} GiB beside them do not fit on {there}"
    else:
        short = lacking(demands, best)
        held = ", ".join(
            f"the {d.name}'s KV cache would hold {best.engines[d.name].kv_tokens:,} tokens and needs "
            f"{d.context_tokens:,} for one sample"
            for d in short
        )
        reason = f"{models} on {there}: {held}"
    return f"{reason}; {_advice(cards, demands, best)}"


def describe_cards(cards: Sequence[Card]) -> str:
    """Return the cards as `4 × H100 of 78.8 GiB`."""
    if not cards:
        return "no GPU"
    smallest = min(cards, key=lambda card: card.usable_bytes)
    used = f", {smallest.used_bytes / GIB:.1f} GiB of it in use" if smallest.used_bytes > GIB // 2 else ""
    return f"{len(cards)} × {smallest.name} of {smallest.total_bytes / GIB:.1f} GiB{used}"


def next_larger(cards: Sequence[Card], demands: Sequence[Demand], more_than: int = 0) -> str | None:
    """Return the smallest choice of more or larger cards that holds more samples than so many; None without any."""
    for count, larger in _larger(cards):
        chosen = fits([larger] * count, [replace(d, share=None, cards=None) for d in demands])
        if chosen is not None and chosen.num_samples > more_than:
            return f"{count} × {larger.name} would hold {counted(chosen.num_samples, 'sample')} at once"
    return None


def _larger(cards: Sequence[Card]) -> Iterator[tuple[int, Card]]:
    if not cards:
        return
    smallest = min(cards, key=lambda card: card.usable_bytes)
    if _MIG not in smallest.name:  # CUDA shows a process one slice
        yield from ((count, replace(smallest, used_bytes=0)) for count in _COUNTS if count > len(cards))
    for name in _LARGER_CARDS:
        card = known_card(name)
        if card is not None and card.total_bytes > smallest.total_bytes * 1.05:
            yield len(cards), card


def _advice(cards: Sequence[Card], demands: Sequence[Demand], best: Plan | None) -> str:
    advice = []
    if (larger := next_larger(cards, demands)) is not None:
        advice.append(larger)
    if any(d.share is not None or d.width is not None for d in demands):
        chosen = fits(cards, [replace(d, share=None, width=None) for d in demands])
        if chosen is not None:
            advice.append("without the flags for shares and widths it fits")
    if best is not None and (held := min(best.engines[d.name].kv_tokens for d in lacking(demands, best))):
        # By how much depends on the method: a verdict may show several candidates of the budget's length.
        advice.append(f"lower --token-budget, so that one sample needs at most {held:,}")
    return "; or ".join(advice) or "take smaller models or larger GPUs"


def _overhead(cards: Sequence[Card], demands: Sequence[Demand]) -> float:
    """Return the GiB beside weights and caches on one card, with the widest split that is possible."""
    memories = [d.memory(max((w for w in d.shape.widths(max(1, len(cards)))), default=1)) for d in demands]
    return sum(m.activations + m.graphs + m.outside for m in memories) / GIB
