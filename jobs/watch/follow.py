"""Live progress of runs on this machine, read from their growing journals: a redrawn line on a terminal, otherwise
plain lines.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.cli.messages import counted
from harness.cli.number_format import duration
from harness.cli.screen import terminal
from harness.engines import processes
from jobs.run import timing as timings
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.run.journal import NO_EVENT
from jobs.submission.here import Job

PACE_SECONDS = 300.0
"""Throughput is averaged over this period."""
_TAIL_BYTES = 4 << 20
_POLL_SECONDS = 1.0
_PLAIN_LINE_SECONDS, _AMONG_SEVERAL_SECONDS = 15.0, 60.0
"""Intervals of plain lines: for a single run, and for one of several runs."""
_CLOCK_SECONDS = 5.0
"""How much older than the follower a log may be: clock lag of the file server, and time since the workers' start."""


@dataclass
class Pace:
    """Recent work according to the journals: over PACE_SECONDS, or since the first recent call if that is shorter."""

    calls: list[tuple[float, float, str, int]] = field(default_factory=list)
    """End and start (seconds since the epoch), model, and number of output tokens of each call."""
    samples: list[float] = field(default_factory=list)
    """End times of samples, taken from the last call before each end."""

    def add(self, event: dict[str, Any]) -> None:
        """Count an event. Raises a NO_EVENT exception if it is invalid."""
        for call in event.get("calls", ()):
            begun = call["submitted_at"]
            self.calls.append((begun + call["end_seconds"], begun, call["model"], call["output_tokens"]))
        if event["event"] == "end" and self.calls:
            self.samples.append(self.calls[-1][0])

    def add_journal(self, content: bytes) -> None:
        """Count the events in the last part of a journal."""
        for line in content[-_TAIL_BYTES:].split(b"\n"):
            with contextlib.suppress(*NO_EVENT):  # incomplete, or not an event
                self.add(orjson.loads(line))

    def rates(self, now: float) -> tuple[dict[str, float], float]:
        """Return output tokens per second by model, and finished samples per second, over all workers."""
        since, tokens = now - PACE_SECONDS, Counter[str]()
        self.calls = [call for call in self.calls if call[0] >= since]
        self.samples = [ended for ended in self.samples if ended >= since]
        seconds = max(1.0, now - max(since, min((begun for _, begun, _, _ in self.calls), default=since)))
        for _, _, model, number in self.calls:
            tokens[model] += number
        return {model: number / seconds for model, number in sorted(tokens.items())}, len(self.samples) / seconds


def rates_in_words(tokens_per_second: dict[str, float]) -> str:
    """Format throughput as `draft 41 tok/s, target 9 tok/s`."""
    return ", ".join(f"{model} {rate:,.0f} tok/s" for model, rate in tokens_per_second.items() if rate >= 0.5)


