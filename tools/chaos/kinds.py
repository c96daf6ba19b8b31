"""The kinds of disturbances. A disturbance acts once and returns whether it found a target."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import psutil

from jobs.run import submissions
from jobs.slurm import client
from tools.chaos.disturbed_run import DisturbedRun, make_shared

Strike = Callable[[DisturbedRun, random.Random], bool]
_STOP_SECONDS = (0.2, 3.0)
_FULL_SECONDS = (0.2, 2.0)
_COMMAND_SECONDS = (0.3, 5.0)
"""Range of the processor time after which a command is killed. A wall time would kill commands on a busy machine before
they do any work.
"""
_LONGEST_SECONDS = 30.0
"""Wall time after which a command is killed even if it has used less processor time, because it only waits."""
_GRADER_SECONDS = (0.0, 0.3)
_JOB_SECONDS = 60.0
"""Wall time within which a job that grades or judges must start; such a job waits for the jobs that run samples."""
_CLOCK_SECONDS = 7200
LOCAL_CLUSTER = Path(__file__).resolve().parents[2] / "slurm" / "local-cluster"


def _signal_worker(number: signal.Signals) -> Strike:
    def strike(disturbed: DisturbedRun, dice: random.Random) -> bool:
        if workers := disturbed.workers():
            with contextlib.suppress(psutil.Error):
                dice.choice(workers).send_signal(number)
                return True
        return False

    return strike


def _all_workers(disturbed: DisturbedRun, _: random.Random) -> bool:
    workers = disturbed.workers()
    for worker in workers:
        with contextlib.suppress(psutil.Error):
            worker.kill()
    return bool(workers)


def _stop(processes: Callable[[DisturbedRun], list[psutil.Process]]) -> Strike:
    def strike(disturbed: DisturbedRun, dice: random.Random) -> bool:
        if not (found := processes(disturbed)):
            return False
        process = dice.choice(found)
        with contextlib.suppress(psutil.Error):
            process.suspend()
            time.sleep(dice.uniform(*_STOP_SECONDS))
            process.resume()
        return True

    return strike


def _engines(disturbed: DisturbedRun) -> list[psutil.Process]:
    """Return the processes of engines; scripted engines have none."""
    children = []
    for worker in disturbed.workers():
        with contextlib.suppress(psutil.Error):
            children += [child for child in worker.children(recursive=True) if "VLLM" in child.name()]
    return children


def _kill_engine(disturbed: DisturbedRun, dice: random.Random) -> bool:
    engines = _engines(disturbed)
    if engines:
        with contextlib.suppress(psutil.Error):
            dice.choice(engines).kill()
    return bool(engines)


def _step_clock(disturbed: DisturbedRun, dice: random.Random) -> bool:
    disturbed.control.set(dice.randint(-_CLOCK_SECONDS, _CLOCK_SECONDS), is_full=False)
    return True


def _fill_disk(disturbed: DisturbedRun, dice: random.Random) -> bool:
    if not disturbed.workers():
        return False
    disturbed.control.set(disturbed.control.clock_seconds, is_full=True)
    time.sleep(dice.uniform(*_FULL_SECONDS))
    disturbed.control.set(disturbed.control.clock_seconds, is_full=False)
    return True


def _truncate(ending: str) -> Strike:
    def strike(disturbed: DisturbedRun, dice: random.Random) -> bool:
        run = disturbed.run
        files = [] if run is None else run.journals() if ending == ".jsonl" else run.trace_files()
        for path in dice.sample(files, len(files)):
            with contextlib.suppress(FileNotFoundError):
                if size := path.stat().st_size:
                    os.truncate(path, max(0, size - dice.randint(1, min(size, 2000))))
                    return True
        return False

    return strike


def _kill_command(*command: str) -> Strike:
    """Return a disturbance that starts a command on the run and kills it after a while."""

    def strike(disturbed: DisturbedRun, dice: random.Random) -> bool:
        if disturbed.run is None:
            return False
        return not _kill_after(disturbed.start(*command, str(disturbed.run.path)), dice)

    return strike


def _kill_after(started: subprocess.Popen[bytes], dice: random.Random) -> bool:
    """Kill a command after a while; return whether it had already ended by itself."""
    processor_seconds, deadline = dice.uniform(*_COMMAND_SECONDS), time.monotonic() + _LONGEST_SECONDS
    while started.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psutil.Error):
            if sum(psutil.Process(started.pid).cpu_times()) > processor_seconds:
                break
        time.sleep(0.05)
    has_ended = started.poll() is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    return has_ended


def _kill_launcher(disturbed: DisturbedRun, dice: random.Random) -> bool:
    if disturbed.on_slurm:
        return not _kill_after(disturbed.launch(), dice)
    launcher = disturbed.launcher()
    if launcher is not None:
        os.kill(launcher.pid, signal.SIGKILL)
        launcher.wait()
    return launcher is not None


def _kill_grader(disturbed: DisturbedRun, dice: random.Random) -> bool:
    """Grade the run from the beginning, kill one of the grader's processes, and let the command end."""
    if disturbed.run is None:
        return False
    for path in disturbed.run.derived("grades"):
        path.unlink(missing_ok=True)
    command = disturbed.start("jobs", "finalize", str(disturbed.run.path))
    struck = False
    while command.poll() is None and not struck:
        with contextlib.suppress(psutil.Error):
            found = psutil.Process(command.pid).children(recursive=True)
            graders = [child for child in found if "forkserver" in " ".join(child.cmdline())]
            if graders:
                time.sleep(dice.uniform(*_GRADER_SECONDS))
                dice.choice(graders).kill()
                struck = True
        time.sleep(0.02)
    disturbed.wait(command, may_be_incomplete=True)
    return struck


