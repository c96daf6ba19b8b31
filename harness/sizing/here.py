"""The widths and memory shares of the engines that are about to start on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from harness.engine import Role
from harness.environment import accelerator
from harness.sizing.engine_plan import NotPlannable, Plan
from harness.sizing.job_cards import cards_here
from harness.sizing.run_sizing import RunSizing, planned


@dataclass(frozen=True)
class Chosen:
    """What `pair_settings` takes."""

    tensor_parallel: dict[Role, int]
    memory: dict[Role, float | None]
    """Memory shares; None: the default."""


def chosen_here(kind: str, sizing: RunSizing) -> Chosen:
    """Return the widths and shares on this machine's GPUs; those that were asked for, without GPUs or a plan.

    Raises DoesNotFit, and ValueError where what was asked for is not possible.
    """
    plan = plan_here(kind, sizing)
    if plan is not None:
        engines = {role: plan.engines[role] for role in sizing.roles}
        return Chosen({r: e.width for r, e in engines.items()}, {r: e.share for r, e in engines.items()})
    return asked_for(sizing)


def asked_for(sizing: RunSizing) -> Chosen:
    """Return the widths and shares that were asked for, and the defaults where nothing was."""
    named = {role: len(cards) for role, cards in sizing.cards.items() if cards is not None}
    widths = {role: sizing.widths.get(role) or named.get(role, 1) for role in sizing.roles}
    return Chosen(widths, {role: sizing.shares.get(role) for role in sizing.roles})


def plan_here(kind: str, sizing: RunSizing) -> Plan | None:
    """Return the plan for this machine's GPUs; None without GPUs, for other engines, and where it is not calculable.

    Raises DoesNotFit, and ValueError where what was asked for is not possible.
    """
    if kind != "vllm" or accelerator() != "gpu" or not (cards := cards_here()):
        return None
    try:
        return planned(sizing, cards)
    except NotPlannable:
        return None
