"""Workers on a node: each runs shards of one or several runs, with many samples at once that its engines batch.

A worker gets run folders and shard numbers, and reads everything else from the folders. It works on one run after the
other, and keeps engines open if the next run needs the same settings. If killed, it loses only the steps in flight;
after a restart, it resumes from the journals.

There are several workers on a node if Slurm starts several tasks of a job there (`ntasks-per-node`), a task starts
several (`--workers-per-task`), or a run on this machine has several shards. Each has its own GPUs and cores. Workers of
a job share its shards: each takes the next free one when it has capacity. A worker without work waits, with its engines
loaded, while others hold shards, and takes over the shards of workers that die.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil

from harness import gpus
from harness.cli.exit_codes import OUT_OF_TIME, OUT_OF_TIME_AT_ONCE
from harness.cli.messages import counted
from harness.engines.pool import EngineNeed, EnginePool
from harness.engines.settings import cpu_kv_bytes
from jobs.run import submissions
from jobs.run import timing as timings
from jobs.run.endings import by_shard, read_endings
from jobs.run.files import RunDamaged
from jobs.run.folder import RunFolder, wait_for_plan
from jobs.slurm import client
from jobs.submission import code_archive
from jobs.watch.exit_reasons import logged, reason_of
from jobs.work.run_part import RunPart, ShardBusyError

__all__ = ["LAUNCHER_PID", "ShardBusyError", "Unfinished", "run_parts", "run_shard"]

LAUNCHER_PID = "HARNESS_LAUNCHER_PID"
"""Environment variable: process id of the launcher; a local worker must end when the launcher does."""

_SHUTDOWN_SECONDS = 60.0
"""Maximum margin between the end of samples and the time limit: Slurm may send its signal up to a minute early."""
_LOOK_SECONDS = 1.0
"""Polling interval of an idle worker for shards of dead workers."""
_MAX_RESTARTS = 100
_REQUEUE_SECONDS = 120.0
"""How long to wait for Slurm to end this process after a requeue."""
_SAVING_SECONDS = 30.0
"""How long to wait for other tasks of the job to save their steps before a requeue."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
_SYSTEM = Path("/sys/devices/system/cpu")
_CARDS = "CUDA_VISIBLE_DEVICES"
_HIDDEN = {"", "-1", "NoDevFiles"}
_T = TypeVar("_T")
Parts = Sequence[tuple[str, list[int]]]
"""Run folders with shard numbers."""


class Unfinished(RuntimeError):
    """Samples are left unfinished; the message is the reason in one line. Finished work is kept."""


def run_shard(folder: str, shard: int) -> int:
    """Run the unfinished samples of one shard; return the number of samples that ended.

    Raises the error that stopped it, after a clean shutdown.
    """
    return run_parts([(folder, [shard])])


def run_parts(parts: Parts, job_name: str | None = None) -> int:
    """Run the unfinished samples of shards of several runs, given by run folder; return how many samples ended.

    Runs are processed one after the other, grouped by shared engines. An error stops only the run that raised it;
    Unfinished is raised after the last run. With a single run, the error itself is raised. `job_name`: the Slurm job
    that the runs share; runs that withdraw from it are skipped. If Slurm starts several tasks per job
    (`ntasks-per-node`), the tasks take free shards.
    """
    end_with_launcher()
    take_as_slurm_task()
    _wait_for_plans(parts)
    number, count = rank()
    worker = Worker([RunPart(*part, job_name, number if count > 1 else None) for part in parts])
    asyncio.run(worker.work_on_all())
    worker.requeue_if_out_of_time()
    worker.raise_failures()
    return worker.num_ended


def run_share(parts: Parts, number: int, count: int) -> int:
    """Run shards as one of `count` workers on this machine, in this process; return how many samples ended."""
    if count > 1:
        os.environ.update(device_variables(number, count))
        take_cores(number, count)
    return run_parts(parts)


def _wait_for_plans(parts: Parts) -> None:
    """In a job, wait until the plans are visible: another machine may have just written them."""
    for folder, _ in parts if client.this_job() else ():
        wait_for_plan(RunFolder(Path(folder)))


