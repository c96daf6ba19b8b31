"""The cards of this machine, and those that a Slurm job will have, as its options tell."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from harness import gpus
from harness.sizing.cards import Card, CardType, card, of_memory, parse_type

GPU_MEMORY = "gpu-memory"
"""Key of a profile, and flag: the memory of one GPU, where its type does not tell."""
_COUNTS = ("gpus-per-node", "gpus-per-task", "gres", "gpus")


@cache
def cards_here() -> tuple[Card, ...]:
    """Return the cards that this process may use; empty where one does not say how much memory it has.

    They are asked for once: later this worker's own engines would count among what others use.
    """
    found = [card(gpu.name, gpu.memory_bytes, gpu.used_bytes) for gpu in gpus.visible_gpus()]
    return () if any(one.total_bytes == 0 for one in found) else tuple(found)


def cards_of_job(sbatch: Mapping[str, Any]) -> CardType | None:
    """Return the number and the type of the cards that sbatch is asked for; None where it is asked for none.

    Raises ValueError where `gpu-memory` is not valid.
    """
    memory = of_memory(str(sbatch[GPU_MEMORY])) if sbatch.get(GPU_MEMORY) else None
    for option in _COUNTS:
        asked = parse_type(str(sbatch[option])) if sbatch.get(option) else None
        if asked is not None:
            return asked if memory is None else CardType(asked.count, memory)
    return None
