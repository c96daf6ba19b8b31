"""What the workers are at whose engines start, by the logs of these engines: such a worker has no journal yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from harness.engines import start_log
from harness.plural import counted
from jobs.run.folder import RunFolder

_SHOWN = 3


def logs(run: RunFolder) -> dict[int, list[Path]]:
    """Return the logs of engines by the first shard of the worker that started them."""
    found: dict[int, list[Path]] = {}
    for log in run.logs_dir.glob("shard-*/*.log"):
        number = log.parent.name.removeprefix("shard-")
        if number.isdigit():
            found.setdefault(int(number), []).append(log)
    return found


def logs_of(run: RunFolder, shard: int) -> list[Path]:
    """Return the logs of the engines of the worker whose first shard this is."""
    return list((run.logs_dir / f"shard-{shard}").glob("*.log"))


def phase_of(engine_logs: Iterable[Path], since: float) -> str:
    """Return what a worker's starting engine is at; empty where none starts.

    Only logs count that were written after `since`, in seconds since the epoch.
    """
    written: list[tuple[float, str]] = []
    for log in engine_logs:
        try:
            modified_at = log.stat().st_mtime
        except FileNotFoundError:
            continue
        if modified_at >= since and (phase := start_log.phase(log)) is not None:
            written.append((modified_at, phase))
    return max(written)[1] if written else ""


def starting(run: RunFolder, since: float) -> dict[int, str]:
    """Return what the workers are at whose engines start, by the first shard of each; `since` as in `phase_of`."""
    phases = {shard: phase_of(of_worker, since) for shard, of_worker in sorted(logs(run).items())}
    return {shard: phase for shard, phase in phases.items() if phase}


def broken_off(run: RunFolder) -> dict[int, str]:
    """Return at what the workers of this machine were whose engines were starting when they were killed."""
    found = {
        shard: [start_log.phase(log, broken_off=True) for log in of_worker] for shard, of_worker in logs(run).items()
    }
    return {shard: at[0] for shard, phases in found.items() if (at := [phase for phase in phases if phase])}


def in_words(phases: Mapping[int, str], *, are_all: bool = True) -> str:
    """Return phases as `target: loading weights (50 %)`, with the shards where workers differ.

    `are_all`: whether no other worker is at work already.
    """
    by_phase: dict[str, list[int]] = {}
    for shard, phase in phases.items():
        by_phase.setdefault(phase, []).append(shard)
    if len(by_phase) < 2 and are_all:
        return "".join(by_phase)
    return "; ".join(f"{phase} ({_named(shards)})" for phase, shards in by_phase.items())


def _named(shards: list[int]) -> str:
    if len(shards) > _SHOWN:
        return counted(len(shards), "worker")
    return f"{'shard' if len(shards) == 1 else 'shards'} {', '.join(map(str, shards))}"
