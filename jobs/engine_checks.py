"""`harness.doctor --engines`: checks with real engines, each in a separate process with a time limit.

A check that hangs or dies counts as failed, and the next check starts. Checks of engine outputs are in
`harness.checks.engine_answers`. The checks here interrupt a run: they kill a worker and an engine and preempt a worker,
then check that no process remains and nothing is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, cast, get_args

import click
import psutil

from harness import environment
from harness.checks import engine_answers
from harness.checks.engine_answers import Machine, Measured, NotPossible
from harness.engines import registry
from harness.engines.processes import output_to
from harness.engines.scripted import SCRIPTED_SECONDS
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
"""Time limit for a worker to exit on its own: longer than its engines' grace period."""
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Outcome:
    check: str
    status: Status
    reason: str = ""
    """Why the check failed or is not possible here; otherwise empty."""
    measured: tuple[Measured, ...] = ()

    def __str__(self) -> str:
        return f"{self.check:17} {self.status:17}  {', '.join(filter(None, [self.reason, *map(str, self.measured)]))}"


def check_engines(launch: PartialLaunch, only: Sequence[str], limit: float, *, as_json: bool) -> bool:
    """Run the checks with a launch's models and engine, print a line for each, and return whether none failed.

    `limit`: seconds per check, including engine starts. Raises ValueError and ModelUnavailable.
    """
    if unknown := [name for name in only if name not in CHECKS]:
        raise ValueError(f"--only {unknown[0]}: no such check; valid: {', '.join(CHECKS)}")
    machine, outcomes = _machine(launch), list[Outcome]()
    for name in only or CHECKS:
        outcomes.append(in_process(machine, name, limit))
        click.echo(str(outcomes[-1]), err=as_json)
    statuses = [outcome.status for outcome in outcomes]
    click.echo(", ".join(f"{statuses.count(status)} {status}" for status in get_args(Status)), err=as_json)
    if as_json:
        document = {  # information for maintainers
            "versions": environment.versions(),
            "hardware": {name: value for name, value in environment.hardware().items() if name != "hostname"},
            "engine": machine.kind,
            "models": [model.name for model in (machine.draft, machine.target) if model],
            "checks": [asdict(outcome) for outcome in outcomes],
        }
        click.echo(json.dumps(document, indent=2, default=str))
    if "failed" in statuses:
        click.echo(f"logs: {machine.work}", err=True)
    else:
        shutil.rmtree(machine.work, ignore_errors=True)
    return "failed" not in statuses


def _machine(launch: PartialLaunch) -> Machine:
    kind = registry.resolved(launch.engine)
    if packages := registry.missing_packages(kind):
        raise ValueError(f"--engine {kind}: not installed here: {', '.join(packages)}")
    draft = target = None
    if registry.capabilities(kind).runs_models:
        named = launch.draft.model or "demo-draft", launch.target.model or "demo-target"
        refs = [models.resolve(name) for name in named]
        draft, target = (ModelFiles(ref.name, ref.path_or_hub_id, ref.revision) for ref in refs)
    return Machine(kind, environment.accelerator(), draft, target, tempfile.mkdtemp(prefix="doctor-"))


def in_process(machine: Machine, name: str, limit: float) -> Outcome:
    """Run one check in a separate process with a time limit in seconds."""
    spawning = multiprocessing.get_context("spawn")
    receiver, sender = spawning.Pipe(duplex=False)
    process = spawning.Process(target=_make, args=(machine, name, sender))
    process.start()
    sender.close()
    try:
        if receiver.poll(limit):
            return cast(Outcome, receiver.recv())
        reason = f"no answer within {limit:.0f} s"
    except EOFError:
        process.join()
        reason = f"the process of the check exited with status {process.exitcode}"
    finally:
        _kill(_tree(process.pid) if process.is_alive() else [])
        process.join()
    return Outcome(name, "failed", reason)


def _make(machine: Machine, name: str, sender: Connection) -> None:
    """Run one check in this process with its output in a log, and send the outcome."""
    os.setsid()  # terminal input and signals go to the parent command, which ends this process
    os.environ |= {"HF_HUB_OFFLINE": "1", LAUNCHER_PID: str(os.getppid())}
    end_with_launcher()
    with output_to(Path(machine.work) / f"{name}.log"):
        outcome = asyncio.run(outcome_of(name, CHECKS[name], machine))
        left = _tree(os.getpid())[1:]  # a leftover run would disturb the next check
        _kill(left)
        psutil.wait_procs(left, _GONE_SECONDS)
        sender.send(outcome)


async def outcome_of(name: str, make: MakeCheck, machine: Machine) -> Outcome:
    """Run one check and return its outcome, whatever it raises."""
    status: Status = "ok"
    reason, measured = "", list[Measured]()
    try:
        measured = await make(machine)
        if missed := [one.name for one in measured if not one.is_met]:
            status, reason = "failed", f"not met: {', '.join(missed)}"
    except NotPossible as why:
        status, reason = "not possible here", str(why)
    except Exception as error:  # noqa: BLE001 any exception is a failed check
        status, reason = "failed", f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
    starts = (Measured("start", seconds, "s") for seconds in machine.starts)
    return Outcome(name, status, reason, (*measured, *starts))


