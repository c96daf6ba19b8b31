"""The workers of a node: shards of one run, or of several. Plain asyncio over many samples; the engines batch them.

A worker gets the paths of run folders and shard numbers, and reads everything else there. It works on one run after the
other, and engines that the next run would start with the same settings stay open. Killed at any moment, it loses only
the steps in flight; started again, it resumes from the journals.

Several workers are on a node where Slurm starts several tasks of a job there (`ntasks-per-node`), where a task starts
several (`--workers-per-task`), and on this machine where a run has several shards. Each has cards and cores of its own.
Those of a job have its shards in common: each takes the next free one when it has room for it. One that has nothing
left waits, with its engines loaded, as long as others hold shards, and takes what those leave that die.
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
"""Environment variable: the process that the worker must not outlive, because it started it (local runs)."""

_SHUTDOWN_SECONDS = 60.0
"""Time before a long limit after which no sample is started: Slurm may send its signal up to a minute early."""
_LOOK_SECONDS = 1.0
"""Time between two looks of a worker without work whether another one has died and left some."""
_MAX_RESTARTS = 100
_REQUEUE_SECONDS = 120.0
"""How long to wait for Slurm to end this process after a requeue."""
_SAVING_SECONDS = 30.0
"""How long to wait for other tasks of the job, which save their steps, before it is requeued."""
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)
_SYSTEM = Path("/sys/devices/system/cpu")
_CARDS = "CUDA_VISIBLE_DEVICES"
_HIDDEN = {"", "-1", "NoDevFiles"}
_T = TypeVar("_T")
Parts = Sequence[tuple[str, list[int]]]
"""Run folders with numbers of shards."""


class Unfinished(RuntimeError):
    """Samples are left unfinished; the message is one line that says why. What was done is kept."""


def run_shard(folder: str, shard: int) -> int:
    """Run the unfinished samples of one shard; returns the number of samples that ended.

    Raises the error that stopped it, after a clean shutdown.
    """
    return run_parts([(folder, [shard])])


def run_parts(parts: Parts, job_name: str | None = None) -> int:
    """Run the unfinished samples of shards of several runs, given by run folder; returns how many samples ended.

    The runs are worked on one after the other, those that can share engines together. An error stops only the run that
    it comes from; Unfinished is raised after the last. A single run raises its error itself. `job_name` names the job
    in Slurm that the runs share: one that leaves it is passed over. Where Slurm starts several tasks for one job
    (`ntasks-per-node`), they take the shards as they are free.
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
    """Run shards of runs as one of `count` workers on this machine, in this process; returns how many samples ended."""
    if count > 1:
        os.environ.update(device_variables(number, count))
        take_cores(number, count)
    return run_parts(parts)


def _wait_for_plans(parts: Parts) -> None:
    """Wait in a job until it sees the plans, which another machine may have written a moment ago."""
    for folder, _ in parts if client.this_job() else ():
        wait_for_plan(RunFolder(Path(folder)))


