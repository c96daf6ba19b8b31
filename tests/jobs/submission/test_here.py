"""A worker in the launching process that fails is reported like one elsewhere; nothing waits at a debugger."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.engine import EngineDied
from harness.launch import main
from jobs.submission.here import InProcessJob
from jobs.work.worker import InProcessWorker


def broken(folder: str, shard: int) -> int:
    raise EngineDied("the target engine did not start: OSError: libnuma.so.1 is missing")


def test_a_cancelled_job_does_not_run(tmp_path: Path) -> None:
    job = InProcessJob(broken, ("run", 0), tmp_path / "log")
    job.cancel()
    assert job.done()
    assert job.exception() is None


def test_a_launch_whose_engine_does_not_start_ends_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(InProcessWorker, "run", broken)
    flags = ["--method", "vanilla", "--dataset", "demo", "--engine", "scripted", "--cluster", "debug", "--limit", "2"]
    result = CliRunner().invoke(main, [*flags, "--output", str(tmp_path)])
    assert result.exit_code == 1
    assert (
        "error: 1 of 1 workers failed: the target engine did not start: OSError: libnuma.so.1 is missing"
        in result.output
    )
    assert "Traceback" not in result.output
    assert list(tmp_path.glob("demo-*/logs/jobs/in-process.log"))
