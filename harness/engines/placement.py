"""Assign a worker's GPUs ("cards"; `--draft.gpus 0 --target.gpus 1,2,3,4`) and cores to its engines.

GPUs are numbered from 0 among those visible to the worker, in the order of CUDA_VISIBLE_DEVICES or of Slurm's
allocation. On the node, each index is mapped to a GPU name that is the same in every process (harness.gpus). Cheap to
import, so a login node without GPUs can check the flags.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from harness import gpus
from harness.cli.messages import counted
from harness.engine import Role

Placement = Mapping[Role, tuple[int, ...] | None]
"""GPU indices for each engine; None: any GPU of the worker."""

_Name = TypeVar("_Name")

ALL = "all"
"""Value of the flag for all of the worker's GPUs."""
_ITEM = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")


def parse(text: str) -> tuple[int, ...]:
    """Parse GPU indices such as `0`, `1,2,3,4` or `1-4`. Raises ValueError."""
    numbers: list[int] = []
    for item in text.split(","):
        found = _ITEM.fullmatch(item.strip())
        if found is None:
            raise ValueError("expected indices of the worker's GPUs, starting at 0, such as 0 or 1,2,3,4 or 1-4")
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise ValueError(f"{item.strip()} is not a range; write {last}-{first}")
        numbers += range(first, last + 1)
    if len(set(numbers)) < len(numbers):
        raise ValueError("a GPU is listed twice")
    return tuple(numbers)


def written(numbers: Iterable[int]) -> str:
    """Return GPU indices in the format of the flag."""
    return ",".join(map(str, numbers))


def num_cards(placement: Placement, widths: Mapping[Role, int]) -> int:
    """Return the number of GPUs of all engines. `widths`: GPUs per engine; engines without a placement share GPUs."""
    named = {number for numbers in placement.values() for number in numbers or ()}
    unnamed = max((width for role, width in widths.items() if placement.get(role) is None), default=0)
    return max(len(named | set(range(unnamed))), 1)


def check(placement: Placement, num_available: int | None, where: str) -> None:
    """Raise ValueError if a GPU index is too high. `num_available`: number of the worker's GPUs; None if unknown."""
    for role, numbers in placement.items():
        if numbers is not None and num_available is not None and max(numbers) >= num_available:
            valid = {0: "", 1: "0 or "}.get(num_available, f"0 to {num_available - 1}, or ")
            has = f"{where} {counted(num_available, 'GPU')}"
            raise ValueError(f"--{role}.gpus {written(numbers)}: {has}; valid: {valid}{ALL}")


def shares_a_card(role: Role, placement: Placement) -> bool:
    """Return whether another engine may use one of this engine's GPUs."""
    own = placement.get(role)
    others = [numbers for other, numbers in placement.items() if other != role]
    return any(own is None or numbers is None or not set(own).isdisjoint(numbers) for numbers in others)


def on_each_card(placed: Mapping[_Name, Collection[int | str] | None]) -> list[list[_Name]]:
    """Return, for each listed GPU, the engines that may use it; if no GPU is listed, one list of all engines."""
    cards = {card for named in placed.values() for card in named or ()}
    found = [[name for name, named in placed.items() if named is None or card in named] for card in cards]
    return found or [list(placed)]


def devices(placement: Placement) -> dict[Role, tuple[str, ...] | None]:
    """Return the names of each engine's GPUs, for CUDA_VISIBLE_DEVICES; None: all GPUs of the worker.

    Raises ValueError if this worker has too few GPUs.
    """
    if all(numbers is None for numbers in placement.values()):
        return dict.fromkeys(placement)
    names = gpus.visible_names()
    check(placement, len(names), "this worker has")
    return {
        role: None if numbers is None else tuple(names[number] for number in numbers)
        for role, numbers in placement.items()
    }


MOST_BYTES_ON_ONE_CORE = 64_000_000
"""Maximum size of a model's weights, in bytes, for an engine with few requests to run on only one core. Threads wait
for each other dozens of times per token; with so few weights, this costs at least as much as a second thread saves. The
bundled target (10 MB) read 60 new prompt tokens in 25 ms on one core and in 34 ms on two; generation was equally fast.
On one core, SmolLM2-135M (270 MB) was a fifth slower per generated token than on two, and a tenth faster per prompt."""
CONCURRENCY_TO_SPLIT = 3
"""Minimum number of concurrent samples to give each engine its own cores."""


def core_lists(
    roles: tuple[Role, ...],
    ranks: Mapping[Role, int],
    concurrency: int,
    cores: list[int] | None = None,
    small: Collection[Role] = (),
) -> dict[Role, str | None]:
    """Return the cores for each engine's threads; None leaves the choice to the operating system.

    The engines of one sample work one after the other, so with one or two concurrent samples each engine has all cores,
    except that engines of `small` models have one core each: the target the last core, the others the first one. With
    more samples, all engines work at the same time, and threads on shared cores would wait for each other at every
    barrier. The cores are therefore divided: a quarter for the draft, a quarter for a reward model, and the rest for
    the target. If there are too few cores for three engines, the reward model shares the draft's cores.
    """
    cores = sorted(os.sched_getaffinity(0)) if cores is None else cores
    groups: dict[Role, list[int]] = dict.fromkeys(roles, cores)
    writers = [role for role in roles if role != "reward"]
    apart = roles if len(cores) >= sum(ranks.values()) else writers
    if concurrency < CONCURRENCY_TO_SPLIT:
        groups |= {r: cores[-1:] if r == "target" else cores[:1] for r in roles if r in small and ranks[r] == 1}
    elif len(apart) > 1 and len(cores) >= sum(ranks[role] for role in apart):
        large = "target" if "target" in apart else apart[-1]
        start = 0
        for role in (role for role in apart if role != large):
            size = max(len(cores) // 4, ranks[role])
            groups[role], start = cores[start : start + size], start + size
        groups[large] = cores[start:]
        if "reward" in roles and "reward" not in apart:
            groups["reward"] = groups["draft"]
    return {role: _ranges(groups[role], ranks[role]) for role in roles}


def _ranges(cores: list[int], ranks: int) -> str | None:
    """Return the cores in equal groups, one per rank; None if there are fewer cores than ranks."""
    size = len(cores) // ranks
    if size == 0:
        return None
    groups = [cores[i * size : (i + 1) * size] for i in range(ranks)]
    return "|".join(",".join(map(str, group)) for group in groups)
