"""Entry point of a Slurm job or local worker process: `python -m jobs.submission.task KIND ARGUMENT…`.

A Slurm job gets a path and short arguments, and reads everything else from that path; a local worker gets JSON.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from jobs.run import submissions
from jobs.run.files import RunDamaged
from jobs.run.folder import RunFolder, until_seen
from jobs.run.submissions import Submission
from jobs.slurm import client
from jobs.submission import code_archive
from jobs.watch import exit_reasons


def _work(folder: str, number: str) -> None:
    """Run the shards that a submission assigned to this array task."""
    from jobs.work import worker

    run, index = RunFolder(Path(folder)), int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))
    submission = _recorded(run, lambda one: one.number == int(number))
    runs = [RunFolder(run.path.parent / name) for name in submission.runs or [run.path.name]]
    of_runs = [_recorded(one, lambda other: other.name == submission.name) for one in runs]
    assigned = [(str(one.path), own.tasks[index]) for one, own in zip(runs, of_runs, strict=True)]
    parts = [(path, shards) for path, shards in assigned if shards]
    job_name = submission.name if submission.runs else None
    if submission.workers_per_task == 1:
        worker.run_parts(parts, job_name)
    else:
        worker.run_side_by_side(parts, submission.workers_per_task, job_name)


def _recorded(run: RunFolder, is_wanted: Callable[[Submission], bool]) -> Submission:
    """Return a submission, which another machine may have just recorded. Raises RunDamaged."""
    until_seen(run, lambda: any(map(is_wanted, submissions.read(run))))
    found = next(filter(is_wanted, submissions.read(run)), None)
    if found is None:
        raise RunDamaged(f"{run.path} has no record of this job")
    return found


def _share(described: str) -> None:
    from jobs.work import worker

    worker.run_share(**json.loads(described))


def _conclude(folder: str) -> None:
    from jobs import after

    after.conclude(folder)


def _judge(suite: str, night: str, *confirmed: str) -> None:
    from jobs import nightly

    nightly.give_verdict(suite, night, bool(confirmed))


def _check(folder: str) -> None:
    from jobs.submission import on_node

    on_node.check_here(folder)


_TERMINATED = 128 + signal.SIGTERM
"""Exit code that shells use for SIGTERM."""
_KINDS: Mapping[str, Callable[..., None]] = {
    "work": _work, "here": _share, "conclude": _conclude, "judge": _judge, "check": _check,
}  # fmt: skip


def main(arguments: list[str]) -> None:
    """Run a job. Exits with code 2 and an error line if this process lacks the submitted code or the job variables."""
    kind, *described = arguments
    # Workers handle both signals while running, and check the time limit themselves before that.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED))
    now = datetime.now(UTC).isoformat(" ", "seconds")
    print(f"{exit_reasons.BEGINS} on {socket.gethostname()} at {now}", flush=True)
    try:
        code_archive.require()
    except RuntimeError as error:
        _stop(str(error))
    if kind != "here" and client.this_job() is None:
        _stop(f"{sys.executable} lacks the job's environment variables: pass the node's environment to the container")
    with exit_reasons.logged():
        _KINDS[kind](*described)


def _stop(text: str) -> None:
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