class Follower:
    """Progress of a run, from journal lines added since the last read."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self._since = run, time.time() - _CLOCK_SECONDS
        self._offsets: dict[Path, int] = {}
        self._trace_files: list[Path] = []
        self.pace = Pace()
        self.total, self.steps, self.errors = run.num_planned(), 0, 0
        self.ended, self.in_flight = set[str](), set[str]()
        self.starting = ""
        """Startup phase of engines."""
        self.poll()
        self.ended = _finished(run)  # without failed samples that will be retried
        self.in_flight.clear()  # their workers have ended

    def poll(self) -> Follower:
        """Read new lines; return this follower."""
        for path in self.run.journals():
            self._read(path)
        if (found := self.run.trace_files()) != self._trace_files:  # a worker compacted its journal and exited
            self._trace_files = found
            self.ended |= _finished(self.run)
        self.in_flight -= self.ended
        self.starting = phases(self.run, self._since)
        return self

    def _read(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:  # compacted since the listing
            lines.seek(self._offsets.setdefault(path, 0))
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # still being written
                self._offsets[path] += len(line)
                with contextlib.suppress(*NO_EVENT):
                    self._count(orjson.loads(line))

    def _count(self, event: dict[str, Any]) -> None:
        self.pace.add(event)
        if event["event"] == "start":
            self.in_flight.add(event["trace"]["sample_id"])
        elif event["event"] == "step":
            self.steps += 1
        elif event["event"] == "end":
            self.in_flight.discard(event["sample_id"])
            self.ended.add(event["sample_id"])
            self.errors += event["stop_reason"] == "error"

    @property
    def line(self) -> str:
        """The progress as `12/80 samples · 31 steps · draft 41 tok/s, target 9 tok/s · ETA 3 min`.

        While engines start, the line ends with the engines' startup phase.
        """
        shown = [f"{len(self.ended)}/{counted(self.total, 'sample')}"]
        shown += [counted(self.errors, "error")] if self.errors else []
        if len(self.ended) == self.total:
            # Omit the step count: the journal may have been removed before its last steps were read.
            timing = timings.progress(self.run)
            return " · ".join(shown) + f" · timing {timing.done} of {timing.asked}, one at a time" * bool(timing.asked)
        tokens_per_second, pace = self.pace.rates(time.time())
        shown += [counted(self.steps, "step"), rates_in_words(tokens_per_second)]
        shown += [f"ETA {duration((self.total - len(self.ended)) / pace)}"] if pace else []
        if self.starting or not pace:
            at_work = f"{len(self.in_flight)} in flight" if self.in_flight else "engines are starting"
            shown.append(self.starting or at_work)
        return " · ".join(filter(None, shown))


def _finished(run: RunFolder) -> set[str]:
    return set(read_endings(run, whole=False).finished.to_pylist())


def phases(run: RunFolder, since: float, shard: int | str = "*") -> str:
    """Return the startup phase of engines, e.g. `target: loading weights (50 %)`; empty if none is starting.

    `shard`: first shard of a worker, to select its engines. Only logs written after `since` (seconds since the epoch)
    are read.
    """
    found = []
    for log in sorted(run.logs_dir.glob(f"shard-{shard}/*.log")):
        with contextlib.suppress(FileNotFoundError):
            found += [processes.start_phase(log)] if log.stat().st_mtime >= since else []
    return "; ".join(dict.fromkeys(filter(None, found)))


def follow(
    runs: Sequence[RunFolder],
    jobs: Sequence[Job],
    console: Console,
    *,
    elsewhere: bool = True,
    among: str | None = None,
) -> None:
    """Show the progress of runs until every job has ended; cancel the jobs if interrupted.

    `among`: prefix of the lines if the run is one of several. With several runs, lines are printed less often, and
    there is no final line. Without `elsewhere`, the jobs run in this process when they are polled; a thread then prints
    plain lines, which leaves the terminal to the job.
    """
    followers, is_brief, ended = [Follower(run) for run in runs], among is not None or len(runs) > 1, threading.Event()
    before = "" if among is None else f"{among.rstrip()}: "

    def show(own: Console) -> None:
        if elsewhere and own.is_terminal:
            with Live(console=own, auto_refresh=False, transient=True) as redrawn:
                while not ended.is_set():
                    redrawn.update(Text(before + _line(followers)), refresh=True)
                    ended.wait(_POLL_SECONDS)
            return
        shown = "" if is_brief else _print(before + _line(followers), own)
        while not ended.wait(_AMONG_SEVERAL_SECONDS if is_brief else _PLAIN_LINE_SECONDS):
            if (now := before + _line(followers)) != shown:
                shown = _print(now, own)

    with contextlib.nullcontext(console) if elsewhere else _duplicate(console) as own:
        showing = threading.Thread(target=show, args=[own], name="progress", daemon=True)
        showing.start()
        try:
            while not all(job.done() for job in jobs):
                time.sleep(_POLL_SECONDS)
        except BaseException:
            for job in jobs:
                job.cancel()
            raise
        finally:
            ended.set()
            showing.join()
    if not is_brief:
        _print(_line(followers), console)


def _line(followers: Sequence[Follower]) -> str:
    """Read new lines and return the progress in one line; for several runs, that of an active run."""
    if len(followers) == 1:
        return followers[0].poll().line
    unfinished = [follower for follower in followers if len(follower.poll().ended) < follower.total]
    at_work = [follower for follower in unfinished if follower.in_flight or follower.starting]
    current = [*at_work, *unfinished, *followers][0]
    finished = f"{len(followers) - len(unfinished)} of {counted(len(followers), 'run')} finished"
    return f"{finished} · {current.run.path.name} · {current.line}"


@contextlib.contextmanager
def _duplicate(console: Console) -> Iterator[Console]:
    """Yield a console on a copy of its file descriptor; engines started in this process redirect the original."""
    try:
        copied = os.dup(console.file.fileno())
    except (OSError, AttributeError):  # no descriptor that could be redirected
        yield console
        return
    with os.fdopen(copied, "w", encoding="utf-8") as file:
        yield terminal(file=file, width=console.width, quiet=console.quiet)


def _print(line: str, console: Console) -> str:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    return line
