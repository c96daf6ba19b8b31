"""What `harness.doctor` asks of Slurm: commands, accounting, valid options, and checks on a node, as a one-minute job.

The question to a node and its answer are files in the output folder, which tests that folder as well: a lock that is
held here must keep a node out, or two workers could run the same shard.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock

from harness import environment
from harness.checks import machine
from harness.checks.finding import Check, Question, failure, ok, warning
from harness.sizing.memory import Option
from jobs.checks import checks
from jobs.run import codes
from jobs.run.files import write_atomically
from jobs.run.folder import RunFolder, until_seen
from jobs.slurm import client, profiles
from jobs.submission import submit
from jobs.watch.failures import reason_in

_COMMANDS = ("sbatch", "squeue", "scancel", "scontrol")
"""Commands without which nothing can be submitted or watched; runs can do without sacct."""
_REPLY_SECONDS = 15.0
_MINUTES = "1"
_MAX_LINE_CHARACTERS = 300
_PROBE_SECONDS, _LIMIT_SECONDS = 35.0, 40.0
"""Together with Python's start-up, less than the job's time limit."""
_POLL_SECONDS = 2.0
"""Time between two queries of Slurm's queue."""


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
            task, folders = ("check", str(folder)), _folders(question)
            try:
                job = submit.submit_alone(folder, name, _parameters(question), *task, folders=folders)
            except (RuntimeError, OSError) as rejection:
                return _no_answer(f"sbatch rejected the job: {rejection}")
            tell(f"job {job} is checking a node …")
            return _wait(folder, name, wait_seconds)
    finally:
        with contextlib.suppress(client.SlurmError):
            client.cancel([name])
        shutil.rmtree(folder, ignore_errors=True)
        if is_new_folder:
            with contextlib.suppress(OSError):  # somebody may use it by now
                output.rmdir()


def check_here(folder: str) -> None:
    """Run the checks on the node, and write the answer to the folder."""
    path = Path(folder)
    question = Question.read(path / "question.json")
    if question.launch.method:
        codes.load_submitted(question.launch.method)
    found = checks(question, {"slurm": lambda: check_slurm(question), "held lock": lambda: [_check_lock(path)]})
    answer = {
        "hostname": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "checks": [asdict(check) for check in found],
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
    parameters = profiles.submitit_parameters({**question.sbatch, "time": _MINUTES, "requeue": False})
    parameters.pop("array_parallelism", None)
    return {**parameters, "signal_delay_s": 5}


def _folders(question: Question) -> list[str]:
    """Return names among which are folders that a container shows."""
    launch = question.launch
    files = str(launch.prompts.parent) if launch.prompts else None
    named = [*launch.models.values(), launch.target.adapter, launch.spec_model, files, question.data_dir]
    return [name for name in named if name]


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
        return _no_answer(f"no node answered within {seconds:.0f} s; the job is {state}: wait longer with --wait")
    path = folder / "answer.json"
    until_seen(RunFolder(folder), path.exists)
    if not path.exists():
        return _no_answer(f"the job ended without an answer: {_last_log_line(folder)}")
    answer = orjson.loads(path.read_bytes())
    return NodeAnswer(answer["hostname"], [Check(**check) for check in answer["checks"]])


def _last_log_line(folder: Path) -> str:
    """Return the reason that the job's log names, else its last line."""
    text = "\n".join(path.read_text(errors="replace") for path in sorted((folder / "logs" / "jobs").glob("*_log.*")))
    if not text.strip():
        return "it wrote nothing, so the node may not see this folder or this Python"
    return reason_in(text) or text.strip().splitlines()[-1][:_MAX_LINE_CHARACTERS]


def _no_answer(reason: str) -> NodeAnswer:
    return NodeAnswer("node", [failure("job", reason)])


def check_slurm(question: Question) -> Iterator[Check]:
    """Check Slurm from this machine, a login node or a node.

    Every call has a time limit, because clients without client.conf hang for a minute.
    """
    missing = [command for command in _COMMANDS if shutil.which(command) is None]
    if missing and client.REQUEUE_CODE in os.environ:
        text = f"no {', '.join(missing)} in the container; the batch script requeues its job at the time limit"
        yield ok("slurm", f"{text}. A night's verdict submits jobs and needs them: [nightly.slurm] python = …")
        return
    if missing:
        if question.cluster == "slurm":
            yield failure("slurm", f"{', '.join(missing)} not found: load the site's Slurm module or log in elsewhere")
        else:
            yield ok("slurm", f"none here; runs go to --cluster {question.cluster}")
        return
    try:
        if "UP" not in client.ping(_REPLY_SECONDS):
            raise client.SlurmError("scontrol ping: DOWN")
    except client.SlurmError as error:
        is_needed = question.cluster == "slurm"
        configuration = os.environ.get("SLURM_CONF", "the site's client.conf")
        text = f"no controller answers ({error}): see {configuration}, or sinfo"
        yield failure("slurm", text) if is_needed else ok("slurm", f"{text}; runs go to --cluster {question.cluster}")
        return
    yield ok("slurm", "the controller answers")
    yield _accounting()
    if not question.on_node and question.cluster == "slurm":
        yield _options(dict(question.sbatch))


def _accounting() -> Check:
    try:
        client.ask("sacct", "-n", "-X", "-P", "-S", "now-1minutes", "-o", "JobID", seconds=_REPLY_SECONDS)
    except client.SlurmError as error:
        return warning(
            "slurm accounting", f"{error}; runs work without it, but status has no GPU-hours and not why tasks ended"
        )
    return ok("slurm accounting", "sacct answers")


def _options(options: Mapping[str, Option]) -> Check:
    """Check whether sbatch would accept a job with these options; nothing is submitted."""
    parameters = profiles.submitit_parameters(options)
    passed = {"time": parameters["time"], **parameters["additional_parameters"]}
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in passed.items()]
    command = ["sbatch", "--test-only", *flags, "--wrap=true"]
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        completed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=_REPLY_SECONDS,
            check=False,
            env=environment,
            cwd=Path("/"),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return failure("sbatch", f"does not answer: {error}")
    reply = " ".join((completed.stderr or completed.stdout).replace("sbatch: ", "").split())
    if completed.returncode != 0:
        return failure(
            "sbatch", f"would reject the job: {reply}; see --partition, --account, --qos, --gpus-per-node, --time"
        )
    return ok("sbatch", f"would accept the job: {reply.removeprefix('Job ')}")
