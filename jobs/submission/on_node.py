"""Slurm checks of `harness.doctor`: commands, accounting, valid options, and a one-minute job that checks a node.

The login node's question and the compute node's answer are files in the output folder. Locks are also tested there:
the compute node must respect a lock held by the login node, otherwise two workers could run the same shard.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock

from harness import environment
from harness.checks import machine
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.settings.launch_settings import PartialLaunch
from harness.sizing.memory import Option
from jobs.checks import checks, question_of
from jobs.run import codes
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder, until_seen
from jobs.slurm import client, profiles
from jobs.submission import submit
from jobs.watch.exit_reasons import reason_in

_COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
"""Commands required to submit and watch jobs; sacct is optional."""
_REPLY_SECONDS = 15.0
_MINUTES = "1"
_MAX_LINE_CHARACTERS = 300
_PROBE_SECONDS, _LIMIT_SECONDS = 35.0, 40.0
"""Time limits of the checks on the node; together with Python's start, shorter than the job's time limit."""
_POLL_SECONDS = 2.0
"""Time between two queries of Slurm's queue."""


@dataclass(frozen=True)
class NodeAnswer:
    """Results of the checks on a node."""

    hostname: str
    checks: list[Check]


def examine(
    launch: PartialLaunch, typed: Collection[str], wait_seconds: float | None, tell: Callable[[str], None]
) -> dict[str, NodeAnswer]:
    """Check a launch; return results `here` and, if `wait_seconds` is given, on a `node`. Raises a one-line ValueError.

    `typed`: the names of the flags on the command line; `tell` is called with progress lines.
    """
    question = question_of(launch, typed, on_node=wait_seconds is not None)
    found = {"here": NodeAnswer(socket.gethostname(), checks(question, {"slurm": lambda: check_slurm(question)}))}
    if wait_seconds is not None:
        found["node"] = ask_node(question, wait_seconds, tell)
    return found


def ask_node(question: Question, wait_seconds: float, tell: Callable[[str], None]) -> NodeAnswer:
    """Submit the checks, wait for the answer, and clean up; `tell` is called with progress lines.

    A job that does not finish in time is reported as a failed check with its last known state.
    """
    output = question.launch.output
    is_new_folder = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=output))
    except OSError as error:
        return _no_answer(f"cannot write to {output} ({error.strerror})")
    name = f"harness-doctor-{socket.gethostname()}-{os.getpid()}"
    try:
        node_question = replace(
            question,
            on_node=True,
            cluster="slurm",
            probe_seconds=_PROBE_SECONDS,
            limit_seconds=_LIMIT_SECONDS,
            login_versions=environment.versions(),
        )
        write_atomically(folder / "question.json", node_question.to_json().encode())
        with FileLock(folder / "held.lock"):
            launch = question.launch
            files = str(launch.prompts.parent) if launch.prompts else None
            shown = [*launch.models.values(), launch.target.adapter, launch.spec_model, files, question.data_dir]
            folders = [name for name in shown if name]
            try:
                job = submit.submit_alone(folder, name, _parameters(question), "check", str(folder), folders=folders)
            except (RuntimeError, OSError) as rejection:
                return _no_answer(f"could not submit the job: {rejection}")
            tell(f"job {job} is checking a node …")
            return _wait(folder, name, wait_seconds)
    finally:
        with contextlib.suppress(client.SlurmError):
            client.cancel([name])
        shutil.rmtree(folder, ignore_errors=True)
        if is_new_folder:
            with contextlib.suppress(OSError):  # another process may use the folder by now
                output.rmdir()


def check_here(folder: str) -> None:
    """Run the checks on the node and write the answer to the folder."""
    path = Path(folder)
    question = Question.read(path / "question.json")
    if question.launch.method:
        codes.load_submitted(question.launch.method)
    found = checks(question, {"slurm": lambda: check_slurm(question), "held lock": lambda: [_check_lock(path)]})
    answer = NodeAnswer(os.environ.get("SLURMD_NODENAME") or socket.gethostname(), found)
    write_atomically(path / "answer.json", orjson.dumps(answer))


