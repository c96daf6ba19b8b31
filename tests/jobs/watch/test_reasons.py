"""Why a worker stopped, as its log and Slurm say it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.engine import EngineDied
from jobs.run.folder import RunFolder
from jobs.slurm.client import Task
from jobs.watch.exit_reasons import (
    BEGINS,
    FAILED,
    local_logs,
    local_reason,
    log_path,
    reason_of,
    report,
    task_reason,
    traceback_in,
)
from tests.jobs.runs import plan

BEGIN = f"{BEGINS} on n1 at 2026-11-23 12:52:14+00:00\n"
SRUN = "srun: error: n1: task 0: Exited with exit code 1\n"
TRACEBACK = """Traceback (most recent call last):
  File "/tmp/code/jobs/work/worker.py", line 77, in run_parts
    asyncio.run(worker.work_on_all())
ValueError: could not convert string to float: 'soon'
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return plan(tmp_path_factory.mktemp("runs"))


def explained(run: RunFolder, log: str | None, state: str = "FAILED", code: int = 1) -> str:
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
    reason = explained(run, f"{BEGIN}{report(error)}\n{SRUN}")
    assert reason.startswith("ValueError: could not convert string to float: 'soon' (test_reasons.py:")
    assert traceback_in(report(error)).endswith("string to float: 'soon'")


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
    assert reason_of(group) == f"the target engine {reason}"
    assert report(group).splitlines()[-1] == f"{FAILED}the target engine {reason}"


def test_the_error_of_a_worker_counts_not_that_of_the_task_around_it(run: RunFolder) -> None:
    around = f"{FAILED}1 of 2 workers failed: worker 1: exit code 1\n"
    assert explained(run, f"{BEGIN}{FAILED}no memory\n{around}{SRUN}") == "no memory"
    assert explained(run, BEGIN + around + SRUN).startswith("1 of 2 workers failed"), "one was killed"


def test_only_the_last_start_of_a_task_counts(run: RunFolder) -> None:
    log = f"{BEGIN}{FAILED}of the first start\n{BEGIN}srun: error: n1: task 0: Killed\n"
    assert explained(run, log, code=9).startswith("Slurm: FAILED, exit code 9; ended without an error message: killed")


def test_what_python_says_before_a_task_begins_is_the_end_of_its_log(run: RunFolder) -> None:
    said = explained(run, TRACEBACK + SRUN)
    assert said.startswith("Slurm: FAILED, exit code 1; its log ends: ")
    assert said.endswith("ValueError: could not convert string to float: 'soon'")


def test_lines_of_a_setup_that_fails_stand_beside_its_exit_code(run: RunFolder) -> None:
    log = "loading\n\nERROR: Unable to locate a modulefile for 'cuda/99'\n"
    assert explained(run, log, code=7) == (
        "Slurm: FAILED, exit code 7; its log ends: loading / ERROR: Unable to locate a modulefile for 'cuda/99'"
    )
    assert explained(run, "", code=7).startswith("Slurm: FAILED, exit code 7; ended without")


def test_what_slurm_ended_is_named_by_slurms_state(run: RunFolder) -> None:
    log = f"{BEGIN}{FAILED}an old one\n"
    assert explained(run, log, "TIMEOUT", 0) == "Slurm: TIMEOUT"
    assert explained(run, BEGIN, "COMPLETED", 0) == "Slurm: COMPLETED"


def test_the_log_of_any_process_of_a_task_may_name_the_reason(run: RunFolder) -> None:
    """`ntasks-per-node` starts several, each with a log."""
    explained(run, BEGIN + SRUN)
    second = run.logs_dir / "jobs" / "7_1_log.out"
    second.write_text(f"{BEGIN}{FAILED}shard 1 of x is locked\n")
    try:
        assert explained(run, BEGIN + SRUN) == "shard 1 of x is locked"
    finally:
        second.unlink()


def test_a_task_that_its_node_did_not_start_is_named_though_slurm_calls_it_completed(run: RunFolder) -> None:
    assert explained(run, None, "COMPLETED", 0) == (
        "Slurm: COMPLETED, without a log: the node may not have started it (slurmd's log on n1 says why)"
    )


def test_the_exception_of_the_newest_log_ended_the_workers_on_this_machine(tmp_path: Path) -> None:
    run = plan(tmp_path)
    assert (local_logs(run), local_reason(run)) == ([], ("", ""))
    logs = run.logs_dir / "jobs"
    logs.mkdir(parents=True)
    older, newer, quiet = logs / "12_0_log.err", logs / "in-process.log", logs / "13_0_log.err"
    older.write_text(f"{TRACEBACK}{FAILED}too long\n")
    newer.write_text(f"{TRACEBACK}{FAILED}too short\n")
    quiet.write_text("")
    os.utime(older, (100, 100))
    assert local_logs(run) == [older, newer]
    assert local_reason(run) == ("too short", str(newer))
    newer.write_text("a warning\n")
    assert local_reason(run) == ("too long", str(older))
