"""The cards of this machine, and those that a Slurm job will have, as its options tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from harness import gpus
from harness.sizing.cards import Card, CardType, card, is_share, of_memory, parse_gres, parse_type, split_gres

GPU_MEMORY = "gpu-memory"
"""Key of a profile, and flag: the memory of one GPU, where its type does not tell."""
_REQUESTS = ("gpus-per-task", "tres-per-task", "gres", "gpus-per-node", "gpus-per-socket", "gpus")
"""Options that ask for GPUs. Of several in a job, Slurm 22.05 gives what the first of these asks for, or rejects it."""
_PER_TASK, _OF_GRES = frozenset(_REQUESTS[:2]), frozenset(_REQUESTS[1:3])


@cache
def cards_here() -> tuple[Card, ...]:
    """Return the cards that this process may use; empty where one does not say how much memory it has.

    They are asked for once: later this worker's own engines would count among what others use.
    """
    found = [card(gpu.name, gpu.memory_bytes, gpu.used_bytes) for gpu in gpus.visible_gpus()]
    return () if any(one.total_bytes == 0 for one in found) else tuple(found)


def num_tasks(sbatch: Mapping[str, Any]) -> int:
    """Return the tasks that Slurm starts for one job; of a range of nodes, for the fewest."""
    if ntasks := _number(sbatch, "ntasks"):
        return ntasks
    if per_gpu := _number(sbatch, "ntasks-per-gpu"):
        asked = _asked(sbatch)
        return per_gpu * (asked.count if asked else 1)
    sockets = _number(sbatch, "sockets-per-node") if sbatch.get("gpus-per-socket") else 0
    return max(1, _number(sbatch, "ntasks-per-node") or sockets) * _nodes(sbatch)


def cards_of_worker(sbatch: Mapping[str, Any], workers_per_task: int = 1) -> CardType | None:
    """Return what `cards_of_job` returns, divided among the workers that share these cards."""
    job = cards_of_job(sbatch)
    return None if job is None else replace(job, count=job.count // (workers_per_task * num_tasks(sbatch)))


_MAIN_MEMORY = {"mem", "mem-per-cpu", "mem-per-gpu"}
"""Options of sbatch that exclude each other."""


def cards_of_job(sbatch: Mapping[str, Any]) -> CardType | None:
    """Return the number and the type of the cards that sbatch is asked for, on all nodes; None where for none.

    Raises ValueError where `gpu-memory` is not valid.
    """
    memory = of_memory(str(sbatch[GPU_MEMORY])) if sbatch.get(GPU_MEMORY) else None
    asked = _asked(sbatch)
    return asked if asked is None or memory is None else replace(asked, card=memory)


def without_replaced(options: Mapping[str, Any], typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options, such as a profile's, that hold beside others that win over them, such as those typed.

    Whoever asks for GPUs by one of sbatch's options means no other option that asks for some, and sbatch takes one of
    those that ask for main memory. The memory of a GPU does not hold for another type. Names may have underscores.
    """
    given = {key.replace("_", "-") for key, value in typed.items() if value is not None}
    if given & _MAIN_MEMORY:
        options = {key: value for key, value in options.items() if key.replace("_", "-") not in _MAIN_MEMORY}
    keys = {key.replace("_", "-"): key for key in options}
    asking = {
        name: value
        for key, value in typed.items()
        if (name := key.replace("_", "-")) in _REQUESTS and value is not None and _is_of_gpus(name, value)
    }
    if not asking:
        return dict(options)
    left = dict(options)
    for name in keys.keys() & set(_REQUESTS):
        value = left[keys[name]]
        if _is_of_gpus(name, value):
            del left[keys[name]]
            if name in _OF_GRES and (others := [part for part in split_gres(str(value))[1] if not is_share(part)]):
                left[keys[name]] = ",".join(others)
    types = _types(asking)
    if types and types != _types({name: options[key] for name, key in keys.items()}):
        left.pop(keys.get(GPU_MEMORY, ""), None)
    if _PER_TASK & asking.keys():  # sbatch takes no ntasks-per-gpu beside it
        left.pop(keys.get("ntasks-per-gpu", ""), None)
    return left


def _asked(sbatch: Mapping[str, Any]) -> CardType | None:
    """Return the cards of a job; of options for the same cards, those that sbatch goes by."""
    for option in _REQUESTS:
        asked = _parse(option, sbatch[option]) if sbatch.get(option) else None
        if asked is None:
            continue
        factor = 1
        if option in _PER_TASK:
            factor = num_tasks({**sbatch, "ntasks-per-gpu": ""})
        elif option != "gpus":
            factor = _nodes(sbatch) * (_number(sbatch, "sockets-per-node") or 1 if option == "gpus-per-socket" else 1)
        return replace(asked, count=asked.count * factor)
    if per_gpu := _number(sbatch, "ntasks-per-gpu"):
        return CardType(-(-(_number(sbatch, "ntasks") or 1) // per_gpu), None)
    return None


def _parse(option: str, value: Any) -> CardType | None:
    return parse_gres(str(value)) if option in _OF_GRES else parse_type(str(value))


def _is_of_gpus(option: str, value: Any) -> bool:
    if option not in _OF_GRES:
        return True
    whole, others = split_gres(str(value))
    return bool(whole) or any(map(is_share, others))


def _types(options: Mapping[str, Any]) -> set[str]:
    """Return the types of GPUs that options name."""
    texts = [
        part
        for name, value in options.items()
        if name in _REQUESTS
        for part in (split_gres(str(value))[0] if name in _OF_GRES else str(value).split(","))
    ]
    return {name for text in texts if (name := text.strip().partition(":")[0].lower()) and not name.isdecimal()}


def _nodes(sbatch: Mapping[str, Any]) -> int:
    return max(1, _number({"nodes": str(sbatch.get("nodes", "")).partition("-")[0]}, "nodes"))


def _number(sbatch: Mapping[str, Any], option: str) -> int:
    text = str(sbatch.get(option, ""))
    return int(text) if text.isdecimal() else 0
