"""Live progress of a run on this machine: a line that is redrawn on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from jobs.run.folder import RunFolder
from jobs.submission.submit import Job
from jobs.watch.progress import Follower
from jobs.watch.show import progress_line

_POLL_SECONDS = 1.0
_PLAIN_LINE_SECONDS = 15.0


def follow(run: RunFolder, jobs: Sequence[Job], console: Console, *, elsewhere: bool = True) -> None:
    """Show progress until every job has ended; cancels the jobs where it is interrupted.

    A job in this process, not `elsewhere`, runs while it is asked whether it has ended. Its progress is plain lines
    from a thread, which leave the terminal to the job.
    """
    follower, ended = Follower(run), threading.Event()
    with contextlib.nullcontext(console) if elsewhere else _duplicate(console) as own:
        shown = threading.Thread(target=_show, args=(follower, own, ended, elsewhere), name="progress", daemon=True)
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
    console.print(progress_line(follower.poll()), highlight=False, soft_wrap=True)


@contextlib.contextmanager
def _duplicate(console: Console) -> Iterator[Console]:
    """Yield a console on a copy of its file descriptor; an engine started in this process redirects the original."""
    try:
        copied = os.dup(console.file.fileno())
    except (OSError, AttributeError):  # there is no descriptor, so nothing redirects it
        yield console
        return
    with os.fdopen(copied, "w", encoding="utf-8") as file:
        yield Console(file=file, width=console.width)


def _show(follower: Follower, console: Console, ended: threading.Event, live: bool) -> None:
    if not (live and console.is_terminal):
        console.print(progress_line(follower.poll()), highlight=False, soft_wrap=True)
        while not ended.wait(_PLAIN_LINE_SECONDS):
            console.print(progress_line(follower.poll()), highlight=False, soft_wrap=True)
        return
    with Live(console=console, auto_refresh=False, transient=True) as shown:
        while not ended.is_set():
            shown.update(Text(progress_line(follower.poll())), refresh=True)
            ended.wait(_POLL_SECONDS)


def _all_done(jobs: Sequence[Job]) -> bool:
    return all(job.done() for job in jobs)
