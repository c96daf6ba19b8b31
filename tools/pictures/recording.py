"""Record the README's terminal: `python -m tools.pictures.recording TERMTOSVG`, in the repository's root.

Runs `make demo-full` in a terminal of 80 columns and 24 lines and writes `demo.svg`, an animation without scripts,
next to this module. TERMTOSVG is the path of termtosvg (`pip install termtosvg "setuptools<80"` in a separate
environment, because nothing else requires it). An optional second argument is the command to record instead.
"""

from __future__ import annotations

import codecs
import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

COLUMNS, LINES = 80, 24
SECONDS = 24.0
"""Length of the animation, to which the minutes of the demo are shortened."""
FRAME_MILLISECONDS = 400
LAST_FRAME_MILLISECONDS = 12_000
"""Time for which the last screen is shown before the animation starts again."""
MOST_BYTES = 150_000
Event = tuple[float, str]
"""Seconds since the start, and the output written at that time."""


def events(command: str) -> Iterator[Event]:
    """Run a command in a new terminal and yield its output. Raises CalledProcessError if it fails."""
    child, terminal = pty.fork()
    if child == 0:
        # With these variables, make would print the folder that it enters.
        own = {name: text for name, text in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS")}
        os.execvpe("sh", ["sh", "-c", command], {**own, "TERM": "xterm", "COLUMNS": str(COLUMNS)})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began, decoder = time.monotonic(), codecs.getincrementaldecoder("utf-8")("replace")
    yield 0.0, f"$ {command}\r\n"
    while chunk := _read(terminal):
        yield time.monotonic() - began, decoder.decode(chunk)
    if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise subprocess.CalledProcessError(code, command)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # on Linux, the error after the command has ended
        return b""


def asciicast(recorded: Sequence[Event]) -> str:
    """Return events in asciicast format, version 2, with their times scaled to SECONDS in total."""
    total = max(recorded[-1][0], 1e-3)
    header = {"version": 2, "width": COLUMNS, "height": LINES}
    lines = ([at / total * SECONDS, "o", text] for at, text in recorded)
    return "".join(f"{json.dumps(line)}\n" for line in (header, *lines))


def render(program: str, recording: Path, to: Path) -> None:
    """Write the animation. Raises ValueError if it is too large for a README."""
    durations = ["-m", str(FRAME_MILLISECONDS), "-D", str(LAST_FRAME_MILLISECONDS)]
    subprocess.run([program, "render", str(recording), str(to), *durations, "-t", "window_frame"], check=True)
    if (size := to.stat().st_size) > MOST_BYTES:
        raise ValueError(f"{to}: {size:,} bytes, more than {MOST_BYTES:,}: raise FRAME_MILLISECONDS")


def main(program: str, command: str = "make demo-full") -> None:
    """Record a command, and render the recording."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "demo.cast"
        recording.write_text(asciicast(list(events(command))), encoding="utf-8")
        render(program, recording, Path(__file__).with_name("demo.svg"))


if __name__ == "__main__":
    main(*sys.argv[1:])
