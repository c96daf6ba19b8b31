"""The lines that begin and end an engine's start in its log, and how far vLLM's lines between them say that it is.

A worker that starts engines has no journal yet, so its engines' logs are what others can know of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import psutil

from harness.engine import Role

_BEGIN = re.compile(
    r"^== the (?P<role>\w+) engine starts in process (?P<pid>[1-9]\d{0,8}) on (?P<host>\S+) at .*$", re.MULTILINE
)
_END = re.compile(r"^== the \w+ engine (?:answers|did not start)$", re.M)
_TAIL_BYTES = (64 << 10, 1 << 20)
"""How much of the end of a log is read: a start that wrote more than the first has its beginning in the second."""
_LOADED = "measuring memory"
_PHASES = {
    "Initializing a V1 LLM engine": "starting vLLM's processes",
    "Starting to load model": "loading weights",
    "Loading weights took": _LOADED,
    "Warming up model for the compilation": _LOADED,
    "Dynamo bytecode transform time": _LOADED,
    "Capturing CUDA graphs": "capturing CUDA graphs",
    "Graph capturing finished": "preparing the first requests",
    "init engine (profile, create kv cache, warmup model) took": "first requests of the warm-up",
}
"""What vLLM 0.31 and 0.32 print, and what they do from then on."""
_SHARE = re.compile(r"checkpoint shards:\s+(\d+)% Completed|Capturing CUDA graphs[^:\n]*:\s+(\d+)%")
_EAGER = "enforce_eager=True"


def begin(log: Path, role: Role) -> None:
    """Write that an engine starts in this process."""
    now = datetime.now(UTC).isoformat(" ", "seconds")
    _write(log, f"== the {role} engine starts in process {os.getpid()} on {socket.gethostname()} at {now}")


def end(log: Path, role: Role, *, is_ready: bool) -> None:
    """Write that the engine has answered its first requests, or that it did not start."""
    _write(log, f"== the {role} engine {'answers' if is_ready else 'did not start'}")


def tail(log: Path) -> str:
    """Return the end of a log since the last start in it; empty where there is no log."""
    text = ""
    for num_bytes in _TAIL_BYTES:
        try:
            with log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - num_bytes))
                text = file.read().decode("utf-8", "replace")
        except OSError:
            return ""
        if begins := list(_BEGIN.finditer(text)):
            return text[begins[-1].start() :]
        if size <= num_bytes or _END.search(text):
            break
    return text


def without_marks(text: str) -> str:
    """Return what the engine itself has written."""
    return _END.sub("", _BEGIN.sub("", text))


def phase(log: Path) -> str | None:
    """Return what a starting engine is at, as `target: loading weights (50 %)`.

    None where no engine is starting: it answers, has failed, or its worker is no longer there, as far as this machine
    can tell.
    """
    text = tail(log)
    begun = _BEGIN.match(text)
    if begun is None or _END.search(text) is not None:
        return None
    is_gone = begun["host"] == socket.gethostname() and not psutil.pid_exists(int(begun["pid"]))
    if is_gone:
        return None
    return f"{begun['role']}: {_phase_in(text)}"


def last_lines(log_path: Path, lines: int = 20) -> str:
    """Return the last non-empty lines of what an engine wrote since its last start, for an error message."""
    written = without_marks(tail(log_path))
    return "\n".join([line for line in written.splitlines() if line.strip()][-lines:]) or "(no output)"


def root_cause(log_path: Path) -> str | None:
    """Return the first exception since an engine's last start: later ones only report that a child process failed."""
    exception = re.search(r"(?:^|\] )((?:\w+\.)*\w+(?:Error|Exception): .+)$", tail(log_path), re.MULTILINE)
    return exception[1].strip() if exception else None


def _phase_in(text: str) -> str:
    found, since = "importing vLLM", 0
    for line, name in _PHASES.items():
        if (place := text.rfind(line)) >= since and place >= 0:
            found, since = name, place
    if found == _LOADED and _EAGER not in text:
        return "compiling and measuring memory"
    shares = _SHARE.findall(text, since)
    return f"{found} ({''.join(shares[-1])} %)" if shares and found != _LOADED else found


def _write(log: Path, line: str) -> None:
    with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:  # a full disk ends the run elsewhere
        file.write(f"{line}\n")
