"""Why a worker stopped, as its log and Slurm say it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.run.folder import RunFolder
from jobs.slurm.client import Task
from jobs.watch.failures import BEGINS, local_error, local_logs, log_path, reason
from tests.jobs.runs import plan

BEGIN = f"{BEGINS} on n1 at 2026-11-23 12:52:14+00:00\n"
SRUN = "srun: error: n1: task 0: Exited with exit code 1\n"
TRACEBACK = """Traceback (most recent call last):
  File "/tmp/code/jobs/work/worker.py", line 77, in run_parts
    asyncio.run(worker.work_on_all())
"""
DIED_TWICE = (
    TRACEBACK.replace("Traceback", "  + Exception Group Traceback")
    + """  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/tmp/code/harness/engines/vllm.py", line 147, in _request
    |     await self.process.replace(llm)
    | harness.engine.EngineDied: the target engine died for the second time. Its last output:
    | (EngineCore pid=71) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
    | (EngineCore pid=71) [rank0]: leaving
    +------------------------------------
"""
)


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
    return reason(run, task)


def test_the_exception_is_the_reason_and_not_that_srun_noticed_the_end(run: RunFolder) -> None:
    log = BEGIN + TRACEBACK + "ValueError: could not convert string to float: 'soon'\n" + SRUN
    assert explained(run, log) == ("ValueError: could not convert string to float: 'soon' (work/worker.py:77)")


def test_an_engine_that_died_is_named_with_the_error_in_its_output(run: RunFolder) -> None:
    assert explained(run, BEGIN + DIED_TWICE + SRUN) == (
        "EngineDied: the target engine died for the second time. Its last output: "
        "(EngineCore pid=71) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    )


def test_an_engine_that_stopped_working_is_named_with_how_long_it_did_nothing(run: RunFolder) -> None:
    lines = (
        "    | harness.engine.EngineDied: the target engine died for the second time: no output for 1,800 s with 12 "
        "requests unfinished\n    | Its last output:\n    | (EngineCore pid=71) INFO 11-23 12:00:00 ready\n"
    )
    assert explained(run, BEGIN + TRACEBACK + lines + SRUN) == (
        "EngineDied: the target engine died for the second time: no output for 1,800 s with 12 requests unfinished"
    )


def test_the_error_of_a_worker_counts_not_that_of_the_task_around_it(run: RunFolder) -> None:
    one = TRACEBACK + "harness.engine.EngineDied: the draft engine did not start: no memory\n"
    around = TRACEBACK + "jobs.work.worker.WorkersFailed: 1 of 2 workers failed: worker 1: exit code 1\n"
    assert explained(run, BEGIN + one + around + SRUN) == "EngineDied: the draft engine did not start: no memory"
    assert explained(run, BEGIN + around + SRUN).startswith("WorkersFailed: 1 of 2 workers failed")


def test_only_the_last_start_of_a_task_counts(run: RunFolder) -> None:
    log = BEGIN + TRACEBACK + "ValueError: of the first start\n" + BEGIN + "srun: error: n1: task 0: Killed\n"
    assert explained(run, log, code=9).endswith("task 0: Killed")


def test_lines_of_a_setup_that_fails_stand_beside_its_exit_code(run: RunFolder) -> None:
    log = "loading\n\nERROR: Unable to locate a modulefile for 'cuda/99'\n"
    assert explained(run, log, code=7) == (
        "Slurm: FAILED, exit code 7; its log ends: loading / ERROR: Unable to locate a modulefile for 'cuda/99'"
    )
    assert explained(run, "", code=7) == "Slurm: FAILED, exit code 7"


def test_what_slurm_ended_is_named_by_slurms_state(run: RunFolder) -> None:
    log = BEGIN + TRACEBACK + "ValueError: an old one\n"
    assert explained(run, log, "TIMEOUT", 0) == "Slurm: TIMEOUT"
    assert explained(run, BEGIN, "COMPLETED", 0) == "Slurm: COMPLETED"


def test_the_log_of_any_process_of_a_task_may_name_the_reason(run: RunFolder) -> None:
    """`ntasks-per-node` starts several, each with a log."""
    explained(run, BEGIN + SRUN)
    second = run.logs_dir / "jobs" / "7_1_log.out"
    second.write_text(BEGIN + TRACEBACK + "jobs.work.run_part.ShardBusyError: shard 1 of x is locked\n")
    try:
        assert explained(run, BEGIN + SRUN) == "ShardBusyError: shard 1 of x is locked"
    finally:
        second.unlink()


def test_a_task_that_its_node_did_not_start_is_named_though_slurm_calls_it_completed(run: RunFolder) -> None:
    assert explained(run, None, "COMPLETED", 0) == (
        "Slurm: COMPLETED, without a log: the node may not have started it (slurmd's log on n1 says why)"
    )


def test_the_exception_of_the_newest_log_ended_the_workers_on_this_machine(tmp_path: Path) -> None:
    run = plan(tmp_path)
    assert (local_logs(run), local_error(run)) == ([], ("", None))
    logs = run.logs_dir / "jobs"
    logs.mkdir(parents=True)
    older, newer, quiet = logs / "12_0_log.err", logs / "in-process.log", logs / "13_0_log.err"
    older.write_text(f"{TRACEBACK}ValueError: too long\n")
    newer.write_text(DIED_TWICE)
    quiet.write_text("")
    os.utime(older, (100, 100))
    assert local_logs(run) == [older, newer]
    error, log = local_error(run)
    assert error.startswith("EngineDied: the target engine died for the second time.")
    assert log == newer
    newer.write_text("a warning\n")
    assert local_error(run) == ("ValueError: too long (work/worker.py:77)", older)
