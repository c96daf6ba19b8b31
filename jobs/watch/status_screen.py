"""How the status and the progress of a run are printed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from harness.cli.messages import counted
from harness.cli.number_format import duration
from harness.cli.screen import Column, Line, Screen, Table
from jobs.watch import failures
from jobs.watch.status import RunStatus, ShardStatus

_MAX_ROWS = 32
"""With more shards than this, only those that have stopped or make no step are listed."""
_MAX_LOGS = 3
_NUM_COUNTS = 3
"""Columns with numbers, which are the first."""


def print_status(status: RunStatus, console: Console) -> None:
    """Print header lines, a table of shards and the logs of those that have stopped."""
    is_short = len(status.shards) <= _MAX_ROWS
    listed = [s for s in status.shards if is_short or s.state == "stopped" or s.silent_seconds][:_MAX_ROWS]
    names = ("shard", "samples", "failed", "state", "task", "node", "elapsed", "last error or reason")
    columns = [Column(name, is_right=place < _NUM_COUNTS, is_folded=True) for place, name in enumerate(names)]
    shards = [Table(columns, [_row(shard) for shard in listed], _logs(listed))] if listed else []
    Screen(console).show([*map(Line, _header(status)), *shards])


def _logs(shards: Sequence[ShardStatus]) -> list[str]:
    """Return lines with the logs of the shards that have stopped."""
    paths = list(dict.fromkeys(shard.log for shard in shards if shard.log))
    return [f"log: {path}" for path in paths[:_MAX_LOGS]]


def _header(status: RunStatus) -> list[str]:
    share = status.finished / status.planned if status.planned else 0.0
    samples = "sample" if status.planned == 1 else "samples"
    first = [f"{status.run_id}: {status.finished:,} of {status.planned:,} {samples} finished ({share:.0%})"]
    first += [f"{status.failed} failed"] if status.failed else []
    first += [f"{status.in_flight} in flight"] if status.in_flight else []
    second = [f"{count} {state}" for state, count in sorted(status.states.items())]
    rates = ", ".join(f"{model} {rate:,.0f} tok/s" for model, rate in status.tokens_per_second.items() if rate >= 0.5)
    third = [rates] if rates else []
    third += [f"ETA {duration(status.eta_seconds)}"] if status.eta_seconds is not None else []
    shared = f" (with {counted(len(status.shared_with), 'run')} in the same jobs)" if status.shared_with else ""
    third += [f"{status.gpu_hours:.2f} GPU-hours{shared}"] if status.gpu_hours else []
    lines = [" · ".join(first), "shards: " + ", ".join(second)]
    lines += [f"timing, one at a time: {_timing(status)}"] if status.to_time else []
    lines += [" · ".join(third)] if third else []
    lines += [f"THE DISK IS FULL: {full}"] if (full := failures.full_disk(status.free_bytes)) else []
    lines += [status.how_to_conclude] if status.how_to_conclude else []
    lines += [status.how_to_resume] if status.how_to_resume else []
    lines += [f"the code changed: begun by {', then '.join(status.codes)}"] if status.codes else []
    lines += [f"Slurm does not answer: {status.slurm_error}"] if status.slurm_error else []
    return lines


def _timing(status: RunStatus) -> str:
    done = f"{status.timed:,} of {counted(status.to_time, 'sample')}"
    return done if status.finished == status.planned else f"{done}, after all others"


def _row(shard: ShardStatus) -> list[str]:
    task = shard.task
    return [
        str(shard.shard),
        f"{shard.finished}/{shard.planned}",
        str(shard.failed or ""),
        shard.state,
        task.job_id if task else "",
        task.node if task else "",
        duration(task.elapsed_seconds) if task and task.elapsed_seconds else "",
        shard.last_error
        or "; ".join(filter(None, (_silence(shard), shard.starting)))
        or (shard.task.reason if shard.task and shard.state == "queued" else ""),
    ]


def _silence(shard: ShardStatus) -> str:
    return f"no step for {duration(shard.silent_seconds)}" if shard.silent_seconds else ""
