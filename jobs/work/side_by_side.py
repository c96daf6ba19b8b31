"""Several workers in one task of Slurm, each in a process of its own with its own cards and cores.

They have the task's shards in common: each takes the next free one when it has room for it, so that a fast worker does
more of them. A worker that has nothing left waits while others are at work, with its engines loaded, and takes what
those leave that die. The task waits for all of them, and fails where something is left unfinished; the run can be
resumed. Signals are passed on, so that before the time limit every worker saves its steps, and the task requeues itself
once.
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
from pathlib import Path

from harness.engines.settings import cpu_kv_bytes
from harness.plural import counted
from jobs.run import submissions
from jobs.run.endings import by_shard, read_endings
from jobs.run.folder import RunDamaged, RunFolder
from jobs.submission import code_archive
from jobs.timing import folder as timings
from jobs.work import neighbors, node_share, worker
from jobs.work.neighbors import Neighbors
from jobs.work.run_part import RunPart

_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
_OUT_OF_TIME, _OUT_OF_TIME_AT_ONCE = 75, 76
"""Exit codes of a worker that stopped before the time limit, the second without having made any progress."""


class WorkersFailed(RuntimeError):
    """Shards of a task were left unfinished; the message is one line. What was done of them is kept."""


@dataclass(frozen=True)
class Share:
    """What one of several workers has."""

    number: int
    """The worker's number within its task, from 0."""
    count: int
    """Number of workers that the node is divided among."""
    parts: list[tuple[str, list[int]]]
    """Run folders with the shards that all workers have in common."""
    descriptor: int
    """The file in memory by which workers see whether others are at work (jobs.work.neighbors)."""
    job_name: str | None = None
    """Name of the job in Slurm that several runs share."""


def run_side_by_side(parts: Sequence[tuple[str, list[int]]], workers: int, job_name: str | None = None) -> None:
    """Run shards of runs in several workers, which take them as they are free.

    `job_name` names the job in Slurm that several runs share. Raises WorkersFailed, and OutOfTimeError where the time
    limit came first and the job could not be requeued.
    """
    node_share.take_as_slurm_task()
    own = node_share.of_this_task(parts)
    worker.wait_for_plans(folder for folder, _ in own)
    with neighbors.file_in_memory() as descriptor:
        # With fewer shards than workers the rest of the node stays idle; each worker keeps its part of it.
        started = range(min(workers, max((len(shards) for _, shards in own), default=0)))
        shares = [Share(number, workers, own, descriptor, job_name) for number in started]
        variables = [node_share.device_variables(number, workers) for number in started]  # fails before any starts
        codes = _run_all(shares, variables)
    failures = [
        f"worker {number}: exit code {code}"
        for number, code in enumerate(codes)
        if code not in (0, _OUT_OF_TIME, _OUT_OF_TIME_AT_ONCE)
    ]
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    left = _left(own, job_name)
    if left and (stopped := [code for code in codes if code in (_OUT_OF_TIME, _OUT_OF_TIME_AT_ONCE)]):
        worker.requeue(has_progressed=_OUT_OF_TIME in stopped or 0 in codes)
    if left:
        why = f": {'; '.join(failures)}" if failures else ", and other processes may hold what is left"
        raise WorkersFailed(f"{len(failures)} of {counted(len(shares), 'worker')} failed{why}; unfinished: {left}")
    if failures:
        print("the other workers have finished what these had taken", file=sys.stderr, flush=True)


def run_share(parts: Sequence[tuple[str, list[int]]], number: int, count: int) -> int:
    """Run shards of runs as one of `count` workers on this machine, in this process; returns how many samples ended."""
    node_share.take(number, count)
    return worker.run_parts(parts)


def main() -> None:
    """Be one of the workers: the only argument is its share as JSON."""
    fields = json.loads(sys.argv[1])
    share = Share(**fields)
    others = Neighbors(share.descriptor, share.number, share.count)
    others.begin()
    node_share.take_cores(share.number, share.count)
    code_archive.require()
    worker.end_with_launcher()
    parts = [RunPart(folder, shards, share.job_name) for folder, shards in share.parts]
    for part in parts:
        part.kv_bytes = cpu_kv_bytes() // share.count
        part.take_freely(share.number, others)
    one = worker.Worker(parts, others)
    asyncio.run(one.work_on_all())
    if one.out_of_time:
        sys.exit(_OUT_OF_TIME if one.num_progress else _OUT_OF_TIME_AT_ONCE)
    one.raise_failures()


def _run_all(shares: Sequence[Share], variables: Sequence[dict[str, str]]) -> list[int]:
    """Start the workers, each with its cards, and wait for all of them; returns their exit codes."""
    with _passing_signals_on() as processes:
        for share, cards in zip(shares, variables, strict=True):
            processes.append(_start(share, cards))
        # A worker that Slurm's signal meets before it can handle it has done nothing yet.
        return [_OUT_OF_TIME_AT_ONCE if (code := p.wait()) == -signal.SIGUSR2 else code for p in processes]


def _start(share: Share, cards: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "jobs.work.side_by_side", json.dumps(asdict(share))]
    environment = {
        **os.environ,
        **cards,
        worker.LAUNCHER_PID: str(os.getpid()),
    }
    seen = next(iter(cards.values()), "none")
    print(f"worker {share.number} of {share.count}: GPUs {seen}", file=sys.stderr, flush=True)
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, pass_fds=[share.descriptor])


def _left(parts: Sequence[tuple[str, list[int]]], job_name: str | None) -> str:
    """Return in words which shards are unfinished in runs that have not left the job; empty where none is."""
    left = []
    for folder, shards in parts:
        run = RunFolder(Path(folder))
        try:
            unfinished = [] if job_name in submissions.left(run) else _unfinished(run, shards)
        except (RunDamaged, OSError):  # its workers have said why
            unfinished = shards
        if unfinished:
            left.append(_named(unfinished) + (f" of {run.path.name}" if len(parts) > 1 else ""))
    return ", ".join(left)


def _unfinished(run: RunFolder, shards: Sequence[int]) -> list[int]:
    ended = by_shard(run, read_endings(run))
    left = [shard for shard in shards if ended.finished[shard] < ended.planned[shard]]
    if not left and not ended.num_unfinished and ended.num_untimed and not timings.is_at_work(run):
        return list(shards[:1])
    return left


def _named(shards: Sequence[int]) -> str:
    return f"{counted(len(shards), 'shard').partition(' ')[2]} {', '.join(map(str, shards))}"


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
