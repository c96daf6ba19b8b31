"""Live progress of a run on this machine: a line that renews itself on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobs.progress import Follower, Progress
from jobs.store import RunFolder
from jobs.submit import Job

_LOOK_SECONDS = 1.0
_PLAIN_LINE_SECONDS = 15.0


def follow(run: RunFolder, jobs: Sequence[Job], console: Console) -> None:
    """Show progress until every job has ended; ends the jobs where it is interrupted itself."""
    follower, ended = Follower(run), threading.Event()
    shown = threading.Thread(target=_show, args=(follower, console, ended), name="progress", daemon=True)
    try:
        shown.start()  # beside the jobs: one in this very process is at work while it is asked whether it has ended
        try:
            while not _all_done(jobs):
                time.sleep(_LOOK_SECONDS)
        finally:
            ended.set()
            shown.join()
        console.print(line(follower.poll()), highlight=False, soft_wrap=True)
    except BaseException:
        for job in jobs:
            job.cancel()
        raise


def _show(follower: Follower, console: Console, ended: threading.Event) -> None:
    if not console.is_terminal:
        console.print(line(follower.poll()), highlight=False, soft_wrap=True)
        while not ended.wait(_PLAIN_LINE_SECONDS):
            console.print(line(follower.poll()), highlight=False, soft_wrap=True)
        return
    with Live(console=console, refresh_per_second=2, transient=True) as live:
        while not ended.is_set():
            live.update(Text(line(follower.poll())))
            ended.wait(_LOOK_SECONDS)


def _all_done(jobs: Sequence[Job]) -> bool:
    return all(job.done() for job in jobs)


def line(progress: Progress) -> str:
    """`12/80 samples · draft 41 tok/s, target 9 tok/s · accepted 71 % · ETA 3 min`."""
    rates = ", ".join(f"{model} {rate:,.0f} tok/s" for model, rate in progress.tokens_per_second.items() if rate)
    shown = [f"{len(progress.ended)}/{progress.total} samples"]
    shown += [f"{progress.errors} errors"] if progress.errors else []
    shown += [f"{progress.steps} steps"]
    shown += [rates] if rates else []
    shown += [f"accepted {progress.acceptance:.0%}"] if progress.acceptance is not None else []
    left = progress.total - len(progress.ended)
    if progress.eta_seconds is not None and left:
        shown.append(f"ETA {duration(progress.eta_seconds)}")
    elif left:
        shown.append(f"{len(progress.in_flight)} in flight" if progress.in_flight else "engines are starting")
    return " · ".join(shown)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
