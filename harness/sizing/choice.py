"""The plan for given cards, or one line that says why there is none and what would do."""

from __future__ import annotations

from collections.abc import Sequence

from harness.sizing.cards import Card
from harness.sizing.engine_plan import (
    Demand,
    DoesNotFit,
    Plan,
    check_known,
    check_shares,
    check_width,
    lacking,
    largest,
)
from harness.sizing.refusal import explain


def choose(cards: Sequence[Card], demands: Sequence[Demand]) -> Plan:
    """Choose widths, cards and shares.

    Raises DoesNotFit, NotPlannable, and ValueError where what the user asked for is not possible.
    """
    check_shares({d.name: d.share for d in demands}, {d.name: d.cards for d in demands})
    for demand in demands:
        check_known(demand)
        check_width(demand, len(cards))
    best = largest(cards, demands)
    if best is None or lacking(demands, best):
        raise DoesNotFit(explain(cards, demands, best))
    return best
