"""The part of a node that one of several workers on it takes: its cards and its cores.

Workers stand side by side where a task starts several (`--workers-per-task`), where Slurm starts several tasks of one
job on a node (`ntasks-per-node`), and on this machine where a run has several shards.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from harness import gpus
from harness.plural import counted

_T = TypeVar("_T")
_UPPER, _LOWER = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "ROCR_VISIBLE_DEVICES"
_SYSTEM = Path("/sys/devices/system/cpu")
_HIDDEN = {"", "-1", "NoDevFiles"}


def share(items: Sequence[_T], number: int, count: int) -> list[_T]:
    """Return the items of worker `number` (from 0) of `count`, in adjacent groups of equal size; the rest is no one's.

    With fewer items than workers there is no group for each.
    """
    size = len(items) // count
    return list(items[number * size : (number + 1) * size])


def device_variables(number: int, count: int) -> dict[str, str]:
    """Return the variables that make only one worker's cards visible; none where this process sees no card.

    Raises ValueError where there are fewer cards than workers.
    """
    listed = {name: os.environ[name].split(",") for name in _UPPER if name in os.environ}
    if not listed and _LOWER in os.environ:
        listed = {_LOWER: os.environ[_LOWER].split(",")}
    if not listed:  # the drivers' tools are asked only where no variable says it
        listed = dict.fromkeys(_UPPER, gpus.visible_names())
    variables = {}
    for name, cards in listed.items():
        if not cards or cards[0] in _HIDDEN:
            continue
        if len(cards) < count:
            raise ValueError(f"{counted(len(cards), 'GPU')} cannot be divided among {count} workers on one node")
        variables[name] = ",".join(share(cards, number, count))
    return variables


def take_cores(number: int, count: int) -> None:
    """Bind this process, and those that it will start, to one worker's cores; where there are enough cores."""
    cores = share(in_order_of_place(os.sched_getaffinity(0)), number, count)
    if cores:
        os.sched_setaffinity(0, cores)


def in_order_of_place(cores: Iterable[int], system: Path = _SYSTEM) -> list[int]:
    """Return cores by processor, with the threads of a core side by side, as far as the system tells.

    Linux numbers the second threads of all cores after the first ones. By numbers, a later worker would get second
    threads of an earlier one's cores, often on the other processor than its cards.
    """
    return sorted(cores, key=lambda core: (*_place(system / f"cpu{core}" / "topology"), core))


def _place(topology: Path) -> tuple[int, int]:
    try:
        package, core = ((topology / name).read_text() for name in ("physical_package_id", "core_id"))
        return int(package), int(core)
    except (OSError, ValueError):
        return 0, 0


def take(number: int, count: int) -> None:
    """Make this process one of `count` workers on a node: it sees its own cards and runs on its own cores."""
    if count > 1:
        os.environ.update(device_variables(number, count))
        take_cores(number, count)


def take_as_slurm_task(environment: Mapping[str, str] = os.environ) -> None:
    """Take the share of one of several Slurm tasks on this node, unless Slurm itself has given each its cards."""
    own = {"SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"} & environment.keys()
    count = _tasks_here(environment)
    if count > 1 and not own and "SLURM_LOCALID" in environment:
        os.environ.update(device_variables(int(environment["SLURM_LOCALID"]), count))


def rank(environment: Mapping[str, str] = os.environ) -> tuple[int, int]:
    """Return this process's number among the tasks of its Slurm job step, and their number; 0 and 1 elsewhere."""
    number, count = environment.get("SLURM_PROCID", ""), environment.get("SLURM_STEP_NUM_TASKS", "")
    if not (number.isdigit() and count.isdigit()):
        return 0, 1
    return int(number), int(count)


def of_this_task(parts: Sequence[tuple[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """Return what this one of several Slurm tasks of a job runs: of each run folder's shards every `count`-th."""
    number, count = rank()
    return [(folder, own) for folder, shards in parts if (own := shards[number::count])]


def have_one_node(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if all tasks of this Slurm job step are on one node."""
    return environment.get("SLURM_STEP_NUM_NODES") == "1"


def _tasks_here(environment: Mapping[str, str]) -> int:
    """Return the tasks of the job step on this node: the first of Slurm's list, such as `4` or `2(x3)`."""
    first = environment.get("SLURM_STEP_TASKS_PER_NODE", "1").partition(",")[0].partition("(")[0]
    return int(first) if first.isdigit() else 1
