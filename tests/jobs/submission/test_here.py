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


def test_it_runs_once_and_gives_what_the_function_returned(tmp_path: Path) -> None:
    calls: list[int] = []

    def called(number: int) -> int:
        calls.append(number)
        return number

    job = InProcessJob(called, (7,), tmp_path / "log")
    assert calls == []
    assert job.done()
    assert job.done()
    assert (job.exception(), calls) == (None, [7])
    assert not (tmp_path / "log").exists()


def test_a_failure_is_kept_with_its_traceback(tmp_path: Path) -> None:
    job = InProcessJob(broken, ("run", 0), tmp_path / "logs" / "in-process.log")
    assert job.done()
    assert isinstance(job.exception(), RuntimeError)
    assert "libnuma" in str(job.exception())
    log = tmp_path / "logs" / "in-process.log"
    assert "in broken" in log.read_text()
    assert InProcessJob(lambda: 0, (), log).done()
    assert not log.exists(), "the log is that of the last start"


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
