"""Several launches whose chains the target reads: those of runs without a target of their own too.

Workers read the chains of their own run (`launch --target-logprobs`). A run by the draft alone has no target: that of
the other runs reads its chains once all have ended, in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console

from harness.engine import EngineDied
from jobs import costs
from jobs.after import warehouse
from jobs.after.target_logprobs import check, num_unscored, score_runs
from jobs.preparation import NO_TARGET, PreparedLaunch


class NotScored(RuntimeError):
    """The target could not read finished chains, which are safe; one line."""


def assigned(launches: Sequence[PreparedLaunch]) -> list[PreparedLaunch]:
    """Let the target of the other launches read the chains of those that ask for it and have none.

    Nothing changes on Slurm, where this process has no GPU, and where the others have several targets or none: their
    notice says what to do.
    """
    targets = {other.plan.spec.target.fingerprint: other.run for other in launches if other.plan.spec.target}
    if len(targets) != 1:
        return list(launches)
    [target_of] = targets.values()
    return [
        replace(
            prepared,
            launch=prepared.launch.changed(target_logprobs=False),  # its workers have no target
            plan=replace(prepared.plan, notices=[line for line in prepared.plan.notices if line != NO_TARGET]),
            target_of=target_of,
        )
        if prepared.launch.target_logprobs and prepared.plan.spec.target is None and prepared.cluster != "slurm"
        else prepared
        for prepared in launches
    ]


def score(launches: Sequence[PreparedLaunch], console: Console) -> None:
    """Score what finished launches ask for and no worker has scored, over as few starts of engines as possible.

    Raises NotScored, and warehouse.WarehouseFailed.
    """
    asked = [
        prepared
        for prepared in launches
        if prepared.cluster != "slurm"
        and ((prepared.launch.target_logprobs and prepared.plan.spec.target) or prepared.target_of)
        and not costs.stopped_runs([prepared.run])
    ]
    try:
        asked = [prepared for prepared in asked if num_unscored(prepared.run)]
        if not asked:
            return
        specs = [spec for prepared in asked for spec in check([prepared.run], prepared.target_of)]
        scored = score_runs([prepared.run for prepared in asked], specs, partial(console.print, soft_wrap=True))
    except (ValueError, EngineDied) as error:
        raise NotScored(f"the target could not read finished chains: {error}") from error
    for prepared, one in zip(asked, scored, strict=True):
        if one.num_samples:
            warehouse.load(prepared.run)