class Worker:
    """One start of a worker: its parts of runs, and the engines that stay open between them."""

    def __init__(self, parts: Sequence[RunPart]) -> None:
        """Nothing is read or started yet."""
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
        """Return the parts in the order of work. What each needs is resolved now, before any engine is open."""
        if self._order is None:
            kv_bytes = cpu_kv_bytes()  # free memory changes from moment to moment; runs are to have equal settings
            for part in self.parts:
                part.kv_bytes = kv_bytes if part.kv_bytes is None else part.kv_bytes
            needs: list[list[EngineNeed]] = [[] for _ in self.parts]
            for place, part in enumerate(self.parts):
                with contextlib.suppress(Exception):  # what is wrong with one run is raised when its turn comes
                    needs[place] = part.needs
            self._order = [self.parts[place] for place in self.pool.plan(needs)]
        return self._order

    async def work_on_all(self) -> None:
        """Run what is unfinished of all parts, and close the engines.

        Ends early where Slurm's signal before the time limit arrives, or that limit is near.
        """
        with self._until_signals():
            async with self.pool:
                ends_at = _ends_at()
                await self._work_on_each(ends_at)
                # Others are at work on what this worker would take if they died.
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
                print(f"{part.run.path.name} stopped with an error; the other runs go on", file=sys.stderr, flush=True)

    def _not_failed(self) -> list[RunPart]:
        return [part for part in self.in_order() if part not in self.failures]

    def raise_failures(self) -> None:
        """Raise Unfinished where runs were stopped by errors."""
        if self.failures:
            reasons = "; ".join(f"{part.run.path.name}: {reason_of(error)}" for part, error in self.failures.items())
            message = f"{len(self.failures)} of {len(self.parts)} runs failed: {reasons}"
            raise Unfinished(message) from next(iter(self.failures.values()))

    def requeue_if_out_of_time(self) -> None:
        """Requeue this job where the time limit came first; raises Unfinished where that cannot be done."""
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
        """Cancel what this task does when a signal asks for the end; before the time limit that is no error."""
        task, loop, is_stopping = asyncio.current_task(), asyncio.get_running_loop(), False
        assert task is not None

        def stop(number: int) -> None:
            nonlocal is_stopping
            if not is_stopping:  # Slurm and the task may both send a signal; a second one would break off the clean-up
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
    """A worker in the process that launches several runs: it works on one when asked, and its engines stay open.

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
        """Run what is unfinished of a part; returns how many samples ended. Raises the error that stopped it."""
        if self.out_of_time:
            raise Unfinished("the time limit was reached")
        self._runner.run(self._work_on_one(part))
        self.requeue_if_out_of_time()
        return part.num_ended

    async def _work_on_one(self, part: RunPart) -> None:
        with self._until_signals():
            await self._work_on(part, _ends_at())


def _ends_at() -> float | None:
    """Return when this job should start no more samples, in seconds since the epoch.

    That is its time limit less the time by which Slurm's signal may come early; None where there is no limit, or none
    that is known.
    """
    job = client.this_job()
    if job is None:
        return None
    try:
        end = client.end_time(job)
    except client.SlurmError:
        return None  # the signal before the end still comes
    now = time.time()
    return None if end is None else end - min(_SHUTDOWN_SECONDS, 0.1 * max(0.0, end - now))


def _requeue(parts: Parts, *, has_progressed: bool) -> None:
    """Requeue this job, as often as it makes progress; raises Unfinished where that cannot be done."""
    job = client.this_job()
    if not has_progressed:
        raise Unfinished("the time limit was reached before a single step was accepted: it is too short")
    if job is None or int(os.environ.get("SLURM_RESTART_COUNT", "0")) >= _MAX_RESTARTS:
        raise Unfinished(
            f"the time limit was reached, and this is not a Slurm job or was restarted {_MAX_RESTARTS} times"
        )
    begun_at = time.monotonic()
    while time.monotonic() - begun_at < _SAVING_SECONDS and any(
        RunFolder(Path(folder)).are_held(shards) for folder, shards in parts
    ):
        time.sleep(_LOOK_SECONDS)  # the requeue ends all tasks of the job
    client.requeue(job)
    time.sleep(_REQUEUE_SECONDS)  # Slurm ends this process
    raise Unfinished(f"job {job} was requeued, but Slurm did not end this process")


def end_with_launcher() -> None:
    """End this worker when the launcher that it must not outlive has ended."""
    launcher = os.environ.get(LAUNCHER_PID)
    if launcher is None or int(launcher) == os.getpid():
        return

    def watch() -> None:
        while psutil.pid_exists(int(launcher)):
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="launcher-watch", daemon=True).start()


def run_side_by_side(parts: Parts, workers: int, job_name: str | None = None) -> None:
    """Run shards of runs in several workers, which take them as they are free.

    `job_name` names the job in Slurm that several runs share. Raises Unfinished, also where the time
    limit came first and the job could not be requeued.
    """
    take_as_slurm_task()
    _wait_for_plans(parts)
    # With fewer shards than workers the rest of the node stays idle; each worker keeps its part of it.
    started = range(min(workers, max(len(shards) for _, shards in parts)))
    cards = [device_variables(number, workers) for number in started]  # fails before any starts
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
        why = f": {'; '.join(failures)}" if failures else ", and other processes may hold what is left"
        raise Unfinished(f"{len(failures)} of {counted(len(codes), 'worker')} failed{why}; unfinished: {left}")
    if failures:
        print("the other workers have finished what these had taken", file=sys.stderr, flush=True)


def main() -> None:
    """Be one of the workers: the only argument describes it as JSON."""
    code_archive.require()
    end_with_launcher()
    with logged():
        _run_share_of_task(**json.loads(sys.argv[1]))


def _run_share_of_task(parts: Parts, number: int, count: int, job_name: str | None) -> None:
    """Run shards that all workers of a task have in common, as worker `number` of `count`."""
    take_cores(number, count)
    worker = Worker([RunPart(*part, job_name, rank()[0] * count + number) for part in parts])
    for part in worker.parts:
        part.kv_bytes = cpu_kv_bytes() // count
    asyncio.run(worker.work_on_all())
    if worker.out_of_time:
        sys.exit(OUT_OF_TIME if worker.has_progressed else OUT_OF_TIME_AT_ONCE)
    worker.raise_failures()


def _run_all(shares: Sequence[dict[str, Any]], variables: Sequence[dict[str, str]]) -> list[int]:
    """Start the workers, each with its cards, and wait for all of them; returns their exit codes."""
    with _passing_signals_on() as processes:
        for share, cards in zip(shares, variables, strict=True):
            command = [sys.executable, "-m", "jobs.work.worker", json.dumps(share)]
            environment = {**os.environ, **cards, LAUNCHER_PID: str(os.getpid())}
            seen = next(iter(cards.values()), "none")
            print(f"worker {share['number']} of {share['count']}: GPUs {seen}", file=sys.stderr, flush=True)
            processes.append(subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL))
        # A worker that Slurm's signal meets before it can handle it has done nothing yet.
        return [OUT_OF_TIME_AT_ONCE if (code := p.wait()) == -signal.SIGUSR2 else code for p in processes]


def _left(parts: Parts, job_name: str | None) -> str:
    """Return in words which shards are unfinished in runs that have not left the job; empty where none is."""
    left = []
    for folder, shards in parts:
        run, unfinished = RunFolder(Path(folder)), shards
        with contextlib.suppress(RunDamaged, OSError):  # its workers have said why
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


def share(items: Sequence[_T], number: int, count: int) -> list[_T]:
    """Return the items of worker `number` (from 0) of `count`, in adjacent groups of equal size; the rest is no one's.

    With fewer items than workers there is no group for each.
    """
    size = len(items) // count
    return list(items[number * size : (number + 1) * size])


def device_variables(number: int, count: int) -> dict[str, str]:
    """Return the variable that makes only one worker's cards visible; none where this process sees no card.

    Raises ValueError where there are fewer cards than workers.
    """
    cards = os.environ[_CARDS].split(",") if _CARDS in os.environ else gpus.visible_names()
    if not cards or cards[0] in _HIDDEN:
        return {}
    if len(cards) < count:
        raise ValueError(f"{counted(len(cards), 'GPU')} cannot be divided among {count} workers on one node")
    return {_CARDS: ",".join(share(cards, number, count))}


def take_cores(number: int, count: int) -> None:
    """Bind this process, and those that it will start, to one worker's cores; where there are enough cores."""
    cores = share(in_order_of_place(os.sched_getaffinity(0)), number, count)
    if cores:
        os.sched_setaffinity(0, cores)


def in_order_of_place(cores: Iterable[int], system: Path = _SYSTEM) -> list[int]:
    """Return cores by processor, with the threads of a core side by side, as far as the system tells.

    Linux numbers the second threads of all cores after the first ones. By numbers, a later worker would get second
    threads of an earlier one's cores, often on the other processor than its cards.
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
    """Take the share of one of several Slurm tasks on this node, unless Slurm itself has given each its cards."""
    own = {"SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU"} & environment.keys()
    here = environment.get("SLURM_STEP_TASKS_PER_NODE", "1").partition(",")[0].partition("(")[0]  # `4`, `2(x3)`
    count = int(here) if here.isdigit() else 1
    if count > 1 and not own and "SLURM_LOCALID" in environment:
        os.environ.update(device_variables(int(environment["SLURM_LOCALID"]), count))


def rank() -> tuple[int, int]:
    """Return this process's number among the tasks of its Slurm job step, and their number; 0 and 1 elsewhere."""
    number, count = os.environ.get("SLURM_PROCID", ""), os.environ.get("SLURM_STEP_NUM_TASKS", "")
    if not (number.isdigit() and count.isdigit()):
        return 0, 1
    return int(number), int(count)


if __name__ == "__main__":
    main()
