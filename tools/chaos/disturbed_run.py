"""A run in the chaos loop: launching it, finding its processes, and finishing it."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.run import submissions
from jobs.run.endings import read_endings
from jobs.run.files import FileDamaged
from jobs.run.folder import RunFolder
from jobs.run.journal import attempt_in
from jobs.slurm import client

COMMAND_SECONDS = 240.0
"""Seconds after which a command counts as hanging."""
_WAIT_SECONDS = 3.0
SCRIPTED = ("--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--concurrency", "4")


def build(folder: Path) -> Path:
    """Compile the library that disturbs clock and disk; return its path."""
    library = folder / "disturbed.so"
    if not library.exists():
        source = Path(__file__).with_name("disturbed.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def make_shared(folder: Path, users: Sequence[int]) -> None:
    """Create a folder whose files belong to the users' group."""
    folder.mkdir(parents=True, exist_ok=True)
    if users:
        os.chown(folder, users[0], users[0])
        folder.chmod(0o2775)


def start(folder: Path, environment: Mapping[str, str], users: Sequence[int], *command: str) -> subprocess.Popen[bytes]:
    """Start a command of this project as the first of `users`; its output is appended to a log in the folder."""
    who: dict[str, Any] = {}
    if users:
        home = folder / f"home-{users[0]}"
        home.mkdir(mode=0o700, exist_ok=True)
        os.chown(home, users[0], users[0])
        environment = {**environment, "HOME": str(home)}
        who = {"user": users[0], "group": folder.stat().st_gid, "extra_groups": [], "umask": 0o002}
    with (folder / "commands.log").open("ab") as log:
        log.write(f"\n$ {' '.join(command)}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **who,
        )


class Control:
    """Faults of the clock and disk of the run's processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0, is_full=False)

    def set(self, clock_seconds: int, *, is_full: bool) -> None:
        """Change the clock's and the disk's fault at once. The file is changed in place, because processes have mapped
        it.
        """
        self.clock_seconds = clock_seconds
        with self.path.open("r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack("=qq", clock_seconds, is_full))


@dataclass
class DisturbedRun:
    """One run of the chaos loop, in a separate folder."""

    folder: Path
    library: Path
    on_slurm: bool
    seconds_per_call: float
    flags: Sequence[str]
    users: Sequence[int] = ()
    """Ids of the users who take turns starting commands; empty: the user who started the loop. Their group's id is the
    first user's id.
    """
    refusals: list[str] = field(default_factory=list)
    """Last output lines of commands that failed without being killed."""
    _num_started: int = 0
    _launcher: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        make_shared(self.folder, self.users)
        self.control = Control(self.folder / "control")
        quiet = {**os.environ, SCRIPTED_SECONDS: str(self.seconds_per_call), "COLUMNS": "200"}
        if not self.on_slurm:
            quiet["SLURM_CONF"] = "/nowhere"
        self.environment = {**quiet, "LD_PRELOAD": str(self.library), "CHAOS_CONTROL": str(self.control.path)}

    @property
    def run(self) -> RunFolder | None:
        """The run's folder; None before its plan exists."""
        found = [RunFolder(path) for path in (self.folder / "runs").glob("demo-*")]
        return next((run for run in found if run.exists()), None)

    @property
    def database(self) -> Path:
        """The warehouse next to the run."""
        return self.folder / "runs" / "warehouse.duckdb"

    def num_finished(self) -> int:
        """Return the number of finished samples."""
        try:
            return 0 if self.run is None else len(read_endings(self.run).finished)
        except (FileDamaged, OSError):
            return 0

    def num_planned(self) -> int:
        """Return the number of samples; 1 before there is a plan."""
        return 1 if self.run is None else self.run.units_by_shard().num_rows

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a command of this project in a new session; its output is appended to commands.log."""
        self._num_started += 1
        return start(self.folder, self.environment, self.users[self._num_started % len(self.users or (0,)) :], *command)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the launch command of the run."""
        cluster = "slurm" if self.on_slurm else "local"
        output = ("--output", str(self.folder / "runs"))
        more = ("--mem", "2G") if self.on_slurm else ()
        return self.start("harness.launch", *self.flags, "--cluster", cluster, *more, *output)

    def go_on(self) -> None:
        """Launch again, as a user would, unless the run is being worked on or queued."""
        if self.on_slurm:
            if not self.tasks():
                self.wait(self.launch())
        elif self._launcher is None or self._launcher.poll() is not None:
            self._launcher = self.launch()

    def wait(self, command: subprocess.Popen[bytes], *, may_be_incomplete: bool = False) -> None:
        """Wait for a command, and record a failure. A command that hangs is killed, which is recorded too.

        `may_be_incomplete`: exit code 1 is no failure, because a process that the command needs was killed.
        """
        try:
            code = command.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(command.pid, signal.SIGKILL)
            code = command.wait()
            self.refusals.append(f"no end within {COMMAND_SECONDS:g} s: {command.args!r}")
        if code > may_be_incomplete:
            lines = (self.folder / "commands.log").read_text(errors="replace").splitlines()
            self.refusals.append(f"exit code {code}: {next((line for line in reversed(lines) if line.strip()), '')}")

    def tasks(self) -> list[client.Task]:
        """Return the run's active tasks in Slurm's queue; empty while Slurm does not answer."""
        if self.run is None:
            return []
        names = [submission.name for submission in submissions.read(self.run)]
        with contextlib.suppress(client.SlurmError):
            return [task for task in client.queue(names) if task.is_active]
        return []

    def workers(self) -> list[psutil.Process]:
        """Return the processes that are working on the run's shards."""
        found = []
        for path in self.run.journals() if self.run else ():
            with (
                contextlib.suppress(OSError, psutil.Error, FileDamaged, ValueError, KeyError),
                path.open("rb") as lines,
            ):
                process = psutil.Process(int((attempt_in(path, next(iter(lines), b"")) or {})["pid"]))
                if "jobs.submission.task" in process.cmdline():
                    found.append(process)
        return found

    def launcher(self) -> subprocess.Popen[bytes] | None:
        """Return the launcher that is running on this machine; None if there is none."""
        return self._launcher if self._launcher and self._launcher.poll() is None else None

    def calm(self) -> None:
        """End all lasting disturbances: the faults of clock and disk, and stopped processes."""
        self.control.set(0, is_full=False)
        for worker in self.workers():
            with contextlib.suppress(psutil.Error):
                for process in [worker, *worker.children(recursive=True)]:
                    process.resume()

    def conclude(self, seconds: float) -> None:
        """Wait until no process or job works on the run, then grade and load it undisturbed. Raises TimeoutError."""
        self.calm()
        deadline = time.monotonic() + seconds
        while self.launcher() or (self.on_slurm and (self.tasks() or self._has_finalizer())):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder}: jobs are still running after {seconds:g} s")
            time.sleep(_WAIT_SECONDS)
            if self.on_slurm:
                self.wait(self.launch())  # removes jobs that Slurm has abandoned and that other jobs wait for
        self.wait(self.start("jobs", "finalize", str(self.run.path if self.run else self.folder)))

    def _has_finalizer(self) -> bool:
        assert self.run is not None
        names = [submissions.finalizer_name(submission.name) for submission in submissions.read(self.run)]
        with contextlib.suppress(client.SlurmError):
            return any(task.is_active for task in client.queue(names))
        return True

    def end(self) -> None:
        """Stop all processes started on this machine, for example when the loop is interrupted."""
        self.calm()
        if launcher := self.launcher():
            os.killpg(launcher.pid, signal.SIGTERM)
            launcher.wait(COMMAND_SECONDS)
