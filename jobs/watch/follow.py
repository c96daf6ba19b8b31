"""Live progress of a run on this machine: a line that is redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from harness.cli.messages import counted
from jobs.run.folder import RunFolder
from jobs.submission.here import Job
from jobs.watch.progress import Follower, progress_line

_POLL_SECONDS = 1.0
_PLAIN_LINE_SECONDS, _AMONG_SEVERAL_SECONDS = 15.0, 60.0
"""How often a plain line is printed: of a run, and of one of several, of which little is printed."""


Line = Callable[[], str]
"""Reads the progress and formats it as one line."""


def follow(
    run: RunFolder, jobs: Sequence[Job], console: Console, *, elsewhere: bool = True, among: str | None = None
) -> None:
    """Show progress until every job has ended; cancels the jobs where it is interrupted.

    `among`: the beginning of its lines where the run is one of several; it then ends without a line.

    A job in this process, not `elsewhere`, runs while it is asked whether it has ended. Its progress is plain lines
    from a thread, which leave the terminal to the job.
    """
    follower = Follower(run)
    before = "" if among is None else f"{among.rstrip()}: "
    _follow(
        lambda: before + progress_line(follower.poll()), jobs, console, elsewhere=elsewhere, is_brief=among is not None
    )


def follow_several(runs: Sequence[RunFolder], jobs: Sequence[Job], console: Console) -> None:
    """Show the progress of runs that workers elsewhere take in turns, until every job has ended."""
    _follow(_Several(runs).line, jobs, console, elsewhere=True, is_brief=len(runs) > 1)


class _Several:
    """The progress of several runs as one line: that of the run which went on last, or starts engines."""

    def __init__(self, runs: Sequence[RunFolder]) -> None:
        self._followers = {run.path.name: Follower(run) for run in runs}
        self._seen: dict[str, tuple[int, int]] = {}
        self._current = runs[0].path.name

    def line(self) -> str:
        """Read what is new and format it."""
        polled = {name: follower.poll() for name, follower in self._followers.items()}
        for name, progress in polled.items():
            counts = progress.steps, len(progress.ended)
            if counts != self._seen.setdefault(name, counts) or progress.starting:
                self._seen[name], self._current = counts, name
        num_finished = sum(len(progress.ended) == progress.total for progress in polled.values())
        finished = f"{num_finished} of {counted(len(polled), 'run')} finished"
        return f"{finished} · {self._current} · {progress_line(polled[self._current])}"


def _follow(line: Line, jobs: Sequence[Job], console: Console, *, elsewhere: bool, is_brief: bool) -> None:
    ended = threading.Event()
    with contextlib.nullcontext(console) if elsewhere else _duplicate(console) as own:
        shown = threading.Thread(
            target=_show, args=(line, own, ended, elsewhere, is_brief), name="progress", daemon=True
        )
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
        _print(line(), console)


@contextlib.contextmanager
def _duplicate(console: Console) -> Iterator[Console]:
    """Yield a console on a copy of its file descriptor; an engine started in this process redirects the original."""
    try:
        copied = os.dup(console.file.fileno())
    except (OSError, AttributeError):  # there is no descriptor, so nothing redirects it
        yield console
        return
    with os.fdopen(copied, "w", encoding="utf-8") as file:
        yield Console(file=file, width=console.width, quiet=console.quiet)


def _show(line: Line, console: Console, ended: threading.Event, live: bool, is_brief: bool) -> None:
    if not (live and console.is_terminal):
        shown = "" if is_brief else _print(line(), console)
        while not ended.wait(_AMONG_SEVERAL_SECONDS if is_brief else _PLAIN_LINE_SECONDS):
            if (now := line()) != shown:
                shown = _print(now, console)
        return
    with Live(console=console, auto_refresh=False, transient=True) as redrawn:
        while not ended.is_set():
            redrawn.update(Text(line()), refresh=True)
            ended.wait(_POLL_SECONDS)


def _print(line: str, console: Console) -> str:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
    return line


def _all_done(jobs: Sequence[Job]) -> bool:
    return all(job.done() for job in jobs)