def _kill_beside(kind: str) -> Strike:
    """Return a disturbance that kills a command which launches, resumes, grades or judges several runs on this machine.
    These runs are not part of the rounds.
    """

    def strike(disturbed: DisturbedRun, dice: random.Random) -> bool:
        folder = beside(disturbed.folder.parent, kind, disturbed.users)
        has_ended = _kill_after(disturbed.start(*command_beside(folder)), dice)
        if has_ended:
            (folder / ENDED).touch()
        return not has_ended

    return strike


NIGHT = "2026-01-01"
ENDED = "ended"
"""File in a folder of runs outside the rounds. It records that these runs have ended, so the next disturbance uses a
new folder.
"""
_CLUSTERS = {"suite": "local", "night": "debug", "slurm-night": "slurm"}
"""Value of `--cluster` for the runs outside the rounds, by kind."""


def beside(folder: Path, kind: str, users: Sequence[int] = ()) -> Path:
    """Return the folder with unfinished runs of a kind, outside the rounds; create it if there is none."""
    numbers = itertools.count()
    path = next(path for number in numbers if not ((path := folder / f"{kind}-{number}") / ENDED).exists())
    if not path.exists():
        make_shared(path, users)
        runs = '[[run]]\nmethod = "vanilla"\n[[run]]\nmethod = "speccot"\ndrafts = 2\n'
        cluster = _CLUSTERS[kind]
        settings = {"output": str(path / "runs"), "engine": "scripted", "cluster": cluster, "dataset": "demo"}
        settings |= {"mem": "2G"} if cluster == "slurm" else {}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in settings.items()]
        (path / "chaos.toml").write_text("".join([*lines, "samples = 1\nlimit = 10\n", runs]))
    return path


def command_beside(folder: Path) -> tuple[str, ...]:
    """Return the command that launches or resumes the runs of a folder outside the rounds."""
    suite = str(folder / "chaos.toml")
    if folder.name.startswith("suite"):
        return "jobs", "suite", suite
    return "jobs", "nightly", "--suite", suite, "--date", NIGHT


def _kill_verdict_job(disturbed: DisturbedRun, _: random.Random) -> bool:
    """Kill the job that judges a night on Slurm; launch one if none is running."""
    folder = beside(disturbed.folder.parent, "slurm-night", disturbed.users)
    record = folder / "runs" / "nights" / f"{NIGHT}.jsonl"
    if record.exists() and '"concluded"' in record.read_text():
        (folder / ENDED).touch()
        folder = beside(disturbed.folder.parent, "slurm-night", disturbed.users)
    if not client.queue([f"chaos.{NIGHT}.verdict"]):
        disturbed.wait(disturbed.start(*command_beside(folder)))
    return _kill_job({f"chaos.{NIGHT}.verdict"})


