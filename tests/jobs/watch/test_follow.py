"""Progress is shown while a run is at work, wherever its workers are."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from harness.engines import scripted
from jobs.run.folder import RunFolder
from jobs.submission.here import Job, start_workers
from jobs.watch import follow
from jobs.work.worker import run_shard
from tests.jobs.runs import plan


class _InProcessJob:
    """A job in the launcher's own process: it works while `done` is called."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.cancelled = run, False

    def done(self) -> bool:
        run_shard(str(self.run.path), 0)
        return True

    def cancel(self) -> None:
        self.cancelled = True


def _shown(text: str) -> list[int]:
    return [int(count) for count in re.findall(r"(\d+)/24 samples", text)]


@pytest.mark.parametrize(("terminal", "elsewhere"), [(False, False), (True, False), (True, True)])
def test_a_run_shows_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool, elsewhere: bool
) -> None:
    monkeypatch.setenv(scripted.SCRIPTED_SECONDS, "0.02")
    monkeypatch.setattr(follow, "_PLAIN_LINE_SECONDS", 0.1)
    monkeypatch.setattr(follow, "_POLL_SECONDS", 0.1)
    text, run = io.StringIO(), plan(tmp_path)
    console = Console(file=text, force_terminal=terminal, width=120)
    follow.follow([run], [cast(Job, _InProcessJob(run))], console, elsewhere=elsewhere)
    counts = _shown(text.getvalue())
    assert set(counts) - {0, 24}, "while it was under way"
    assert (counts[0], counts[-1], sorted(counts)) == (0, 24, counts)
    assert text.getvalue().endswith("24/24 samples\n"), "nothing else is known for certain at the end"
    assert ("\x1b[" in text.getvalue()) == elsewhere, "a line that renews itself would draw over the worker's own lines"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_interruption_ends_the_jobs_and_the_display(tmp_path: Path, *, elsewhere: bool) -> None:
    class Interrupted(_InProcessJob):
        def done(self) -> bool:
            raise KeyboardInterrupt

    run = plan(tmp_path)
    job = Interrupted(run)
    with pytest.raises(KeyboardInterrupt):
        follow.follow([run], [cast(Job, job)], Console(file=io.StringIO()), elsewhere=elsewhere)
    assert job.cancelled
    assert "progress" not in {thread.name for thread in threading.enumerate()}


def test_a_killed_worker_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scripted.SCRIPTED_SECONDS, "5")
    run = plan(tmp_path)
    [job] = start_workers(run, [[(run, [0])]])
    job.process.kill()
    assert job.exception() is not None
    assert job.done()
