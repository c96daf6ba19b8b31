"""Checks of the acceptance that interrupt real runs: workers and engines are killed, and nothing may stay or be lost.

`harness.acceptance` makes them. They share one run: what one of them interrupts, the next one resumes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import psutil

from harness.acceptance.outcome import CheckFailed, Goal, Measurement, NotApplicable
from harness.acceptance.plan import Plan, PlannedModel
from harness.gpus import visible_gpus
from jobs.after.grading import finished_samples
from jobs.run.endings import by_shard
from jobs.run.folder import RunFolder
from jobs.run.state import read_state
from jobs.watch.progress import Follower
from jobs.work.worker import LAUNCHER_PID

_GONE_SECONDS = 10.0
_EXIT_SECONDS = 60.0
"""How long a worker may take to end by itself: longer than its engines' own grace."""
_POLL_SECONDS = 0.1
_LEAST_GIB = 0.01
"""A worker holds more; less means that its memory cannot be seen from here."""
_LEFT_SHARE = 0.05
"""Share of a worker's memory that may be in use afterwards: other processes of the machine come and go."""
_GRADING = ("math_verify", "duckdb", "sympy", "scipy", "tabulate")
"""Packages that the end of a run needs, beside those that this module imports."""
_REVIVED = "engine died and is started again"
_LOG = "launch.log"


class Launched:
    """One `harness.launch` with its worker in the same process."""

    def __init__(self, plan: Plan) -> None:
        """Start it."""
        self.before_bytes = _used_bytes([])
        self.output = Path(plan.work) / "runs"
        self._log = Path(plan.work) / _LOG
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.launch", *_flags(plan), "--output", str(self.output)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, LAUNCHER_PID: str(os.getpid())},
                start_new_session=True,
            )

    @property
    def run(self) -> RunFolder | None:
        """The run folder; None while there is none."""
        runs = [RunFolder(path) for path in self.output.glob("demo-*")] if self.output.is_dir() else []
        return next((run for run in runs if run.exists()), None)

    @property
    def printed(self) -> str:
        """What this launch has printed so far."""
        return self._log.read_bytes()[self._log_start :].decode("utf-8", "replace")

    def processes(self) -> list[psutil.Process]:
        """Return the launch and every process below it."""
        with contextlib.suppress(psutil.Error):
            launch = psutil.Process(self.process.pid)
            return [launch, *launch.children(recursive=True)]
        return []

    def wait_for_steps(self, steps: int) -> None:
        """Wait until so many more steps are accepted. Raises CheckFailed where the launch ends before."""
        run = self._wait_for_run()
        follower = Follower(run)
        before = follower.progress.steps
        while follower.poll().steps < before + steps:
            self._check_alive(f"{steps} steps were accepted")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Kill the launch and everything below it."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.process.wait()

    def _wait_for_run(self) -> RunFolder:
        while (run := self.run) is None:
            self._check_alive("there was a run folder")
            time.sleep(_POLL_SECONDS)
        return run

    def _check_alive(self, before: str) -> None:
        if self.process.poll() is not None:
            last = [line for line in self.printed.splitlines() if line.strip()][-1:] or ["no output"]
            raise CheckFailed(f"the run ended with {self.process.returncode} before {before}: {last[0][:300]}")


class Runs:
    """The run that is interrupted, and the launch that works on it now."""

    def __init__(self, plan: Plan) -> None:
        """Nothing is started yet. Raises NotApplicable where a package is missing that a run needs."""
        missing = [package for package in _GRADING if find_spec(package) is None]
        if missing:
            raise NotApplicable(f"these packages are not installed: {', '.join(missing)}")
        self.plan = plan
        self._launched: Launched | None = None

    def launched(self) -> Launched:
        """Return the launch under way; the same command is started where there is none."""
        if self._launched is None or self._launched.process.poll() is not None:
            self._launched = Launched(self.plan)
        return self._launched

    def close(self) -> None:
        """Kill the launch under way."""
        if self._launched is not None:
            self._launched.kill()


def kill_worker(runs: Runs) -> list[Measurement]:
    """Kill a worker, and wait until its processes and their memory are gone."""
    launched = runs.launched()
    launched.wait_for_steps(runs.plan.sizes.steps_before)
    processes = launched.processes()
    used = _used_bytes(processes) - launched.before_bytes
    os.kill(launched.process.pid, signal.SIGKILL)
    launched.process.wait()
    killed_at = time.monotonic()
    left = _seconds_until(lambda: not _alive(processes), killed_at)
    freed = _seconds_until(lambda: _used_bytes(processes) - launched.before_bytes <= _LEFT_SHARE * used, killed_at)
    still = len(_alive(processes))
    for process in _alive(processes):
        process.kill()
    return [
        Measurement("processes", len(processes)),
        Measurement("processes left", still, goal=Goal("=", 0)),
        Measurement("gone after", left, "s", Goal("<", _GONE_SECONDS)),
        Measurement("memory", round(used / 2**30, 2), "GiB", Goal(">=", _LEAST_GIB)),
        Measurement("memory back after", freed, "s", Goal("<", _GONE_SECONDS)),
    ]