class Launched:
    """One `harness.launch` with an in-process worker; rerunning on the same folder resumes it."""

    def __init__(self, machine: Machine) -> None:
        self._steps_to_see = 24 if machine.is_large else 4
        self._output = Path(machine.work) / "runs"
        self._log = Path(machine.work) / f"launch-{time.time_ns()}.log"
        command = [sys.executable, "-m", "harness.launch", *_flags(machine), "--output", str(self._output)]
        variables = {SCRIPTED_SECONDS: "0.1", **os.environ, LAUNCHER_PID: str(os.getpid())}
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables)

    @property
    def printed(self) -> str:
        """Output of this launch so far."""
        return self._log.read_text("utf-8", "replace")

    def wait_for_steps(self) -> RunFolder:
        """Wait until more steps are accepted; return the run. Raises RuntimeError if the launch exits before that."""
        while not (runs := [run for path in self._output.glob("demo-*") if (run := RunFolder(path)).exists()]):
            self._wait("there was a run folder")
        follower = Follower(runs[0])
        before = follower.steps
        while follower.poll().steps < before + self._steps_to_see:
            self._wait(f"{self._steps_to_see} steps were accepted")
        return runs[0]

    def _wait(self, until: str) -> None:
        if self.process.poll() is not None:
            last = [line for line in self.printed.splitlines() if line.strip()][-1:] or ["no output"]
            raise RuntimeError(f"the run exited with status {self.process.returncode} before {until}: {last[0][:300]}")
        time.sleep(_POLL_SECONDS)


def _flags(machine: Machine) -> list[str]:
    sizes = "--samples 8 --concurrency 16" if machine.is_large else "--samples 1 --concurrency 4"
    method = "--method speccot --drafts 2 --guidance-tokens 4 --step-tokens 48"
    common = "--dataset demo --temperature 0.6 --token-budget 256 --max-context 1024 --cluster debug"
    words = f"{method} {sizes} {common} --engine {machine.kind}".split()
    for role, model in (("draft", machine.draft), ("target", machine.target)):
        if model:
            words += [f"--{role}", model.path if not model.revision else f"{model.path}@{model.revision}"]
    return words


async def kill_worker(machine: Machine) -> list[Measured]:
    """Kill a worker, and wait until its processes and their resources are gone."""
    launched = Launched(machine)
    launched.wait_for_steps()
    processes = _tree(launched.process.pid)
    launched.process.kill()
    launched.process.wait()
    gone = _seconds_until(lambda: not _alive(processes))
    _kill(_alive(processes))
    return [Measured("processes", len(processes)), Measured("gone after", gone, "s", "<", _GONE_SECONDS)]


async def kill_engine(machine: Machine) -> list[Measured]:
    """Kill the target's engine, and wait until the run continues with a new one."""
    if not machine.can.has_processes:
        raise NotPossible(f"the {machine.kind} engine does not run in a separate process")
    launched = Launched(machine)
    launched.wait_for_steps()
    cores = [one for one in engine_answers.engine_processes(launched.process.pid) if "EngineCore" in one.name()]
    killed_at = time.monotonic()
    min(cores, key=psutil.Process.create_time).kill()  # the target starts first
    launched.wait_for_steps()
    return [
        Measured("back at work after", time.monotonic() - killed_at, "s"),
        Measured("revivals", launched.printed.count("engine died; restarting it"), "", "=", 1),
    ]


async def preempt(machine: Machine) -> list[Measured]:
    """Send a worker the signal that Slurm sends before the time limit, rerun the command, and check for losses."""
    launched = Launched(machine)
    run = launched.wait_for_steps()
    os.kill(launched.process.pid, signal.SIGUSR2)
    exited = _seconds_until(lambda: launched.process.poll() is not None, _EXIT_SECONDS)
    if exited is None:
        raise RuntimeError(f"the worker did not exit within {_EXIT_SECONDS:.0f} s of SIGUSR2")
    state = read_state(run)
    accepted = dict.fromkeys(state.finished, "")
    accepted |= {i: "".join(step.text for step in trace.steps) for i, trace in state.unfinished.items()}
    again = Launched(machine)
    if code := again.process.wait():
        raise RuntimeError(f"the repeated command exited with status {code}: {again.printed.strip().splitlines()[-1:]}")
    texts = {sample["sample_id"]: text for sample, text in finished_samples(run)}
    lost = [i for i, text in accepted.items() if i not in texts or not texts[i].startswith(text)]
    ended = by_shard(run, read_state(run).endings)
    return [
        Measured("ended after", exited, "s", "<", _EXIT_SECONDS),
        Measured("under way", len(state.unfinished), "", ">=", 1),
        Measured("lost", len(lost), "", "=", 0),
        Measured("failed", sum(ended.failed), "", "=", 0),
        Measured("finished", sum(ended.finished), "", "=", sum(ended.planned)),
    ]


def _alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    alive = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def _tree(process: int | None) -> list[psutil.Process]:
    """Return a process and all its descendants; empty if it has exited."""
    with contextlib.suppress(psutil.Error):
        above = psutil.Process(process)
        return [above, *above.children(recursive=True)]
    return []


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _seconds_until(condition: Callable[[], bool], limit: float = _GONE_SECONDS) -> float | None:
    """Return the time until the condition became true; None on timeout."""
    since = time.monotonic()
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
"""Checks by name, in execution order."""
