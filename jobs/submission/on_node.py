"""The checks of `harness.doctor` on a node, as a one-minute job.

Question and answer are files in the output folder, which tries it as well: a lock that is held here must keep a node
out, or two workers could run one shard.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
from filelock import FileLock

from harness.checks import every, storage
from harness.checks.check import Check, Question, failure, ok
from jobs.run.files import write_atomically
from jobs.slurm import client, profiles
from jobs.slurm.checks import check_slurm
from jobs.submission import snapshot, submit

_MINUTES = "1"
_PROBE_SECONDS, _LIMIT_SECONDS = 35.0, 40.0
"""Less than the job's limit, with what Python needs to start."""
_FIRST_LOOK_SECONDS, _ASK_SECONDS = 0.5, 5.0
_GRACE_SECONDS = 20.0
"""After Slurm has no job any more: a shared filesystem may show a file late."""


@dataclass(frozen=True)
class NodeAnswer:
    """What a node found."""

    hostname: str
    checks: list[Check]


def ask_node(question: Question, wait_seconds: float, tell: Callable[[str], None]) -> NodeAnswer:
    """Submit the checks, wait, and clean up. A job that never answers is a failure with what is known of it."""
    new = not Path(question.output).exists()
    try:
        Path(question.output).mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=".doctor-", dir=question.output))
    except OSError as problem:
        return _none(f"{question.output} cannot be written to ({problem.strerror})")
    name = f"harness-doctor-{socket.gethostname()}-{os.getpid()}"
    try:
        asked = replace(
            question, on_node=True, cluster="slurm", probe_seconds=_PROBE_SECONDS, limit_seconds=_LIMIT_SECONDS
        )
        write_atomically(folder / "question.json", asked.to_json().encode())
        with FileLock(folder / "held.lock"):
            try:
                job = submit.submit_call(folder, name, _parameters(question.sbatch or {}), check_here, str(folder))
            except (RuntimeError, OSError) as refused:
                return _none(f"sbatch did not take the job: {_reason(str(refused))}")
            tell(f"job {job} looks at a node …")
            return _wait(folder, name, wait_seconds)
    finally:
        _cancel(name)
        shutil.rmtree(folder, ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):
                Path(question.output).rmdir()


def check_here(folder: str) -> None:
    """On the node: look at everything and leave the answer in the folder."""
    # Slurm may send the signal that submitit takes for a time-out up to a minute early: at once, for this job
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    snapshot.require()
    where = Path(folder)
    question = Question.read(where / "question.json")
    found = every.checks(question, {"slurm": lambda: check_slurm(question), "held lock": lambda: [_held(where)]})
    answer = {
        "hostname": os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        "checks": [asdict(c) for c in found],
    }
    write_atomically(where / "answer.json", orjson.dumps(answer))


def _held(folder: Path) -> Check:
    seen = storage.try_lock(folder / "held.lock")
    if seen == "held":
        return ok("locks across nodes", "a lock held on the login node keeps this node out")
    return failure(
        "locks across nodes",
        f"a lock held on the login node was {seen} here: mount the filesystem with locks that all nodes share "
        "(NFS: no nolock or local_lock; Lustre: flock, not localflock), or give another --output",
    )


def _parameters(words: Mapping[str, Any]) -> dict[str, Any]:
    parameters = profiles.submitit_parameters({**words, "time": _MINUTES})
    parameters.pop("array_parallelism", None)
    further = {word: value for word, value in parameters["additional_parameters"].items() if word != "requeue"}
    return {**parameters, "signal_delay_s": 5, "additional_parameters": further}


def _wait(folder: Path, name: str, seconds: float) -> NodeAnswer:
    until, asked_at, gone_at = time.monotonic() + seconds, time.monotonic(), None
    state = "submitted"
    while time.monotonic() < until:
        if (folder / "answer.json").exists():
            answer = orjson.loads((folder / "answer.json").read_bytes())
            _until_gone(name)
            return NodeAnswer(answer["hostname"], [Check(**check) for check in answer["checks"]])
        if gone_at is not None and time.monotonic() - gone_at > _GRACE_SECONDS:
            return _none(f"the job ended without an answer: {_last_words(folder)}")
        if time.monotonic() - asked_at > _ASK_SECONDS and gone_at is None:
            asked_at = time.monotonic()
            tasks = _tasks(name)
            if tasks is not None:
                gone_at = None if tasks else time.monotonic()
                state = " ".join(f"{task.state} {task.reason}" for task in tasks) or state
        time.sleep(_FIRST_LOOK_SECONDS)
    return _none(f"no node answered within {seconds:.0f} s, the job is {state}: wait longer with --wait")


def _until_gone(name: str) -> None:
    """The job still writes to the folder for a moment."""
    until = time.monotonic() + _GRACE_SECONDS
    while _tasks(name) and time.monotonic() < until:
        time.sleep(_FIRST_LOOK_SECONDS)


def _tasks(name: str) -> list[client.Task] | None:
    try:
        return [task for task in client.queue([name]) if task.is_active]
    except client.SlurmError:
        return None


def _cancel(name: str) -> None:
    try:
        if _tasks(name):
            client.cancel([name])
    except client.SlurmError as silent:
        print(f"the job {name} may still be there: {silent}", file=sys.stderr)


def _reason(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "error:" in line), lines[-1] if lines else "it gave no reason")


def _last_words(folder: Path) -> str:
    lines = [
        line.strip()
        for path in sorted((folder / "logs" / "jobs").glob("*_log.*"))
        for line in path.read_text(errors="replace").splitlines()
        if line.strip()
    ]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Exit)\b", line)]
    return (
        (named or lines)[-1][:300] if lines else "it wrote nothing, so the node may not see this folder or this Python"
    )


def _none(reason: str) -> NodeAnswer:
    return NodeAnswer("node", [failure("job", reason)])
