"""`harness.doctor --engines`: checks of this machine with real engines, each in a process of its own with a time limit.

A check that hangs or dies has failed, and the next ones are made. What engines answer is in
`harness.checks.engine_answers`; the checks that interrupt a run are here: a worker and an engine are killed, a worker
is preempted, and nothing may stay or be lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import click
import psutil

from harness import environment
from harness.checks import engine_answers
from harness.checks.engine_answers import Machine, Measured, NotPossible
from harness.engines import registry
from harness.engines.scripted import SCRIPTED_SECONDS
from harness.gpus import visible_gpus
from harness.settings.launch_settings import PartialLaunch
from harness.sizing.card_plan import ModelFiles
from harness.weights import models
from jobs.finished.grading import finished_samples
from jobs.run.endings import by_shard, read_state
from jobs.run.folder import RunFolder
from jobs.watch.follow import Follower
from jobs.work.worker import LAUNCHER_PID, end_with_launcher

MakeCheck = Callable[[Machine], Awaitable[list[Measured]]]
Status = Literal["ok", "failed", "not possible here"]
_GONE_SECONDS = 10.0
_EXIT_SECONDS = 60.0
"""How long a worker may take to end by itself: longer than its engines' own grace."""
_POLL_SECONDS = 0.1
_LEFT_SHARE = 0.05
"""Share of a worker's memory that may be in use afterwards: other processes of the machine come and go."""
_REVIVED = "engine died and is started again"


class RunFailed(Exception):
    """An interrupted run did something else than it has to; the message says what."""


@dataclass(frozen=True)
class Outcome:
    """The result of one check."""

    check: str
    status: Status
    reason: str = ""
    """Why it failed or is not possible; empty where what was measured says it."""
    measured: tuple[Measured, ...] = ()
    seconds: float = 0.0

    def __str__(self) -> str:
        texts = [*([self.reason] if self.reason else []), *map(str, self.measured)]
        return f"{self.check:17} {self.status:17}  {', '.join(texts)}"


def check_engines(launch: PartialLaunch, only: Sequence[str], limit: float, *, as_json: bool) -> bool:
    """Make the checks with a launch's models and engine, print a line for each, and return whether none failed.

    `limit` is in seconds for each check, starts of engines included. Raises ValueError and ModelUnavailable.
    """
    for name in only:
        if name not in CHECKS:
            raise ValueError(f"--only: {name!r} is not one of {', '.join(CHECKS)}")
    machine = _machine(launch)
    outcomes: list[Outcome] = []
    for name in CHECKS:
        if not only or name in only:
            outcomes.append(in_process(machine, name, limit))
            click.echo(str(outcomes[-1]), err=as_json)
    count = {status: sum(outcome.status == status for outcome in outcomes) for status in ("ok", "failed")}
    left = len(outcomes) - sum(count.values())
    click.echo(f"{count['ok']} ok, {count['failed']} failed, {left} not possible here", err=as_json)
    if as_json:
        click.echo(json.dumps(_document(machine, outcomes), indent=2, default=str))
    if count["failed"]:
        click.echo(f"logs: {machine.work}", err=True)
    else:
        shutil.rmtree(machine.work, ignore_errors=True)
    return not count["failed"]


def _machine(launch: PartialLaunch) -> Machine:
    kind = registry.resolved(launch.engine)
    if registry.missing_packages(kind):
        raise ValueError(f"--engine {kind} is not installed here with torch")
    draft = target = None
    if registry.capabilities(kind).runs_models:
        named = launch.draft.model or "demo-draft", launch.target.model or "demo-target"
        refs = [models.resolve(name) for name in named]
        draft, target = (ModelFiles(ref.name, ref.path_or_hub_id, ref.revision) for ref in refs)
    return Machine(kind, environment.accelerator(), draft, target, tempfile.mkdtemp(prefix="doctor-"))


