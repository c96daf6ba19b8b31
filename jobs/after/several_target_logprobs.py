"""Several launches whose chains the target reads: those of runs without a target of their own too.

Workers read the chains of their own run (`launch --target-logprobs`). A run by the draft alone has no target: that of
the other runs reads its chains once all have ended, in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from rich.console import Console

from jobs.after import warehouse
from jobs.after.target_logprobs import check, num_unscored, score_each
from jobs.preparation import NO_TARGET, PreparedLaunch
from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec


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

    Where one cannot be scored the others are, and are loaded. Raises NotScored, which names those that were not, each
    with its reason, and warehouse.WarehouseFailed.
    """
    reasons: dict[str, str] = {}
    asked: list[tuple[RunFolder, RunSpec]] = []
    for prepared in launches:
        if not _is_asked(prepared):
            continue
        try:
            if num_unscored(prepared.run):
                asked += [(prepared.run, spec) for spec in check([prepared.run], prepared.target_of)]
        except ValueError as error:
            reasons[prepared.run.path.name] = str(error)
    runs, specs = [run for run, _ in asked], [spec for _, spec in asked]
    for run, one in zip(runs, score_each(runs, specs, partial(console.print, soft_wrap=True)), strict=True):
        if isinstance(one, Exception):
            reasons[run.path.name] = str(one)
        if any(run.target_logprobs_dir.glob("*.parquet")):  # also what was scored before the target died
            warehouse.load(run)
    if reasons:
        told = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
        raise NotScored(f"the target could not read finished chains of {told}")


def _is_asked(prepared: PreparedLaunch) -> bool:
    return bool(
        prepared.cluster != "slurm"
        and ((prepared.launch.target_logprobs and prepared.plan.spec.target) or prepared.target_of)
    )