def _check_lock(folder: Path) -> Check:
    outcome = machine.try_lock(folder / "held.lock")
    if outcome == "held":
        return ok("locks across nodes", "a lock held on the login node is respected on this node")
    problem = "was also acquired on this node" if outcome == "taken" else f"could not be tested here ({outcome})"
    return failure(
        "locks across nodes",
        f"a lock held on the login node {problem}: mount the filesystem with locks shared by all nodes "
        "(NFS: no nolock or local_lock; Lustre: flock, not localflock), or choose another --output",
    )


def _parameters(question: Question) -> dict[str, Any]:
    parameters = profiles.submitit_parameters({**question.sbatch, "time": _MINUTES, "requeue": False})
    parameters.pop("array_parallelism", None)
    return {**parameters, "signal_delay_s": 5}


def _wait(folder: Path, name: str, seconds: float) -> NodeAnswer:
    """Wait until the job has ended, and return its answer."""
    deadline, state = time.monotonic() + seconds, "submitted"
    while time.monotonic() < deadline:
        with contextlib.suppress(client.SlurmError):
            tasks = [task for task in client.queue([name]) if task.is_active]
            if not tasks:
                break
            state = " ".join(f"{task.state} {task.reason}" for task in tasks)
        time.sleep(_POLL_SECONDS)
    else:
        return _no_answer(f"no answer from a node within {seconds:.0f} s; the job is {state}: increase --wait")
    path = folder / "answer.json"
    until_seen(RunFolder(folder), path.exists)
    if not path.exists():
        return _no_answer(f"the job exited without an answer: {_last_log_line(folder)}")
    answer = orjson.loads(path.read_bytes())
    return NodeAnswer(answer["hostname"], [Check(**check) for check in answer["checks"]])


def _last_log_line(folder: Path) -> str:
    """Return the failure reason in the job's log, else its last line."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted((folder / "logs" / "jobs").glob("*_log.*")))
    if not text.strip():
        return "its log is empty; this folder or this Python may not be visible on the node"
    return reason_in(text) or text.strip().splitlines()[-1][:_MAX_LINE_CHARACTERS]


def _no_answer(reason: str) -> NodeAnswer:
    return NodeAnswer("node", [failure("job", reason)])


def check_slurm(question: Question) -> Iterator[Check]:
    """Check Slurm on a login node or a compute node.

    All calls have a time limit, because clients without client.conf hang for a minute.
    """
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing and client.REQUEUE_CODE in os.environ:
        text = f"no {', '.join(missing)} in the container; the batch script requeues its job at the time limit"
        yield ok("slurm", f"{text}. Verdict jobs need these commands: set python = … under [nightly.slurm]")
        return
    problem = f"{', '.join(missing)} not found: load the site's Slurm module or use another node" if missing else ""
    if not missing:
        try:
            client.check_controller()
        except client.SlurmError as error:
            configuration = os.environ.get("SLURM_CONF", "the site's client.conf")
            problem = f"no controller responds ({error}): check {configuration}, or run sinfo"
    if problem:
        elsewhere = f"not needed: runs use --cluster {question.cluster}"
        yield failure("slurm", problem) if question.cluster == "slurm" else ok("slurm", elsewhere)
        return
    yield ok("slurm", "the controller responds")
    try:
        client.ask("sacct", "-n", "-X", "-P", "-S", "now-1minutes", "-o", "JobID", seconds=_REPLY_SECONDS)
        yield ok("slurm accounting", "sacct responds")
    except client.SlurmError as error:
        text = f"{error}; runs work without it, but status lacks GPU-hours and exit reasons of tasks"
        yield warning("slurm accounting", text)
    if not question.on_node and question.cluster == "slurm":
        yield _options(dict(question.sbatch))


def _options(options: Mapping[str, Option]) -> Check:
    """Check whether sbatch would accept a job with these options, without submitting it."""
    parameters = profiles.submitit_parameters(options)
    passed = {"time": parameters["time"], **parameters["additional_parameters"]}
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in passed.items()]
    try:
        client.ask("sbatch", "--test-only", *flags, "--wrap=true", seconds=_REPLY_SECONDS)
    except client.SlurmError as error:
        remedy = "see --partition, --account, --qos, --gpus-per-node, --time"
        return failure("sbatch", f"would reject the job: {error}; {remedy}")
    return ok("sbatch", "would accept the job")
