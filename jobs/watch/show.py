"""A run's status for people."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from jobs.watch.follow import duration
from jobs.watch.status import RunStatus, ShardStatus

_MANY = 32
"""Above so many shards only those are listed that have stopped."""


_LITTLE_ROOM = 4 << 20


def table(status: RunStatus) -> RenderableType:
    """Header lines, and a table of shards."""
    lines = [Text(line) for line in _header(status)]
    listed = [s for s in status.shards if len(status.shards) <= _MANY or s.where == "stopped"][:_MANY]
    if not listed:
        return Group(*lines)
    shards = Table(box=None, pad_edge=False)
    for column in ("shard", "samples", "failed", "is", "task", "node", "for", "last error or reason"):
        shards.add_column(column, justify="right" if column in {"shard", "samples", "failed"} else "left")
    for shard in listed:
        shards.add_row(*_row(shard))
    return Group(*lines, shards)


def print_status(status: RunStatus, console: Console) -> None:
    """Print it."""
    console.print(table(status), soft_wrap=True)


def _header(status: RunStatus) -> list[str]:
    share = status.finished / status.planned if status.planned else 0.0
    first = [f"{status.run_id}: {status.finished:,} of {status.planned:,} samples finished ({share:.0%})"]
    first += [f"{status.failed} failed"] if status.failed else []
    first += [f"{status.in_flight} in flight"] if status.in_flight else []
    second = [f"{count} {where}" for where, count in sorted(status.states.items())]
    rates = ", ".join(f"{model} {rate:,.0f} tok/s" for model, rate in status.tokens_per_second.items() if rate >= 0.5)
    third = [rates] if rates else []
    third += [f"ETA {duration(status.eta_seconds)}"] if status.eta_seconds is not None else []
    third += [f"{status.gpu_hours:.2f} GPU-hours"] if status.gpu_hours else []
    lines = [" · ".join(first), "shards: " + ", ".join(second)]
    lines += [" · ".join(third)] if third else []
    if status.free_bytes < _LITTLE_ROOM:
        lines += [
            f"THE DISK IS FULL: {status.free_bytes >> 10} KiB are left, too little for journals, logs and results"
        ]
    lines += [f"Slurm did not answer: {status.slurm_says}"] if status.slurm_says else []
    return lines


def _row(shard: ShardStatus) -> list[str]:
    task = shard.task
    return [
        str(shard.shard),
        f"{shard.finished}/{shard.planned}",
        str(shard.failed or ""),
        shard.where,
        task.job_id if task else "",
        task.node if task else "",
        duration(task.elapsed_seconds) if task and task.elapsed_seconds else "",
        shard.last_error or (task.reason if task and shard.where == "waiting" else ""),
    ]
