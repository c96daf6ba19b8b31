"""The cards of this machine, and those that a Slurm job will have, as its options tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
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


def num_tasks(sbatch: Mapping[str, Any]) -> int:
    """Return the tasks that Slurm starts for one job, as `ntasks` or `ntasks-per-node` and `nodes` ask for."""
    counts = {key: str(sbatch.get(key, "")) for key in ("ntasks", "ntasks-per-node", "nodes")}
    numbers = {key: int(text) for key, text in counts.items() if text.isdigit()}
    return max(1, numbers.get("ntasks") or numbers.get("ntasks-per-node", 1) * numbers.get("nodes", 1))


def cards_of_worker(sbatch: Mapping[str, Any], workers_per_task: int = 1) -> CardType | None:
    """Return what `cards_of_job` returns, divided among the workers that share these cards."""
    job, sharing = cards_of_job(sbatch), workers_per_task
    if job is None:
        return None
    if not sbatch.get("gpus-per-task"):
        nodes = str(sbatch.get("nodes", "1"))
        sharing *= max(1, num_tasks(sbatch) // (int(nodes) if nodes.isdigit() and not sbatch.get("gpus") else 1))
    return replace(job, count=job.count // sharing)


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