class Worker:
    """One start of a worker: its parts of runs, and engines that stay open between them."""

    def __init__(self, parts: Sequence[RunPart]) -> None:
        self.parts = parts
        self.pool = EnginePool()
        self.out_of_time = False
        self.failures: dict[RunPart, Exception] = {}
        self._order: list[RunPart] | None = None

    @property
    def num_ended(self) -> int:
        """Number of samples that ended."""
        return sum(part.num_ended for part in self.parts)

    @property
    def has_progressed(self) -> bool:
        """Whether a step was accepted, or a sample ended or was timed."""
        return any(part.num_steps or part.num_ended or part.num_timed for part in self.parts)

    def in_order(self) -> list[RunPart]:
        """Return the parts in execution order. Engine needs are resolved now, before any engine is open."""
        if self._order is None:
            kv_bytes = cpu_kv_bytes()  # measured once, so all runs have equal settings
            needs: list[list[EngineNeed]] = [[] for _ in self.parts]
            for place, part in enumerate(self.parts):
                part.kv_bytes = kv_bytes if part.kv_bytes is None else part.kv_bytes
                with contextlib.suppress(Exception):  # errors of one run are raised when it starts
                    needs[place] = part.needs
            self._order = [self.parts[place] for place in self.pool.plan(needs)]
        return self._order

    async def work_on_all(self) -> None:
        """Run the unfinished samples of all parts, and close the engines.

        Ends early at Slurm's signal before the time limit, or near the limit.
        """
        with self._until_signals():
            async with self.pool:
                ends_at = _ends_at()
                await self._work_on_each(ends_at)
                # Wait to take over shards of workers that die.
                while not self.out_of_time and any(part.is_held_by_others for part in self._not_failed()):
                    await asyncio.sleep(_LOOK_SECONDS)
                    await self._work_on_each(ends_at)

    async def _work_on_each(self, ends_at: float | None) -> None:
        for number, part in enumerate(self._not_failed()):
            if number and ends_at is not None and time.time() >= ends_at:
                self.out_of_time = True
            if self.out_of_time:
                return
            try:
                await self._work_on(part, ends_at)
            except Exception as error:
                if len(self.parts) == 1:
                    raise
                self.failures[part] = error
                traceback.print_exception(error)
                print(f"{part.run.path.name} failed; the other runs continue", file=sys.stderr, flush=True)

    def _not_failed(self) -> list[RunPart]:
        return [part for part in self.in_order() if part not in self.failures]

    def raise_failures(self) -> None:
        """Raise Unfinished if runs were stopped by errors."""
        if self.failures:
            reasons = "; ".join(f"{part.run.path.name}: {reason_of(error)}" for part, error in self.failures.items())
            message = f"{len(self.failures)} of {len(self.parts)} runs failed: {reasons}"
            raise Unfinished(message) from next(iter(self.failures.values()))

    def requeue_if_out_of_time(self) -> None:
        """Requeue this job if it reached its time limit; raise Unfinished if that is impossible."""
        if self.out_of_time:
            _requeue([(str(part.run.path), part.shards) for part in self.parts], has_progressed=self.has_progressed)

    async def _work_on(self, part: RunPart, ends_at: float | None) -> None:
        try:
            async with part.until_left():
                await part.work(self.pool, ends_at)
        except Exception:
            await self.pool.close()
            raise
        self.out_of_time |= part.is_cut_short

    @contextlib.contextmanager
    def _until_signals(self) -> Iterator[None]:
        """Cancel the current task on a signal to stop; Slurm's signal before the time limit is not an error."""
        task, loop, is_stopping = asyncio.current_task(), asyncio.get_running_loop(), False
        assert task is not None

        def stop(number: int) -> None:
            nonlocal is_stopping
            if not is_stopping:  # a second signal (Slurm and the task may each send one) must not interrupt the cleanup
                is_stopping = True
                self.out_of_time |= number == signal.SIGUSR2
                task.cancel()

        for number in _FORWARDED:
            loop.add_signal_handler(number, stop, number)
        try:
            yield
        except asyncio.CancelledError:
            if not self.out_of_time:
                raise
        finally:
            for number in _FORWARDED:
                loop.remove_signal_handler(number)


class InProcessWorker(Worker):
    """A worker in the launching process: runs parts on request and keeps its engines open.

    Use it as a context manager, which closes the engines.
    """

    def __enter__(self) -> InProcessWorker:
        self._runner = asyncio.Runner()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._runner.run(self.pool.close())
        finally:
            self._runner.close()

    def run(self, part: RunPart) -> int:
        """Run the unfinished samples of a part; return how many ended. Raises the error that stopped the part."""
        if self.out_of_time:
            raise Unfinished("the time limit was reached")
        self._runner.run(self._work_on_one(part))
        self.requeue_if_out_of_time()
        return part.num_ended

    async def _work_on_one(self, part: RunPart) -> None:
        with self._until_signals():
            await self._work_on(part, _ends_at())


