"""The checks of `harness.doctor` on a node, as a one-minute job.

The question and the answer are files in the output folder, which tests that folder as well: a lock that is held here
must keep a node out, or two workers could run the same shard.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock

from harness import environment
from harness.checks import every, machine
from harness.checks.finding import Check, Question, failure, ok
from jobs.run import codes
from jobs.run.files import write_atomically
from jobs.slurm import client, profiles
from jobs.slurm.checks import check_slurm
from jobs.slurm.python_command import PythonCommand
from jobs.submission import snapshot, submit
from jobs.watch.failures import error_in

_MINUTES = "1"
_MAX_LINE_CHARACTERS = 300
_PROBE_SECONDS, _LIMIT_SECONDS = 35.0, 40.0
"""Together with Python's start-up, less than the job's time limit."""
_POLL_SECONDS, _QUEUE_SECONDS = 0.5, 5.0
"""Time between two looks for the answer's file, and between two queries of Slurm's queue."""
_GRACE_SECONDS = 20.0
"""How long to wait after the job has left the queue: a shared filesystem may show a file late."""


@dataclass(frozen=True)
class NodeAnswer:
    """What the checks on a node found."""

    hostname: str
    checks: list[Check]


def ask_node(question: Question, wait_seconds: float, tell: Callable[[str], None]) -> NodeAnswer:
    """Submit the checks, wait for the answer, and clean up.

    A job that does not answer in time is a failed check that says what is known of the job. `tell` is called with a
    line about progress.
    """
    output = question.launch.output
    is_new_folder = not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=output))
    except OSError as error:
        return _no_answer(f"{output} cannot be written to ({error.strerror})")
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
            try:
                job = submit.submit_call(folder, name, _parameters(question), check_here, str(folder))
            except (RuntimeError, OSError) as rejection:
                return _no_answer(f"sbatch rejected the job: {rejection}")
            tell(f"job {job} is checking a node …")
            return _wait(folder, name, wait_seconds)
    finally:
        _cancel(name)
        shutil.rmtree(folder, ignore_errors=True)
        if is_new_folder:
            with contextlib.suppress(OSError):  # somebody may use it by now
                output.rmdir()


def check_here(folder: str) -> None:
    """Run the checks on the node, and write the answer to the folder."""
    # Slurm may send the signal that submitit takes for a timeout up to a minute early: at once, for this job.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    snapshot.require()
    path = Path(folder)
    question = Question.read(path / "question.json")
    if question.launch.method:
        codes.load_submitted(question.launch.method)
    checks = every.checks(question, {"slurm": lambda: check_slurm(question), "held lock": lambda: [_check_lock(path)]})
    answer = {
        "hostname": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "checks": [asdict(check) for check in checks],
    }
    write_atomically(path / "answer.json", orjson.dumps(answer))


def _check_lock(folder: Path) -> Check:
    outcome = machine.try_lock(folder / "held.lock")
    if outcome == "held":
        return ok("locks across nodes", "a lock held on the login node keeps this node out")
    return failure(
        "locks across nodes",
        f"a lock held on the login node was {outcome} here: mount the filesystem with locks that all nodes share "
        "(NFS: no nolock or local_lock; Lustre: flock, not localflock), or give another --output",
    )


def _parameters(question: Question) -> dict[str, Any]:
    parameters = profiles.submitit_parameters({**question.sbatch, "time": _MINUTES})
    parameters.pop("array_parallelism", None)
    if isinstance(own := parameters.get("python"), PythonCommand):
        launch = question.launch
        named = [*question.named.values(), launch.target.adapter, launch.spec_model, question.data_dir]
        parameters["python"] = own.showing([name for name in named if name])
    additional = {name: value for name, value in parameters["additional_parameters"].items() if name != "requeue"}
    return {**parameters, "signal_delay_s": 5, "additional_parameters": additional}


def _wait(folder: Path, name: str, seconds: float) -> NodeAnswer:
    deadline, queried_at, gone_at = time.monotonic() + seconds, time.monotonic(), None
    state = "submitted"
    while time.monotonic() < deadline:
        if (folder / "answer.json").exists():
            answer = orjson.loads((folder / "answer.json").read_bytes())
            _wait_until_gone(name)
            return NodeAnswer(answer["hostname"], [Check(**check) for check in answer["checks"]])
        if gone_at is not None and time.monotonic() - gone_at > _GRACE_SECONDS:
            return _no_answer(f"the job ended without an answer: {_last_log_line(folder)}")
        if time.monotonic() - queried_at > _QUEUE_SECONDS and gone_at is None:
            queried_at = time.monotonic()
            tasks = _tasks(name)
            if tasks is not None:
                gone_at = None if tasks else time.monotonic()
                state = " ".join(f"{task.state} {task.reason}" for task in tasks) or state
        time.sleep(_POLL_SECONDS)
    return _no_answer(f"no node answered within {seconds:.0f} s; the job is {state}: wait longer with --wait")


def _wait_until_gone(name: str) -> None:
    """Wait until the job has ended: it writes to the folder for a moment after its answer."""
    deadline = time.monotonic() + _GRACE_SECONDS
    while _tasks(name) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


def _tasks(name: str) -> list[client.Task] | None:
    try:
        return [task for task in client.queue([name]) if task.is_active]
    except client.SlurmError:
        return None


def _cancel(name: str) -> None:
    try:
        if _tasks(name):
            client.cancel([name])
    except client.SlurmError as error:
        print(f"the job {name} may still be queued: {error}", file=sys.stderr)


def _last_log_line(folder: Path) -> str:
    """Return the exception that the job's log ends with, else its last line."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted((folder / "logs" / "jobs").glob("*_log.*")))
    if not text.strip():
        return "it wrote nothing, so the node may not see this folder or this Python"
    return error_in(text) or text.strip().splitlines()[-1][:_MAX_LINE_CHARACTERS]


def _no_answer(reason: str) -> NodeAnswer:
    return NodeAnswer("node", [failure("job", reason)])
