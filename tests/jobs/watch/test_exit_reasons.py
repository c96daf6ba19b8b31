"""Why a worker stopped, as its log and Slurm say it, in the launch, `jobs status` and `jobs logs` alike."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.engine import EngineDied
from jobs.outcome import LaunchFailed
from jobs.run.folder import RunFolder
from jobs.slurm.client import Task
from jobs.watch.exit_reasons import (
    BEGINS,
    FAILED,
    explained,
    local_logs,
    local_reason,
    log_path,
    reason_of,
    report,
    task_reason,
    traceback_in,
)
from jobs.watch.status import status
from tests.jobs.runs import jobs, launched, plan
from tests.own_methods import confident, no_methods, write_method

__all__ = ["no_methods"]
NO_OUTPUT = LaunchFailed("")


@pytest.mark.usefixtures("no_methods")
def test_a_method_that_raises_is_named_with_line_and_log_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    raising = "            {}['verdict']"
    text = confident().replace("            [candidate]", f"{raising}\n            [candidate]")
    write_method(tmp_path, text)
    where = f"(confident.py:{text.splitlines().index(raising) + 1})"
    ended = launched(Path("runs"), method="confident.py:Confident", cluster="local")
    [log] = [path for path in Path().glob("runs/*/logs/jobs/*.err") if path.stat().st_size]
    run = str(log.parents[2])
    shown = jobs("status", run).output
    printed = jobs("logs", run).output
    assert ended.exit_code == 1
    for line, place in ((ended.stderr.splitlines()[-1], where), (shown, ""), (printed, where)):
        assert "KeyError: 'verdict'" in line
        assert str(log) in line
        assert place in line


def test_a_worker_that_was_killed_is_named_in_its_log(tmp_path: Path) -> None:
    run = plan(tmp_path)
    log = run.logs_dir / "jobs" / "7_0_log.err"
    log.parent.mkdir(parents=True)
    why, _, more = explained(run, NO_OUTPUT, log).partition("; see")
    assert more.endswith(f"Log: {log}")
    [shard] = status(run).shards
    assert (shard.last_error, shard.log) == (why, str(log))


def test_a_worker_that_could_not_write_its_error_says_that_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    assert "4 KiB" in explained(run, NO_OUTPUT, run.logs_dir / "jobs" / "7_0_log.err")


BEGIN = f"{BEGINS} on n1 at 2026-11-23 12:52:14+00:00\n"
AROUND = f"{FAILED}1 of 2 workers failed: worker 1: exit code 1\n"
SRUN = "srun: error: n1: task 0: Exited with exit code 1\n"
TRACEBACK = """Traceback (most recent call last):
  File "/tmp/code/jobs/work/worker.py", line 77, in run_parts
    asyncio.run(worker.work_on_all())
ValueError: could not convert string to float: 'soon'
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return plan(tmp_path_factory.mktemp("runs"))


def reason_in(run: RunFolder, log: str | None, state: str = "FAILED", code: int = 1) -> str:
    task = Task("run.0", 0, "7", state, "n1", exit_code=code)
    path = log_path(run, task)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    if log is not None:
        path.write_text(log)
    return task_reason(run, task)


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 with its traceback
        return caught


def test_the_exception_is_the_reason_and_not_that_srun_noticed_the_end(run: RunFolder) -> None:
    error = raised(ValueError("could not convert\nstring to float: 'soon'"))
    reason = reason_in(run, f"{BEGIN}{report(error)}\n{SRUN}")
    assert reason.startswith(f"ValueError: {str(error).replace(chr(10), ' ')} (test_exit_reasons.py:")
    assert traceback_in(report(error)).endswith("'soon'")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "died. Its last output:\n(pid=71) torch.OutOfMemoryError: no room\n(pid=71) [rank0]: leaving",
            "died. Its last output: (pid=71) torch.OutOfMemoryError: no room",
        ),
        ("did nothing for 1,800 s\nIts last output:\n(pid=71) ready", "did nothing for 1,800 s"),
    ],
)
def test_an_engine_that_died_is_named_with_the_error_in_its_output(output: str, reason: str) -> None:
    inner = ExceptionGroup("b", [KeyError(1), raised(EngineDied(f"the target engine {output}"))])
    group = ExceptionGroup("a", [inner, OSError()])
    assert reason_of(group).endswith(f"engine {reason}")
    assert report(group).splitlines()[-1] == FAILED + reason_of(group)


@pytest.mark.parametrize(
    ("log", "state", "code", "parts"),
    [
        # The error of a worker counts, and not that of the task around it, unless the worker was killed.
        (f"{BEGIN}{FAILED}memory\n{AROUND}{SRUN}", "FAILED", 1, ["memory"]),
        (f"{BEGIN}{AROUND}{SRUN}", "FAILED", 1, ["1 of 2 workers"]),
        # Only the last start counts.
        (
            f"{BEGIN}{FAILED}first\n{BEGIN}srun: error: n1: task 0: Killed\n",
            "FAILED",
            9,
            ["FAILED, exit code 9;", "killed"],
        ),
        # What Python says before the task begins, and what a setup says.
        (TRACEBACK + SRUN, "FAILED", 1, ["FAILED, exit code 1;", "ValueError: could not convert"]),
        (
            "loading\n\nERROR: no modulefile 'cuda/99'\n",
            "FAILED",
            7,
            ["exit code 7;", "loading / ERROR: no modulefile"],
        ),
        ("", "FAILED", 7, ["FAILED, exit code 7; exited"]),
        # What Slurm ended.
        (f"{BEGIN}{FAILED}old\n", "TIMEOUT", 0, ["Slurm: TIMEOUT"]),
        (BEGIN, "COMPLETED", 0, ["Slurm: COMPLETED"]),
        (None, "COMPLETED", 0, ["Slurm: COMPLETED, no log", "n1"]),
    ],
)
def test_a_log_and_slurm_tell_why_a_task_ended(
    run: RunFolder, log: str | None, state: str, code: int, parts: list[str]
) -> None:
    reason = reason_in(run, log, state, code)
    assert all(part in reason for part in parts), reason
    assert len(parts) > 1 or not log or reason.startswith(parts[0])


def test_the_log_of_any_process_of_a_task_may_name_the_reason(run: RunFolder) -> None:
    """`ntasks-per-node` starts several, each with a log."""
    reason_in(run, BEGIN + SRUN)
    second = run.logs_dir / "jobs" / "7_1_log.out"
    second.write_text(f"{BEGIN}{FAILED}locked\n")
    try:
        assert reason_in(run, BEGIN + SRUN) == "locked"
    finally:
        second.unlink()


def test_the_exception_of_the_newest_log_ended_the_workers_on_this_machine(tmp_path: Path) -> None:
    run = plan(tmp_path)
    assert (local_logs(run), local_reason(run)) == ([], ("", ""))
    logs = run.logs_dir / "jobs"
    logs.mkdir(parents=True)
    older, newer, quiet = logs / "12_0_log.err", logs / "in-process.log", logs / "13_0_log.err"
    older.write_text(f"{TRACEBACK}{FAILED}longer\n")
    newer.write_text(f"{TRACEBACK}{FAILED}shorter\n")
    quiet.write_text("")
    os.utime(older, (100, 100))
    assert local_logs(run) == [older, newer]
    assert local_reason(run) == ("shorter", str(newer))
    newer.write_text("a warning\n")
    assert local_reason(run) == ("longer", str(older))