def _ends_at() -> float | None:
    """Return the time by which this job's samples should have ended, in seconds since the epoch.

    The job's end minus the time by which Slurm's signal may be early: 60 s, or a tenth of the remaining time if that is
    less. None if no end is known.
    """
    job = client.this_job()
    if job is None:
        return None
    try:
        end = client.end_time(job)
    except client.SlurmError:
        return None  # the signal before the time limit still arrives
    now = time.time()
    return None if end is None else end - min(_SHUTDOWN_SECONDS, 0.1 * max(0.0, end - now))


def _requeue(parts: Parts, *, has_progressed: bool) -> None:
    """Requeue this job if it made progress; raise Unfinished if that is impossible."""
    job = client.this_job()
    if not has_progressed:
        raise Unfinished("the time limit is too short: no step was accepted")
    if job is None or int(os.environ.get("SLURM_RESTART_COUNT", "0")) >= _MAX_RESTARTS:
        why = "this is not a Slurm job" if job is None else f"job {job} was already restarted {_MAX_RESTARTS} times"
        raise Unfinished(f"the time limit was reached, and requeuing is not possible: {why}")
    begun_at = time.monotonic()
    while time.monotonic() - begun_at < _SAVING_SECONDS and any(
        RunFolder(Path(folder)).are_held(shards) for folder, shards in parts
    ):
        time.sleep(_LOOK_SECONDS)  # the requeue ends all tasks of the job
    client.requeue(job)
    time.sleep(_REQUEUE_SECONDS)  # Slurm ends this process
    raise Unfinished(f"job {job} was requeued, but Slurm did not end this process")


def end_with_launcher() -> None:
    """End this worker when its launcher has ended."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None or int(launcher) == os.getpid():
        return

    def watch() -> None:
        while psutil.pid_exists(int(launcher)):
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()


def run_side_by_side(parts: Parts, workers: int, job_name: str | None = None) -> None:
    """Run shards of runs in several workers that take free shards.

    `job_name`: the Slurm job shared by several runs. Raises Unfinished if shards are left, e.g. because the time limit
    was reached and the job could not be requeued.
    """
    take_as_slurm_task()
    _wait_for_plans(parts)
    # With fewer shards than workers, the rest of the node stays idle.
    started = range(min(workers, max(len(shards) for _, shards in parts)))
    cards = [device_variables(number, workers) for number in started]  # fails before any worker starts
    codes = _run_all([{"parts": parts, "number": n, "count": workers, "job_name": job_name} for n in started], cards)
    failures = [
        f"worker {number}: exit code {code}"
        for number, code in enumerate(codes)
        if code not in (0, OUT_OF_TIME, OUT_OF_TIME_AT_ONCE)
    ]
    for failure in failures:
        print(failure, file=sys.stderr, flush=True)
    left = _left(parts, job_name)
    if left and (stopped := [code for code in codes if code in (OUT_OF_TIME, OUT_OF_TIME_AT_ONCE)]):
        _requeue(parts, has_progressed=OUT_OF_TIME in stopped or 0 in codes)
    if left:
        why = f": {'; '.join(failures)}" if failures else "; other processes may hold the remaining shards"
        raise Unfinished(f"{len(failures)} of {counted(len(codes), 'worker')} failed{why}; unfinished: {left}")
    if failures:
        print("the other workers finished the samples of the failed workers", file=sys.stderr, flush=True)


def main() -> None:
    """Entry point of a worker process, whose only argument describes its work as JSON."""
    code_archive.require()
    end_with_launcher()
    with logged():
        _run_share_of_task(**json.loads(sys.argv[1]))


def _run_share_of_task(parts: Parts, number: int, count: int, job_name: str | None) -> None:
    """Run shards shared by all workers of a task, as worker `number` of `count`."""
    take_cores(number, count)
    worker = Worker([RunPart(*part, job_name, rank()[0] * count + number) for part in parts])
    for part in worker.parts:
        part.kv_bytes = cpu_kv_bytes() // count
    asyncio.run(worker.work_on_all())
    if worker.out_of_time:
        sys.exit(OUT_OF_TIME if worker.has_progressed else OUT_OF_TIME_AT_ONCE)
    worker.raise_failures()


def _run_all(shares: Sequence[dict[str, Any]], variables: Sequence[dict[str, str]]) -> list[int]:
    """Start the workers, each with its GPUs, and wait for all of them; return their exit codes."""
    with _passing_signals_on() as processes:
        for share, cards in zip(shares, variables, strict=True):
            command = [sys.executable, "-m", "jobs.work.worker", json.dumps(share)]
            environment = {**os.environ, **cards, LAUNCHER_PID: str(os.getpid())}
            seen = next(iter(cards.values()), "none")
            print(f"worker {share['number']} of {share['count']}: GPUs {seen}", file=sys.stderr, flush=True)
            processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        # Workers that receive Slurm's signal before they can handle it have done nothing yet.
        return [OUT_OF_TIME_AT_ONCE if (code := p.wait()) == -signal.SIGUSR2 else code for p in processes]


def _left(parts: Parts, job_name: str | None) -> str:
    """List the unfinished shards, except those of runs withdrawn from the shared job; empty if there are none."""
    left = []
    for folder, shards in parts:
        run, unfinished = RunFolder(Path(folder)), shards
        with contextlib.suppress(RunDamaged, OSError):  # reported by its workers
            ended = by_shard(run, read_endings(run))
            unfinished = [shard for shard in shards if ended.finished[shard] < ended.planned[shard]]
            if not ended.num_unfinished and ended.timing.left and not timings.is_at_work(run):
                unfinished = shards[:1]
            if job_name in submissions.left(run):
                unfinished = []
        if unfinished:
            numbers = f"{counted(len(unfinished), 'shard').partition(' ')[2]} {', '.join(map(str, unfinished))}"
            left.append(numbers + (f" of {run.path.name}" if len(parts) > 1 else ""))
    return ", ".join(left)


@contextlib.contextmanager
def _passing_signals_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Forward signals to the processes in the yielded list, and kill remaining ones on exit."""
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


