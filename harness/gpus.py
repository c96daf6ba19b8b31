"""The GPUs that this process may use, of those of its node (harness.gpu_queries).

Which these are follows from the variables that CUDA and ROCm read (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES,
HIP_VISIBLE_DEVICES), and inside a Slurm job that sets none of them from the job's own. Only the standard library is
imported, because harness.installation runs before anything is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from harness.gpu_queries import Gpu, QueryFailed, lists_nvidia, node_gpus, query_amd, query_nvidia

_CUDA = "CUDA_VISIBLE_DEVICES"
_ROCR = "ROCR_VISIBLE_DEVICES"
_HIP = "HIP_VISIBLE_DEVICES"
_SLURM = ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
"""Slurm's variables with the numbers of a job's cards on this node."""
_SLURM_COUNT = "SLURM_GPUS_ON_NODE"
_DEVICES = Path("/dev")
__all__ = [
    "Gpu",
    "QueryFailed",
    "accelerator",
    "held_gpus",
    "named",
    "node_gpus",
    "query_amd",
    "query_nvidia",
    "select",
    "slurm_devices",
    "visible_gpus",
    "visible_names",
    "whole_names",
]


def visible_gpus() -> list[Gpu]:
    """Return the cards that this process may use, in the order in which CUDA or ROCm numbers them."""
    cards = node_gpus()
    if not cards:
        return []
    if cards[0].vendor == "amd":
        # ROCm's lower layer applies its variable first; the upper one then counts what is left.
        if (names := _names(_HIP, _CUDA)) is not None:
            return select(names, _left_by_rocr(cards), by_position=True)
        return _left_by_rocr(cards) if _names(_ROCR) is not None else _of_slurm_job(cards)
    if (names := _names(_CUDA)) is not None:
        return _usable_together(select(names, cards))
    return _usable_together(_of_slurm_job(cards))


def select(names: Iterable[str], cards: Sequence[Gpu], *, by_position: bool = False) -> list[Gpu]:
    """Return the cards that these numbers, UUIDs, beginnings of UUIDs or MIG ids name, in that order.

    As in CUDA, the first name of no card ends the list. `by_position` numbers the given cards from 0.
    """
    chosen: list[Gpu] = []
    for name in names:
        if name.isdecimal():
            found = [card for place, card in enumerate(cards) if (place if by_position else card.index) == int(name)]
        else:
            found = [card for card in cards if name and card.uuid is not None and card.uuid.startswith(name)]
        if not found:
            break
        if found[0] not in chosen:
            chosen.append(found[0])
    return chosen


def visible_names() -> list[str]:
    """Return a name for each visible card, in order; CUDA_VISIBLE_DEVICES takes them (ROCm: HIP_VISIBLE_DEVICES)."""
    visible = visible_gpus()
    if not visible or visible[0].vendor == "nvidia":
        return [card.device for card in visible]
    counted = _left_by_rocr(node_gpus())
    return [str(counted.index(card)) for card in visible]


def named(names: Iterable[str]) -> list[Gpu]:
    """Return the cards that names of `visible_names` stand for."""
    cards = node_gpus()
    if cards and cards[0].vendor == "amd":
        return select(names, _left_by_rocr(cards), by_position=True)
    return select(names, cards)


def _left_by_rocr(cards: list[Gpu]) -> list[Gpu]:
    """Return the cards that the lower layer of ROCm leaves to the upper one, which numbers them from 0."""
    names = _names(_ROCR)
    return cards if names is None else select(names, cards)


def held_gpus(engines: Iterable[tuple[Sequence[str] | None, int]]) -> list[Gpu]:
    """Return the cards that engines hold together, from each one's visible devices and tensor parallel size.

    None stands for all visible cards, of which an engine takes the first ones. A card that two engines share counts
    once.
    """
    visible = visible_gpus()
    held: list[Gpu] = []
    for devices, width in engines:
        cards = visible if devices is None else named(devices)
        held += [card for card in cards[:width] if card not in held]
    return held


def whole_names() -> tuple[str, ...] | None:
    """Return what CUDA_VISIBLE_DEVICES should be where it has beginnings of UUIDs; None where it has none.

    CUDA takes them. vLLM looks for a card of exactly that name, and does not start (vllm-project/vllm#51677).
    """
    names = _names(_CUDA) or []
    if not any(name.startswith(("GPU-", "MIG-")) for name in names):
        return None
    found = tuple(card.device for card in select(names, node_gpus()) if card.vendor == "nvidia")
    return found if found and list(found) != names else None


def slurm_devices() -> tuple[str, ...] | None:
    """Return what CUDA_VISIBLE_DEVICES should be in a Slurm job that names its cards without setting the variable.

    None where a variable restricts the process already, where it sees only the job's cards, or outside of such a job.
    """
    if any(name in os.environ for name in (_CUDA, _ROCR, _HIP)) or not any(os.environ.get(name) for name in _SLURM):
        return None
    cards = node_gpus()
    of_job = _of_slurm_job(cards)
    if len(of_job) == len(cards):
        return None
    # vLLM takes nothing but numbers for AMD cards.
    return tuple(card.device if card.vendor == "nvidia" else str(card.index) for card in of_job)


def accelerator() -> Literal["gpu", "cpu"]:
    """Return whether this process can use an NVIDIA or AMD GPU, without loading a GPU library."""
    if not _hidden(_CUDA):
        # A control group that denies a card leaves its file and denies the access to it.
        if any(_usable(path) for path in _DEVICES.glob("nvidia[0-9]*")):
            return "gpu"
        if lists_nvidia():  # without such files, as in Windows' Linux
            return "gpu"
    if not _hidden(_ROCR, _HIP, _CUDA) and _usable(_DEVICES / "kfd"):
        return "gpu"
    return "cpu"


def _names(*variables: str) -> list[str] | None:
    """Return the names in the first of these variables that is set; None if none is."""
    for variable in variables:
        if (text := os.environ.get(variable)) is not None:
            return [name.strip() for name in text.split(",")]
    return None


def _hidden(*variables: str) -> bool:
    """Return True if one of these variables names no card at all, such as an empty one, `-1` or Slurm's NoDevFiles."""
    firsts = [names[0] for variable in variables if (names := _names(variable)) is not None]
    return not all(re.match(r"\d|GPU-|MIG-", first) for first in firsts)


def _usable(device: Path) -> bool:
    return os.access(device, os.R_OK | os.W_OK)


def _of_slurm_job(cards: list[Gpu]) -> list[Gpu]:
    """Return the cards of this Slurm job; all of them outside of a job, or where the job sees no others."""
    for variable in _SLURM:
        if names := [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]:
            chosen = select(names, cards)
            # Where a control group hides the other cards, those that are left have other numbers than Slurm's.
            return chosen if len(names) < len(cards) and len(chosen) == len(names) else cards[: len(names)]
    count = os.environ.get(_SLURM_COUNT, "")
    return cards[: int(count)] if count.isdecimal() and int(count) else cards


def _usable_together(cards: list[Gpu]) -> list[Gpu]:
    """Return what CUDA shows a process of these cards: of MIG slices only the first."""
    slices = [card for card in cards if (card.uuid or "").startswith("MIG-")]
    return slices[:1] if slices and slices[0] is cards[0] else [card for card in cards if card not in slices]
