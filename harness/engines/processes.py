"""Starting and ending the processes of an engine: their environment, their output, and that none is left behind.

Environment and file descriptors belong to the whole process and are inherited by its children when they start. So only
one engine starts at a time, and both are restored once it has started.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

_STARTING = threading.Lock()
_TAIL_BYTES = 64 << 10


@contextlib.contextmanager
def starting(log_path: Path, variables: Mapping[str, str | None]) -> Iterator[None]:
    """Let this process and its new children write to the log file and see these variables (None: unset)."""
    with _STARTING, _environment(variables), _output_to(log_path):
        yield


def children() -> set[psutil.Process]:
    """Return the engine processes below this one.

    The resource tracker of multiprocessing is shared between engines and is not one of them.
    """
    engine_processes = set()
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if "spawn_main" in command or command.startswith("VLLM"):
                engine_processes.add(process)
    return engine_processes


def kill(processes: set[psutil.Process], grace_seconds: float = 0.0) -> int:
    """Wait for these processes and all below them to end, and kill those still running after the grace time.

    Returns the number of killed processes.
    """
    tree = set(processes)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            tree.update(process.children(recursive=True))
    _, alive = psutil.wait_procs(list(tree), timeout=grace_seconds)
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=10)
    return len(alive)


def last_lines(log_path: Path, lines: int = 20) -> str:
    """Return the last non-empty lines of an engine's output, for an error message."""
    tail = [line for line in _tail(log_path).splitlines() if line.strip()][-lines:]
    return "\n".join(tail) or "(no output)"


def root_cause(log_path: Path) -> str | None:
    """Return the first exception in an engine's output: later ones only report that a child process failed."""
    exception = re.search(r"(?:^|\] )((?:\w+\.)*\w+(?:Error|Exception): .+)$", _tail(log_path), re.MULTILINE)
    return exception[1].strip() if exception else None


def _tail(log_path: Path) -> str:
    try:
        with log_path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


@contextlib.contextmanager
def _environment(variables: Mapping[str, str | None]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    try:
        _set(variables)
        yield
    finally:
        _set(before)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@contextlib.contextmanager
def _output_to(log_path: Path) -> Iterator[None]:
    """Redirect descriptors 1 and 2 to the file, so that the output of native code and dying processes is in it too."""
    log_path.parent.mkdir(parents=True, exist_ok=True)
    streams: list[object] = [stream for stream in (sys.stdout, sys.stderr) if stream is not None]
    originals = [os.dup(1), os.dup(2)]
    file = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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