def _kill_job(names: Collection[str]) -> bool:
    """Kill a process of a job with one of these names. If no such job is running, kill the first that starts within a
    minute.
    """
    deadline = time.monotonic() + _JOB_SECONDS
    while time.monotonic() < deadline:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.name().startswith("python") and process.environ().get("SLURM_JOB_NAME") in names:
                    process.kill()
                    return True
        time.sleep(0.2)
    return False


def _of_task(*command: str) -> Strike:
    def strike(disturbed: DisturbedRun, dice: random.Random) -> bool:
        running = [task for task in disturbed.tasks() if task.state == "RUNNING"]
        with contextlib.suppress(client.SlurmError):
            if running:
                client.ask(*command, dice.choice(running).job_id)
                return True
        return False

    return strike


def _suspend(disturbed: DisturbedRun, dice: random.Random) -> bool:
    running = [task for task in disturbed.tasks() if task.state == "RUNNING"]
    if not running:
        return False
    task = dice.choice(running)
    with contextlib.suppress(client.SlurmError):
        client.ask("scontrol", "suspend", task.job_id)
    time.sleep(dice.uniform(*_STOP_SECONDS))
    with contextlib.suppress(client.SlurmError):
        client.ask("scontrol", "resume", task.job_id)
    return True


def _cancel_array(disturbed: DisturbedRun, _: random.Random) -> bool:
    """Cancel whole arrays by name, but not grading jobs."""
    tasks = disturbed.tasks()
    with contextlib.suppress(client.SlurmError):
        client.cancel(sorted({task.name for task in tasks}))
    return bool(tasks)


def _kill_finalizer_job(disturbed: DisturbedRun, _: random.Random) -> bool:
    if disturbed.run is None:
        return False
    names = {submissions.finalizer_name(submission.name) for submission in submissions.read(disturbed.run)}
    return _kill_job(names)


def _local_cluster(*arguments: str) -> None:
    command = [str(LOCAL_CLUSTER), "--folder", str(Path(os.environ["SLURM_CONF"]).parent), *arguments]
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(command, check=True, capture_output=True, timeout=180, env=environment)


def _kill_daemon(daemon: str) -> Strike:
    def strike(_: DisturbedRun, __: random.Random) -> bool:
        pid = int((Path(os.environ["SLURM_CONF"]).parent / "run" / f"{daemon}.pid").read_text())
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        _local_cluster("up")
        return True

    return strike


def _kill_node(disturbed: DisturbedRun, dice: random.Random) -> bool:
    nodes = [task.node for task in disturbed.tasks() if task.state == "RUNNING" and task.node]
    if nodes:
        node = dice.choice(nodes)
        _local_cluster("kill-node", node)
        time.sleep(1)
        _local_cluster("start-node", node)
    return bool(nodes)


EVERYWHERE: Mapping[str, Strike] = {
    "worker, SIGKILL": _signal_worker(signal.SIGKILL),
    "worker, SIGTERM": _signal_worker(signal.SIGTERM),
    "worker, SIGINT": _signal_worker(signal.SIGINT),
    "all workers, SIGKILL": _all_workers,
    "worker, SIGSTOP and SIGCONT": _stop(DisturbedRun.workers),
    "engine, SIGKILL": _kill_engine,
    "engine, SIGSTOP and SIGCONT": _stop(_engines),
    "clock step": _step_clock,
    "disk full": _fill_disk,
    "journal truncated": _truncate(".jsonl"),
    "trace file truncated": _truncate(".parquet"),
    "launcher": _kill_launcher,
    "jobs finalize": _kill_command("jobs", "finalize"),
    "loader": _kill_command("warehouse.load"),
    "grader process": _kill_grader,
    "suite": _kill_beside("suite"),
    "night and its verdict": _kill_beside("night"),
}
"""Disturbances by name, for runs on this machine and on the local cluster."""
ON_SLURM: Mapping[str, Strike] = {
    "scancel of a task": _of_task("scancel"),
    "scancel of the array": _cancel_array,
    "requeue": _of_task("scontrol", "requeue"),
    "suspend and resume": _suspend,
    "job that grades": _kill_finalizer_job,
    "verdict's job": _kill_verdict_job,
    "slurmctld": _kill_daemon("slurmctld"),
    "slurmdbd": _kill_daemon("slurmdbd"),
    "node": _kill_node,
}
"""Further disturbances by name, only for the local cluster."""
