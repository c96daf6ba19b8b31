"""Several workers in one task of Slurm, each in a process of its own with its own shards, cards and cores.

The task waits for all of them. An error of one leaves the others at work; the task then fails at the end, and the run
can be resumed. Signals are passed on, so that before the time limit every worker saves its steps, and the task requeues
itself once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from harness.engines.settings import cpu_kv_bytes
from harness.plural import counted
from jobs.submission import snapshot
from jobs.work import node_share, worker
from jobs.work.run_part import RunPart

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
_OUT_OF_TIME, _OUT_OF_TIME_AT_ONCE = 75, 76
"""Exit codes of a worker that stopped before the time limit, the second without having made any progress."""


class WorkersFailed(RuntimeError):
    """Workers of a task were stopped by errors; the message is one line. What the others did is finished."""


@dataclass(frozen=True)
class Share:
    """What one of several workers works on."""

    number: int
    """From 0."""
    count: int
    """Workers of the task."""
    parts: list[tuple[str, list[int]]]
    """Run folders with shards."""
    job_name: str | None = None
    """Name of the job in Slurm that several runs share."""


def run_side_by_side(parts: Sequence[tuple[str, list[int]]], workers: int, job_name: str | None = None) -> None:
    """Run shards of runs in several workers; each has every `workers`-th shard of each run.

    `job_name` names the job in Slurm that several runs share. Raises WorkersFailed, and OutOfTimeError where the time
    limit came first and the job could not be requeued.
    """
    snapshot.require()
    node_share.take_as_slurm_task()
    shares = _shares(node_share.of_this_task(parts), workers, job_name)
    variables = [node_share.device_variables(share.number, share.count) for share in shares]  # fails before any starts
    with _passing_signals_on() as processes:
        for share, cards in zip(shares, variables, strict=True):
            processes.append(_start(share, cards))
        # A worker that Slurm's signal meets before it can handle it has done nothing yet.
        codes = [_OUT_OF_TIME_AT_ONCE if (code := p.wait()) == -signal.SIGUSR2 else code for p in processes]
    failures = [
        f"worker {share.number} ({_shards(share)}): exit code {code}"
        for share, code in zip(shares, codes, strict=True)
        if code not in (0, _OUT_OF_TIME, _OUT_OF_TIME_AT_ONCE)
    ]
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    if stopped := [code for code in codes if code in (_OUT_OF_TIME, _OUT_OF_TIME_AT_ONCE)]:
        worker.requeue(has_progressed=_OUT_OF_TIME in stopped or 0 in codes)
    if failures:
        raise WorkersFailed(f"{len(failures)} of {len(shares)} workers failed: {'; '.join(failures)}")


def run_share(parts: Sequence[tuple[str, list[int]]], number: int, count: int) -> int:
    """Run shards of runs as one of `count` workers on this machine, in this process; returns how many samples ended."""
    node_share.take(number, count)
    return worker.run_parts(parts)


def main() -> None:
    """Be one of the workers: the only argument is its share as JSON."""
    fields = json.loads(sys.argv[1])
    share = Share(**fields)
    node_share.take_cores(share.number, share.count)
    snapshot.require()
    worker.end_with_launcher()
    parts = [RunPart(folder, shards, share.job_name) for folder, shards in share.parts]
    for part in parts:
        part.kv_bytes = cpu_kv_bytes() // share.count
    one = worker.Worker(parts)
    asyncio.run(one.work_on_all())
    if one.out_of_time:
        sys.exit(_OUT_OF_TIME if one.num_ended + one.num_steps else _OUT_OF_TIME_AT_ONCE)
    one.raise_failures()


def _shares(parts: Sequence[tuple[str, list[int]]], workers: int, job_name: str | None) -> list[Share]:
    """Divide shards; a worker that none is left for is not started, and the others keep their part of the node."""
    divided = [
        [(folder, shards[number::workers]) for folder, shards in parts if shards[number::workers]]
        for number in range(workers)
    ]
    return [Share(number, workers, own, job_name) for number, own in enumerate(divided) if own]


def _start(share: Share, cards: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jobs.work.side_by_side", json.dumps(asdict(share))]
    environment = {
        **os.environ,
        **cards,
        **node_share.port_variables(share.number),
        worker.LAUNCHER_PID: str(os.getpid()),
    }
    seen = next(iter(cards.values()), "none")
    print(f"worker {share.number} of {share.count}: {_shards(share)}, GPUs {seen}", file=sys.stderr, flush=True)
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


def _shards(share: Share) -> str:
    numbers = [shard for _, shards in share.parts for shard in shards]
    return f"{counted(len(numbers), 'shard').partition(' ')[2]} {', '.join(map(str, numbers))}"


@contextlib.contextmanager
def _passing_signals_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Pass signals on to the processes that are put into the list, and end those that are left."""
    processes: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _: object) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