def kill_engine(runs: Runs) -> list[Measurement]:
    """Kill the target's engine, and wait until the run goes on with another one."""
    launched = runs.launched()
    launched.wait_for_steps(runs.plan.sizes.steps_before)
    cores = [child for child in launched.processes()[1:] if "EngineCore" in child.name()]
    if not cores:
        raise CheckFailed("no process of the worker is called EngineCore")
    target = min(cores, key=psutil.Process.create_time)  # the target starts first
    killed_at = time.monotonic()
    target.kill()
    launched.wait_for_steps(runs.plan.sizes.steps_before)
    seconds = time.monotonic() - killed_at
    return [
        Measurement("revivals", launched.printed.count(_REVIVED), goal=Goal("=", 1)),
        Measurement("steps after it", runs.plan.sizes.steps_before),
        Measurement("back at work after", seconds, "s"),
    ]


def preempt(runs: Runs) -> list[Measurement]:
    """Send a worker Slurm's signal before the time limit, run the same command again, and look for what is lost."""
    launched = runs.launched()
    launched.wait_for_steps(runs.plan.sizes.steps_before)
    processes = launched.processes()
    signaled_at = time.monotonic()
    os.kill(launched.process.pid, signal.SIGUSR2)
    exited = _seconds_until(lambda: launched.process.poll() is not None, signaled_at, _EXIT_SECONDS)
    _seconds_until(lambda: not _alive(processes), time.monotonic())  # helpers of Python's end a moment later
    left = len(_alive(processes))
    run = launched.run
    if run is None or exited is None:
        raise CheckFailed(f"the worker did not end within {_EXIT_SECONDS:.0f} s of SIGUSR2")
    state = read_state(run)
    accepted = {i: "".join(step.text for step in trace.steps) for i, trace in state.unfinished.items()}
    again = runs.launched()
    code = again.process.wait()
    texts = {sample["sample_id"]: sample["text"] for sample in finished_samples(run)}
    lost = [i for i, text in accepted.items() if i not in texts or not texts[i].startswith(text)]
    lost += [i for i in state.finished if i not in texts]
    ended = by_shard(run, read_state(run).endings)
    if code != 0:
        raise CheckFailed(f"the same command again ended with {code}: {again.printed.strip().splitlines()[-1:]}")
    return [
        Measurement("ended after", exited, "s", Goal("<", _EXIT_SECONDS)),
        Measurement("processes left", left, goal=Goal("=", 0)),
        Measurement("samples finished before", len(state.finished)),
        Measurement("under way", len(state.unfinished), goal=Goal(">=", 1)),
        Measurement("their accepted steps", sum(len(trace.steps) for trace in state.unfinished.values())),
        Measurement("lost", len(lost), goal=Goal("=", 0)),
        Measurement("unfinished", ended.num_unfinished, goal=Goal("=", 0)),
        Measurement("failed", sum(ended.failed), goal=Goal("=", 0)),
        Measurement("finished", sum(ended.finished), goal=Goal("=", sum(ended.planned))),
        Measurement("exit code", code, goal=Goal("=", 0)),
    ]


CHECKS: Mapping[str, Callable[[Runs], list[Measurement]]] = {
    "worker-killed": kill_worker,
    "engine-killed": kill_engine,
    "preempted": preempt,
}


_METHODS: Mapping[str, Mapping[str, str]] = {
    "speccot": {"drafts": "2", "guidance-tokens": "4", "step-tokens": "48"},
    "vanilla": {"model": "target"},
}
"""Hyper-parameters of the methods that the run may have."""


def _flags(plan: Plan) -> list[str]:
    flags = {
        "method": plan.sizes.run_method,
        **_METHODS[plan.sizes.run_method],
        "dataset": "demo",
        "samples": str(plan.sizes.run_samples),
        "concurrency": str(plan.sizes.run_concurrency),
        "temperature": "0.6",
        "token-budget": "256",
        "max-context": "1024",
        "engine": plan.kind,
        "cluster": "debug",
        "draft": _named(plan.draft),
        "target": _named(plan.target),
    }
    return [word for name, value in flags.items() for word in (f"--{name}", value)]


def _named(model: PlannedModel) -> str:
    if Path(model.path).is_dir():
        return model.path
    return f"{model.path}@{model.revision}" if model.revision else model.name


def _used_bytes(processes: list[psutil.Process]) -> int:
    """Return the memory in use on the visible cards; without cards that of the processes themselves."""
    if cards := visible_gpus():
        return sum(card.used_bytes for card in cards)
    used = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            used += process.memory_info().rss
    return used


def _alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def _seconds_until(condition: Callable[[], bool], since: float, limit: float | None = None) -> float | None:
    """Return how long after `since` a condition came true; None where the limit (10 s) came first."""
    while not condition():
        if time.monotonic() - since > (_GONE_SECONDS if limit is None else limit):
            return None
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - since