def _document(machine: Machine, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Return everything that a maintainer needs to understand the result."""
    return {
        "versions": environment.versions(),
        "hardware": {name: value for name, value in environment.hardware().items() if name != "hostname"},
        "engine": machine.kind,
        "models": [model.name for model in (machine.draft, machine.target) if model],
        "checks": [asdict(outcome) for outcome in outcomes],
    }


def in_process(machine: Machine, name: str, limit: float) -> Outcome:
    """Make one check in a process of its own, within so many seconds."""
    begun = time.monotonic()
    with (Path(machine.work) / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jobs.engine_checks", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "HF_HUB_OFFLINE": "1", LAUNCHER_PID: str(os.getpid())},
            start_new_session=True,  # what is typed in a terminal is for the command, which ends this process
        )
    try:
        sent, _ = process.communicate(pickle.dumps(machine), limit)
    except subprocess.TimeoutExpired:
        return Outcome(name, "failed", f"no answer within {limit:.0f} s", seconds=time.monotonic() - begun)
    finally:
        _kill(_tree(process.pid) if process.returncode is None else [])
        process.wait()
    if process.returncode:
        reason = f"its process ended with {process.returncode}"
        return Outcome(name, "failed", reason, seconds=time.monotonic() - begun)
    return Outcome(*pickle.loads(sent))  # as a tuple: in that process the class is one of __main__


def main(name: str) -> None:
    """Make one check in this process: the machine comes on stdin, the outcome goes to stdout, all else to stderr."""
    outcomes = os.dup(1)
    os.dup2(2, 1)
    end_with_launcher()
    outcome = asyncio.run(outcome_of(name, CHECKS[name], pickle.load(sys.stdin.buffer)))
    left = _tree(os.getpid())[1:]  # a run that would go on beside the next check
    _kill(left)
    psutil.wait_procs(left, _GONE_SECONDS)
    with os.fdopen(outcomes, "wb") as file:
        pickle.dump((outcome.check, outcome.status, outcome.reason, outcome.measured, outcome.seconds), file)


async def outcome_of(name: str, make: MakeCheck, machine: Machine) -> Outcome:
    """Make one check here and return its outcome, whatever it raises."""
    begun = time.monotonic()

    def ended(status: Status, reason: str = "", measured: Sequence[Measured] = ()) -> Outcome:
        starts = tuple(Measured("start", seconds, "s") for seconds in machine.starts)
        return Outcome(name, status, reason, (*measured, *starts), time.monotonic() - begun)

    try:
        measured = await make(machine)
    except NotPossible as reason:
        return ended("not possible here", str(reason))
    except Exception as error:  # noqa: BLE001 whatever it is, the check has failed
        return ended("failed", f"{type(error).__name__}: {' '.join(str(error).split())}"[:500])
    missed = [one.name for one in measured if not one.is_met]
    return ended("failed" if missed else "ok", f"not met: {', '.join(missed)}" if missed else "", measured)


class Launched:
    """One `harness.launch` with its worker in the same process; the same folder resumes what was interrupted."""

    def __init__(self, machine: Machine) -> None:
        """Start it."""
        self.before_bytes = _used_bytes([])
        self.steps_before = 24 if machine.is_large else 4
        self._output = Path(machine.work) / "runs"
        self._log = Path(machine.work) / f"launch-{time.time_ns()}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness.launch", *_flags(machine), "--output", str(self._output)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={SCRIPTED_SECONDS: "0.1", **os.environ, LAUNCHER_PID: str(os.getpid())},
            )

    @property
    def run(self) -> RunFolder | None:
        """The run folder; None while there is none."""
        runs = [RunFolder(path) for path in self._output.glob("demo-*")] if self._output.is_dir() else []
        return next((run for run in runs if run.exists()), None)

    @property
    def printed(self) -> str:
        """What this launch has printed so far."""
        return self._log.read_text("utf-8", "replace")

    def wait_for_steps(self) -> None:
        """Wait until some more steps are accepted. Raises RunFailed where the launch ends before."""
        while (run := self.run) is None:
            self._check_alive("there was a run folder")
        follower = Follower(run)
        before = follower.steps
        while follower.poll().steps < before + self.steps_before:
            self._check_alive(f"{self.steps_before} steps were accepted")

    def _check_alive(self, before: str) -> None:
        if self.process.poll() is not None:
            last = [line for line in self.printed.splitlines() if line.strip()][-1:] or ["no output"]
            raise RunFailed(f"the run ended with {self.process.returncode} before {before}: {last[0][:300]}")
        time.sleep(_POLL_SECONDS)


def _flags(machine: Machine) -> list[str]:
    has_pair = machine.is_large or not machine.can.has_processes  # on a CPU, vLLM takes half a minute for one
    sizes = "--samples 8 --concurrency 16" if machine.is_large else "--samples 1 --concurrency 4"
    method = "speccot --drafts 2 --guidance-tokens 4 --step-tokens 48" if has_pair else "vanilla --model target"
    common = "--dataset demo --temperature 0.6 --token-budget 256 --max-context 1024 --cluster debug"
    words = f"--method {method} {sizes} {common} --engine {machine.kind}".split()
    for role, model in (("draft", machine.draft), ("target", machine.target)):
        if model and (role == "target" or has_pair):
            words += [f"--{role}", model.path if not model.revision else f"{model.path}@{model.revision}"]
    return words


async def kill_worker(machine: Machine) -> list[Measured]:
    """Kill a worker, and wait until its processes and their memory are gone."""
    launched = Launched(machine)
    launched.wait_for_steps()
    processes = _tree(launched.process.pid)
    used = _used_bytes(processes) - launched.before_bytes
    launched.process.kill()
    launched.process.wait()
    killed_at = time.monotonic()
    left = _seconds_until(lambda: not _alive(processes), killed_at)
    freed = _seconds_until(lambda: _used_bytes(processes) - launched.before_bytes <= _LEFT_SHARE * used, killed_at)
    still = _alive(processes)
    _kill(still)
    return [
        Measured("processes", len(processes)),
        Measured("processes left", len(still), "", "=", 0),
        Measured("gone after", left, "s", "<", _GONE_SECONDS),
        Measured("memory", round(used / 2**30, 2), "GiB", ">=", 0.01),  # less: it cannot be seen from here
        Measured("memory back after", freed, "s", "<", _GONE_SECONDS),
    ]


async def kill_engine(machine: Machine) -> list[Measured]:
    """Kill the target's engine, and wait until the run goes on with another one."""
    if not machine.can.has_processes:
        raise NotPossible(f"the {machine.kind} engine has no process of its own")
    launched = Launched(machine)
    launched.wait_for_steps()
    cores = [one for one in engine_answers.engine_processes(launched.process.pid) if "EngineCore" in one.name()]
    if not cores:
        raise RunFailed("no process of the worker is called EngineCore")
    killed_at = time.monotonic()
    min(cores, key=psutil.Process.create_time).kill()  # the target starts first
    launched.wait_for_steps()
    seconds = time.monotonic() - killed_at
    revivals = launched.printed.count(_REVIVED)
    return [Measured("revivals", revivals, "", "=", 1), Measured("back at work after", seconds, "s")]


async def preempt(machine: Machine) -> list[Measured]:
    """Send a worker Slurm's signal before the time limit, run the same command again, and look for what is lost."""
    launched = Launched(machine)
    launched.wait_for_steps()
    processes = _tree(launched.process.pid)
    signaled_at = time.monotonic()
    os.kill(launched.process.pid, signal.SIGUSR2)
    exited = _seconds_until(lambda: launched.process.poll() is not None, signaled_at, _EXIT_SECONDS)
    _seconds_until(lambda: not _alive(processes), time.monotonic())  # helpers of Python's end a moment later
    left, run = len(_alive(processes)), launched.run
    if run is None or exited is None:
        raise RunFailed(f"the worker did not end within {_EXIT_SECONDS:.0f} s of SIGUSR2")
    state = read_state(run)
    accepted = {i: "".join(step.text for step in trace.steps) for i, trace in state.unfinished.items()}
    again = Launched(machine)
    if code := again.process.wait():
        raise RunFailed(f"the same command again ended with {code}: {again.printed.strip().splitlines()[-1:]}")
    texts = {sample["sample_id"]: text for sample, text in finished_samples(run)}
    lost = [i for i, text in accepted.items() if i not in texts or not texts[i].startswith(text)]
    lost += [i for i in state.finished if i not in texts]
    ended = by_shard(run, read_state(run).endings)
    return [
        Measured("ended after", exited, "s", "<", _EXIT_SECONDS),
        Measured("processes left", left, "", "=", 0),
        Measured("under way", len(state.unfinished), "", ">=", 1),
        Measured("their accepted steps", sum(len(trace.steps) for trace in state.unfinished.values())),
        Measured("lost", len(lost), "", "=", 0),
        Measured("failed", sum(ended.failed), "", "=", 0),
        Measured("finished", sum(ended.finished), "", "=", sum(ended.planned)),
    ]


def _used_bytes(processes: Sequence[psutil.Process]) -> int:
    """Return the memory in use on the visible cards; without cards that of the processes themselves."""
    if cards := visible_gpus():
        return sum(card.used_bytes for card in cards)
    used = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            used += process.memory_info().rss
    return used


def _alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def _tree(process: int | None) -> list[psutil.Process]:
    """Return a process and every one below it; none where it has ended."""
    with contextlib.suppress(psutil.Error):
        above = psutil.Process(process)
        return [above, *above.children(recursive=True)]
    return []


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _seconds_until(condition: Callable[[], bool], since: float, limit: float = _GONE_SECONDS) -> float | None:
    """Return how long after `since` a condition came true; None where the limit came first."""
    while not condition():
        if time.monotonic() - since > limit:
            return None
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - since


CHECKS: Mapping[str, MakeCheck] = {
    "start": engine_answers.check_start,
    "calls": engine_answers.check_calls,
    "verdicts": engine_answers.check_verdicts,
    "verdicts-float32": partial(engine_answers.check_verdicts, in_float32=True),
    "prefix-cache": engine_answers.check_prefix_cache,
    "lossless-ngram": partial(engine_answers.check_lossless, proposing="ngram"),
    "lossless-draft": partial(engine_answers.check_lossless, proposing="draft"),
    "worker-killed": kill_worker,
    "engine-killed": kill_engine,
    "preempted": preempt,
}
"""By name, in the order in which they are made."""

if __name__ == "__main__":
    main(sys.argv[1])
