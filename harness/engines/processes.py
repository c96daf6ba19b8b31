"""Starting and ending the processes of an engine: their environment, their output, and that none is left behind.

Environment and file descriptors belong to the whole process and are inherited by its children when they start. So only
one engine starts at a time, and both are restored once it has started.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from harness.engines import caches, guard, parent_watch, start_log

MARK = "HARNESS_ENGINE"
"""Environment variable: names the start of an engine that a process belongs to."""
_WORKER_MARK = secrets.token_hex(8)
_STARTS = itertools.count()
_MAX_ROUNDS = 5
_STARTING = threading.Lock()


@contextlib.contextmanager
def starting(log_path: Path, variables: Mapping[str, str | None]) -> Iterator[EngineProcesses]:
    """Let this process and its new children write to the log file and see these variables (None: unset).

    Yields the processes that are started inside.
    """
    with _STARTING:
        guard.start(f"{MARK}={_WORKER_MARK}.")
        parent_watch.watch_forks()
        engine = EngineProcesses()
        # The title that a process of vLLM gives itself would otherwise be written over the environment it started with.
        marks = {MARK: engine.mark, "SPT_NOENV": "1"}
        with _environment({**variables, **marks}), output_to(log_path):
            yield engine


class EngineProcesses:
    """The processes of one start of an engine, whatever they are called and whoever their parent is by now.

    Each of them was started with a mark in its environment. A process that was forked lacks it, so new processes below
    this one that watch their parents (harness.engines.parent_watch) are found too while the engine starts.
    """

    def __init__(self) -> None:
        """Make this right before the start, while `starting` keeps other engines from starting."""
        self.mark = f"{_WORKER_MARK}.{next(_STARTS)}"
        self._before = _below(psutil.Process())
        self._known: set[psutil.Process] = set()
        self._ranks: set[psutil.Process] = set()
        self._is_starting = True

    def find(self) -> set[psutil.Process]:
        """Return those that are running now. Reads the environment of every process of this user."""
        found = {process for process in _every_process() if _mark_of(process) == self.mark}
        if self._is_starting:
            new = _below(psutil.Process()) - self._before
            found |= {process for process in new if _mark_of(process) is None and _is_watching(process)}
        for process in self._known:
            found |= _below(process)
        self._known |= {process for process in found if not _is_shared(process)}
        self._known = {process for process in self._known if _is_running(process)}
        return set(self._known)

    def started(self) -> None:
        """Take note that the start is over: what this process starts from now on is not the engine's."""
        found = self.find()
        caches.note_shared_memory(process.pid for process in found)
        self._ranks = {process for process in found if _is_watching(process)}
        self._is_starting = False

    def has_lost_one(self) -> bool:
        """Return True if a process that computes or schedules has ended; the others are then of no use."""
        return not all(_is_running(process) for process in self._ranks)

    def kill(self, grace_seconds: float = 0.0) -> int:
        """Wait for all of them to end, and kill those still running after the grace time; returns how many."""
        _, alive = psutil.wait_procs(list(self.find()), timeout=grace_seconds)
        killed = 0
        for _ in range(_MAX_ROUNDS):  # a process may have started another one meanwhile
            alive = list(self.find())
            if not alive:
                break
            killed += len(alive)
            for process in alive:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(alive, timeout=10)
        return killed


def last_lines(log_path: Path, lines: int = 20) -> str:
    """Return the last non-empty lines of what an engine wrote since its last start, for an error message."""
    written = start_log.without_marks(start_log.tail(log_path))
    return "\n".join([line for line in written.splitlines() if line.strip()][-lines:]) or "(no output)"


def root_cause(log_path: Path) -> str | None:
    """Return the first exception since an engine's last start: later ones only report that a child process failed."""
    exception = re.search(r"(?:^|\] )((?:\w+\.)*\w+(?:Error|Exception): .+)$", start_log.tail(log_path), re.MULTILINE)
    return exception[1].strip() if exception else None


def _below(process: psutil.Process) -> set[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return set(process.children(recursive=True))
    return set()


def _every_process() -> Iterator[psutil.Process]:
    for number in psutil.pids():
        with contextlib.suppress(psutil.Error):
            yield psutil.Process(number)  # psutil.process_iter would keep one whose number was taken by another


def _mark_of(process: psutil.Process) -> str | None:
    with contextlib.suppress(psutil.Error, OSError):
        mark: str | None = process.environ().get(MARK)
        return mark
    return None


def _is_running(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _is_shared(process: psutil.Process) -> bool:
    """Return True for helpers of multiprocessing that serve all of this worker and only happened to start now."""
    with contextlib.suppress(psutil.Error):
        command = " ".join(process.cmdline())
        return "multiprocessing.resource_tracker" in command or "multiprocessing.forkserver" in command
    return False


def _is_watching(process: psutil.Process) -> bool:
    """Return True if the process has loaded the plug-in of this project, as only vLLM's own processes do."""
    with contextlib.suppress(OSError):
        names = Path(f"/proc/{process.pid}/task").glob("*/comm")
        return any(name.read_text().strip() == parent_watch.THREAD for name in names)
    return False


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables, and afterwards restore them and every other variable of vLLM's.

    vLLM sets some in this process for models of certain kinds (VLLM_USE_DEEP_GEMM_E8M0, VLLM_USE_BREAKABLE_CUDAGRAPH).
    The engine that starts next would compute in another way than alone.
    """
    before = {name: os.environ.get(name) for name in {*variables, *_own_names()}}
    try:
        _set(variables)
        yield
    finally:
        _set({**dict.fromkeys(_own_names()), **before})


def _own_names() -> list[str]:
    return [name for name in os.environ if name.startswith("VLLM_")]


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def output_to(log_path: Path) -> Iterator[None]:
    """Redirect descriptors 1 and 2 to the file, so that the output of native code and dying processes is in it too."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    streams: list[object] = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    originals = [os.dup(1), os.dup(2)]
    file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)  # less the umask
    try:
        for number in (1, 2):
            _flush(streams)
            os.dup2(file, number)
        yield
    finally:
        _flush(streams)
        for number, original in zip((1, 2), originals, strict=True):
            os.dup2(original, number)
            os.close(original)
        os.close(file)


def _flush(streams: list[Any]) -> None:
    for stream in streams:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