def share(items: Sequence[_T], number: int, count: int) -> list[_T]:
    """Return the items of worker `number` (from 0): one of `count` groups of adjacent items, all of equal size.

    Leftover items are in no group. With fewer items than workers, all groups are empty.
    """
    size = len(items) // count
    return list(items[number * size : (number + 1) * size])


def device_variables(number: int, count: int) -> dict[str, str]:
    """Return the variable that makes only one worker's GPUs visible; empty if this process has no GPU.

    Raises ValueError if there are fewer GPUs than workers.
    """
    cards = os.environ[_CARDS].split(",") if _CARDS in os.environ else gpus.visible_names()
    if not cards or cards[0] in _HIDDEN:
        return {}
    if len(cards) < count:
        raise ValueError(f"{counted(len(cards), 'GPU')} cannot be divided among {count} workers on one node")
    return {_CARDS: ",".join(share(cards, number, count))}


def take_cores(number: int, count: int) -> None:
    """Bind this process and its children to one worker's cores, if there are enough cores."""
    cores = share(in_order_of_place(os.sched_getaffinity(0)), number, count)
    if cores:
        os.sched_setaffinity(0, cores)


def in_order_of_place(cores: Iterable[int], system: Path = _SYSTEM) -> list[int]:
    """Return cores ordered by processor, with the threads of a core adjacent, as far as known.

    Linux numbers the second threads of all cores after the first ones. In numeric order, later workers would get second
    threads of earlier workers' cores, often on a different processor from their GPUs.
    """

    def place(core: int) -> tuple[int, int, int]:
        topology = system / f"cpu{core}" / "topology"
        try:
            package, own = ((topology / name).read_text() for name in ("physical_package_id", "core_id"))
            return int(package), int(own), core
        except (OSError, ValueError):
            return 0, 0, core

    return sorted(cores, key=place)


def take_as_slurm_task(environment: Mapping[str, str] = os.environ) -> None:
    """Use only this Slurm task's share of the node's GPUs, unless Slurm has already assigned GPUs per task."""
    own = {"SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"} & environment.keys()
    here = environment.get("SLURM_STEP_TASKS_PER_NODE", "1").partition(",")[0].partition("(")[0]  # `4`, `2(x3)`
    count = int(here) if here.isdigit() else 1
    if count > 1 and not own and "SLURM_LOCALID" in environment:
        os.environ.update(device_variables(int(environment["SLURM_LOCALID"]), count))


def rank() -> tuple[int, int]:
    """Return this process's rank and the number of tasks in its Slurm job step; 0 and 1 outside of Slurm."""
    number, count = os.environ.get("SLURM_PROCID", ""), os.environ.get("SLURM_STEP_NUM_TASKS", "")
    if not (number.isdigit() and count.isdigit()):
        return 0, 1
    return int(number), int(count)


if __name__ == "__main__":
    main()
