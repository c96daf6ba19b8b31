"""Live progress of runs on this machine, read from their journals as they grow: a line that is redrawn on a terminal,
plain lines elsewhere.
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
from jobs.run import trace_files
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.submission.here import Job

PACE_SECONDS = 300.0
"""The pace of workers is that of these last seconds."""
_TAIL_BYTES = 4 << 20
_POLL_SECONDS = 1.0
_PLAIN_LINE_SECONDS, _AMONG_SEVERAL_SECONDS = 15.0, 60.0
"""How often a plain line is printed: of a run, and of one of several, of which little is printed."""
_CLOCK_SECONDS = 5.0
"""How far the clock of the file server may be behind, and how long ago the workers may have been started."""
_NO_EVENT = (ValueError, LookupError, TypeError, AttributeError)
"""What a line raises that is no event of a journal; readers of the run name it."""


@dataclass
class Pace:
    """What workers did in the last minutes, or in the part of them in which there was work, by their journals."""

    calls: list[tuple[float, float, str, int]] = field(default_factory=list)
    """Ends and beginnings of calls in seconds since the epoch, models, and output tokens."""
    samples: list[float] = field(default_factory=list)
    """Ends of samples: of the last call of each."""
    _last_call: dict[str, float] = field(default_factory=dict)

    def add(self, event: dict[str, Any]) -> None:
        """Count an event. Raises one of what a line raises that is no event."""
        sample, calls = event.get("sample_id", ""), event.get("calls", ())
        for call in calls:
            begun, ended = call["submitted_at"], call["submitted_at"] + call["end_seconds"]
            self.calls.append((ended, begun, call["model"], call["output_tokens"]))
            self._last_call[sample] = max(self._last_call.get(sample, 0.0), ended)
        if event["event"] == "end":
            self.samples.append(self._last_call.pop(sample, 0.0))

    def add_journal(self, content: bytes) -> None:
        """Count the events at the end of a journal."""
        for line in content[-_TAIL_BYTES:].split(b"\n"):
            with contextlib.suppress(*_NO_EVENT):  # torn, or none
                self.add(orjson.loads(line))

    def _seconds(self, now: float) -> float:
        """Forget what was before the last minutes; returns their length, or that of the part since the first call."""
        since = now - PACE_SECONDS
        self.calls = [call for call in self.calls if call[0] >= since]
        self.samples = [ended for ended in self.samples if ended >= since]
        return max(1.0, now - max(since, min((begun for _, begun, _, _ in self.calls), default=since)))

    def tokens_per_second(self, now: float) -> dict[str, float]:
        """Return output tokens per second, by model."""
        seconds, tokens = self._seconds(now), Counter[str]()
        for _, _, model, number in self.calls:
            tokens[model] += number
        return {model: number / seconds for model, number in sorted(tokens.items())}

    def samples_per_second(self, now: float) -> float:
        """Return samples that ended per second, of all workers together."""
        seconds = self._seconds(now)
        return len(self.samples) / seconds


def rates_in_words(tokens_per_second: dict[str, float]) -> str:
    """Return `draft 41 tok/s, target 9 tok/s`."""
    return ", ".join(f"{model} {rate:,.0f} tok/s" for model, rate in tokens_per_second.items() if rate >= 0.5)


class Follower:
    """How far a run is: reads what was added to the journals since it last read them."""

    def __init__(self, run: RunFolder) -> None:
        self._run, self._since = run, time.time() - _CLOCK_SECONDS
        self._offsets: dict[Path, int] = {}
        self.pace = Pace()
        self.total, self.steps, self.errors = run.num_planned(), 0, 0
        self.ended, self.in_flight = set[str](), set[str]()
        self.judged, self.accepted = 0, 0
        """Steps that a verdict or the method decided about, and those of them whose candidate was accepted."""
        self.starting: dict[int, str] = {}
        """What the workers are at whose engines start, by the first shard of each."""
        self._timing = ""
        for path in run.journals():
            self._read(path)
        self._steps_before = self.steps
        self.ended = _finished(run)  # a sample that failed may be retried
        self.in_flight.clear()  # their workers have ended

    def poll(self) -> Follower:
        """Read what is new; returns itself."""
        journals = self._run.journals()
        for path in journals:
            self._read(path)
        for path in set(self._offsets) - set(journals):  # its worker has ended and compacted it to a trace file
            self.ended |= trace_files.finished_ids(self._run.trace_file_of(path))
            del self._offsets[path]
        if not journals:
            self.ended |= _finished(self._run)
        self.in_flight -= self.ended
        self.starting = _starting(self._run, self._since)
        if len(self.ended) == self.total and (timing := timings.progress(self._run)).asked:
            self._timing = f" · timing {timing.done} of {timing.asked}, one at a time"
        return self

    def _read(self, path: Path) -> None:
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:  # compacted since the listing
            lines.seek(self._offsets.setdefault(path, 0))
            for line in lines:
                if not line.endswith(b"\n"):
                    break  # being written right now
                self._offsets[path] += len(line)
                with contextlib.suppress(*_NO_EVENT):
                    self._count(orjson.loads(line))

    def _count(self, event: dict[str, Any]) -> None:
        self.pace.add(event)
        if event["event"] == "start":
            self.in_flight.add(event["trace"]["sample_id"])
        elif event["event"] == "step":
            self.steps += 1
            if (decided := event["step"].get("decision") or event["step"]["verdict"]) is not None:
                self.judged += 1
                self.accepted += decided["accepted"]
        elif event["event"] == "end":
            self.in_flight.discard(event["sample_id"])
            self.ended.add(event["sample_id"])
            self.errors += event["stop_reason"] == "error"

    @property
    def line(self) -> str:
        """The progress as `12/80 samples · 31 steps · draft 41 tok/s, target 9 tok/s · accepted 71% · ETA 3 min`.

        While engines start, it ends with what they are at.
        """
        shown = [f"{len(self.ended)}/{counted(self.total, 'sample')}"]
        shown += [counted(self.errors, "error")] if self.errors else []
        if len(self.ended) == self.total:
            # The journal may have been removed before its last steps were read, so no count of steps would be right.
            return " · ".join(shown) + self._timing
        now = time.time()
        rates, pace = rates_in_words(self.pace.tokens_per_second(now)), self.pace.samples_per_second(now)
        shown += [counted(self.steps, "step")]
        shown += [rates] if rates else []
        shown += [f"accepted {self.accepted / self.judged:.0%}"] if self.judged else []
        shown += [f"ETA {duration((self.total - len(self.ended)) / pace)}"] if pace else []
        if self.starting:
            shown.append(self._starting_in_words())
        elif not pace:
            shown.append(f"{len(self.in_flight)} in flight" if self.in_flight else "engines are starting")
        return " · ".join(shown)

    def _starting_in_words(self) -> str:
        """Return `target: loading weights (50 %)`, with the number of workers where not all are at the same."""
        phases = Counter(self.starting.values())
        if len(phases) == 1 and not self.in_flight and self.steps == self._steps_before:
            return next(iter(phases))
        return "; ".join(f"{phase} ({counted(number, 'worker')})" for phase, number in phases.items())


def _finished(run: RunFolder) -> set[str]:
    return set(read_endings(run, whole=False).finished.to_pylist())


def phase_of(run: RunFolder, shard: int, since: float) -> str:
    """Return what the starting engine is at of the worker whose first shard this is; empty where none starts.

    Only logs count that were written after `since`, in seconds since the epoch.
    """
    written: list[tuple[float, str]] = []
    for log in run.logs_dir.glob(f"shard-{shard}/*.log"):
        with contextlib.suppress(FileNotFoundError):
            modified_at = log.stat().st_mtime
            if modified_at >= since and (phase := processes.start_phase(log)) is not None:
                written.append((modified_at, phase))
    return max(written)[1] if written else ""


def _starting(run: RunFolder, since: float) -> dict[int, str]:
    shards = sorted(int(folder.name.removeprefix("shard-")) for folder in run.logs_dir.glob("shard-*"))
    return {shard: phase for shard in shards if (phase := phase_of(run, shard, since))}


def follow(
    runs: Sequence[RunFolder],
    jobs: Sequence[Job],
    console: Console,
    *,
    elsewhere: bool = True,
    among: str | None = None,
) -> None:
    """Show the progress of runs, which workers take in turns, until every job has ended; cancels them if interrupted.

    `among`: the beginning of its lines where the run is one of several; like those of several runs at a time, they are
    few and end without a line on the end.

    A job in this process, not `elsewhere`, runs while it is asked whether it has ended. Its progress is plain lines
    from a thread, which leave the terminal to the job.
    """
    line, is_brief, ended = _Line(runs, among), among is not None or len(runs) > 1, threading.Event()
    with contextlib.nullcontext(console) if elsewhere else _duplicate(console) as own:
        arguments = line, own, ended, elsewhere, is_brief
        shown = threading.Thread(target=_show, args=arguments, name="progress", daemon=True)
        shown.start()
        try:
            while not _all_done(jobs):
                time.sleep(_POLL_SECONDS)
        except BaseException:
            for job in jobs:
                job.cancel()
            raise
        finally:
            ended.set()
            shown.join()
    if not is_brief:
        _print(line.read(), console)


class _Line:
    """The progress of runs as one line; of several, that of the run which went on last, or starts engines."""

    def __init__(self, runs: Sequence[RunFolder], among: str | None) -> None:
        self._followers = {run.path.name: Follower(run) for run in runs}
        self._before = "" if among is None else f"{among.rstrip()}: "
        self._seen: dict[str, tuple[int, int]] = {}
        self._current = runs[0].path.name

    def read(self) -> str:
        """Read what is new and format it."""
        polled = {name: follower.poll() for name, follower in self._followers.items()}
        if len(polled) == 1:
            return self._before + polled[self._current].line
        for name, progress in polled.items():
            counts = progress.steps, len(progress.ended)
            if counts != self._seen.setdefault(name, counts) or progress.starting:
                self._seen[name], self._current = counts, name
        num_finished = sum(len(progress.ended) == progress.total for progress in polled.values())
        finished = f"{num_finished} of {counted(len(polled), 'run')} finished"
        return f"{finished} · {self._current} · {polled[self._current].line}"


@contextlib.contextmanager
def _duplicate(console: Console) -> Iterator[Console]:
    """Yield a console on a copy of its file descriptor; an engine started in this process redirects the original."""
    try:
        copied = os.dup(console.file.fileno())
    except (OSError, AttributeError):  # there is no descriptor, so nothing redirects it
        yield console
        return
    with os.fdopen(copied, "w", encoding="utf-8") as file:
        yield terminal(file=file, width=console.width, quiet=console.quiet)


def _show(line: _Line, console: Console, ended: threading.Event, live: bool, is_brief: bool) -> None:
    if live and console.is_terminal:
        with Live(console=console, auto_refresh=False, transient=True) as redrawn:
            while not ended.is_set():
                redrawn.update(Text(line.read()), refresh=True)
                ended.wait(_POLL_SECONDS)
        return
    shown = "" if is_brief else _print(line.read(), console)
    while not ended.wait(_AMONG_SEVERAL_SECONDS if is_brief else _PLAIN_LINE_SECONDS):
        if (now := line.read()) != shown:
            shown = _print(now, console)


def _print(line: str, console: Console) -> str:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    return line


def _all_done(jobs: Sequence[Job]) -> bool:
    return all(job.done() for job in jobs)
