"""Progress is shown while a run is at work, wherever its workers are."""

from __future__ import annotations

import io
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from harness.engines import pair
from jobs import follow
from jobs.store import RunFolder
from jobs.submit import Job
from jobs.worker import run_shard
from tests.jobs.runs import plan


class _Here:
    """As submitit's job in the launcher's own process: it works while it is asked whether it has ended."""

    def __init__(self, run: RunFolder) -> None:
        self.run, self.cancelled = run, False

    def done(self) -> bool:
        run_shard(str(self.run.path), 0)
        return True

    def cancel(self) -> None:
        self.cancelled = True


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_in_this_very_process_shows_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, terminal: bool
) -> None:
    monkeypatch.setenv(pair.SCRIPTED_SECONDS, "0.02")
    monkeypatch.setattr(follow, "_PLAIN_LINE_SECONDS", 0.1)
    monkeypatch.setattr(follow, "_LOOK_SECONDS", 0.1)
    text, run = io.StringIO(), plan(tmp_path)
    follow.follow(run, [cast(Job, _Here(run))], Console(file=text, force_terminal=terminal, width=120))
    shown = text.getvalue()
    assert any(f"{count}/24 samples" in shown for count in range(1, 24)), "while it was under way"
    assert "24/24 samples" in shown.rstrip().splitlines()[-1]


def test_an_interruption_ends_the_jobs_and_the_display(tmp_path: Path) -> None:
    class Interrupted(_Here):
        def done(self) -> bool:
            raise KeyboardInterrupt

    run = plan(tmp_path)
    job = Interrupted(run)
    with pytest.raises(KeyboardInterrupt):
        follow.follow(run, [cast(Job, job)], Console(file=io.StringIO()))
    assert job.cancelled
