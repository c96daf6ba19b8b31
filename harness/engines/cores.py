"""Which of a processor's cores each engine's threads run on."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from harness.engine import Role

MOST_BYTES_ON_ONE_CORE = 64_000_000
"""Bytes of weights up to which an engine with few requests runs on one core. Its threads wait for each other dozens of
times a token; for so few weights that takes as long as a second thread saves, or longer: a prompt of 60 new tokens took
the bundled target (10 MB) 25 ms on one core and 34 ms on two, a token the same on both. Of SmolLM2-135M (270 MB), a
token took a fifth longer on one core, and a prompt a tenth less."""
CONCURRENCY_TO_SPLIT = 3
"""Number of samples in flight from which each engine gets its own cores."""


def core_lists(
    roles: tuple[Role, ...],
    ranks: Mapping[Role, int],
    concurrency: int,
    cores: list[int] | None = None,
    small: Collection[Role] = (),
) -> dict[Role, str | None]:
    """Return the cores for each engine's threads; None leaves the choice to the operating system.

    The engines of one sample work one after the other, so with one or two samples in flight each engine has all cores.
    Those whose models are `small` have one core each there, the target's the last.
    With more samples both work at the same time: threads of two engines on the same cores would wait for each other at
    every barrier, so the cores are divided, a quarter of them for the draft, and another for a reward model. Where
    there are too few for three, the reward model has those of the draft.
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
    """Return the cores in equal groups, one per rank; None where there are fewer cores than ranks."""
    size = len(cores) // ranks
    if size == 0:
        return None
    groups = [cores[i * size : (i + 1) * size] for i in range(ranks)]
    return "|".join(",".join(map(str, group)) for group in groups)
