"""`jobs status` and `jobs list`: from the files of a run, and from Slurm, which is asked no more often than needed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from jobs import after
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.watch.follow import PACE_SECONDS, Pace
from jobs.watch.status import Watch, status
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_run, jobs, plan, shown, slow_worker, wait_for_steps
from tests.jobs.slurm.fake import SACCT_DOWN, SQUEUE_DOWN, FakeSlurm


def test_journals_of_workers_make_the_pace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path, shards=3)
    run_shard(str(run.path), 0)
    monkeypatch.setattr("jobs.run.endings.compact_own", lambda run, path: None)
    run_shard(str(run.path), 1)
    assert len(list(run.trace_files_dir.iterdir())) == len(list(run.journal_dir.iterdir())) == 1
    run_status = status(run)
    assert (run_status.planned, run_status.finished, run_status.in_flight) == (24, 16, 0)
    assert [shard.state for shard in run_status.shards] == ["finished", "finished", "stopped"]
    with run.shard_lock(2):
        run_status = status(run)
    assert run_status.eta_seconds is not None
    assert run_status.samples_per_second * run_status.eta_seconds == pytest.approx(8)
    pace, [journal] = Pace(), run.journals()
    pace.add_journal(journal.read_bytes())
    assert len(pace.samples) == 8
    assert pace.rates(time.time() + 2 * PACE_SECONDS) == ({}, 0.0), "what was long ago is forgotten"


def test_a_run_whose_worker_was_killed_has_nothing_in_flight_and_says_how_to_resume(tmp_path: Path) -> None:
    run = plan(tmp_path)
    worker = slow_worker(run)
    wait_for_steps(run, 8)
    alive = status(run)
    worker.kill()
    worker.wait()
    assert alive.in_flight
    assert alive.shards[0].state == "running"
    assert not alive.next_step
    gone = jobs("status", run.path).output
    assert "1 stopped" in gone
    assert "ETA" not in gone
    [record] = json.loads(jobs("status", run.path, "--json").output)
    assert (record["in_flight"], record["eta_seconds"]) == (0, None)
    assert record["next_step"]
    run_shard(str(run.path), 0)


def test_damage_is_seen_in_a_run_that_is_finished_also_after_it_was_concluded(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    [part] = run.trace_files()
    content = part.read_bytes()
    for _ in range(2):
        assert status(run).is_finished
        part.write_bytes(content[:2000] + bytes([content[2000] ^ 1]) + content[2001:])
        assert not status(run).is_finished
        part.write_bytes(content)
        after.conclude(str(run.path))


def submitted(folder: Path, shared_with: Sequence[str] = ()) -> RunFolder:
    """A run whose two shards are two tasks of the job `run.0`; shard 0 is finished."""
    run = plan(folder, shards=2)
    run_shard(str(run.path), 0)
    runs = [run.path.name, *shared_with] if shared_with else []
    submissions.record(run, Submission(0, "run.0", [[0], [1]], 0.0, runs=runs))
    submissions.record_job(run, "40")
    return run


def test_shards_are_queued_running_or_stopped_as_slurm_reports(tmp_path: Path, slurm: FakeSlurm) -> None:
    run = submitted(tmp_path)
    slurm.prints(squeue="run.0|1|42|40|PENDING||Resources", sacct="run.0|40_0|COMPLETED|n1|3600|gres/gpu=2")
    now = status(run)
    assert [shard.state for shard in now.shards] == ["finished", "queued"]
    assert (now.may_progress, now.gpu_hours, now.slurm_error) == (True, 2.0, "")
    slurm.prints(squeue="run.0|1|42|40|RUNNING|n2|None")
    assert status(run).shards[1].state == "running"
    slurm.prints(squeue="", sacct="run.0|40_1|TIMEOUT|n1|3600|gres/gpu=2")
    now = status(run)
    assert (now.shards[1].state, now.shards[1].last_error, now.may_progress) == ("stopped", "Slurm: TIMEOUT", False)


def test_a_worker_that_makes_no_step_for_long_is_named(tmp_path: Path, slurm: FakeSlurm) -> None:
    run = submitted(tmp_path)
    slurm.prints(squeue="run.0|1|42|40|RUNNING|n2|None|0|root|1-00:20:05", sacct="")
    assert status(run).shards[1].silent_seconds == 86_400 + 1_205, "not one step since its start"
    journal = run.journal_dir / "20261123T125216.123456-n2-7-deal0-shard1.jsonl"
    journal.parent.mkdir(exist_ok=True)
    journal.write_bytes(b"")
    assert status(run).shards[1].silent_seconds is None
    os.utime(journal, (time.time() - 1_500,) * 2)
    assert status(run).shards[1].silent_seconds == pytest.approx(1_500, abs=30)
    assert "25 min" in shown(run)
    slurm.prints(squeue="run.0|1|42|40|RUNNING|n2|None|0|root|9:59")
    assert status(run).shards[1].silent_seconds is None, "it has only just begun"


def test_a_shard_is_unknown_only_where_the_queue_does_not_answer(tmp_path: Path, slurm: FakeSlurm) -> None:
    run = submitted(tmp_path)
    slurm.answers(squeue=SQUEUE_DOWN, sacct=SACCT_DOWN)
    now = status(run)
    assert ([shard.state for shard in now.shards], now.may_progress) == (["finished", "unknown"], True)
    assert now.gpu_hours is None
    assert [part.split(":")[0] for part in now.slurm_error.split("; ")] == ["squeue", "sacct"]
    slurm.prints(squeue="")
    now = status(run)
    assert (now.shards[1].state, now.may_progress) == ("stopped", False), "a site may have no accounting at all"


RUNNING = "run.0|1|42|40|RUNNING|n2|None"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the watch, which a test moves."""
    now = [0.0]
    monkeypatch.setattr("jobs.watch.status.time.monotonic", lambda: now[0])
    return now


def asked(slurm: FakeSlurm, command: str) -> int:
    return sum(call.startswith(command) for call in slurm.calls())


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[], [0]], 0.0))
    submissions.record_job(run, "40")
    return Watch([run])


def test_accounting_is_asked_once_until_a_task_leaves_the_queue(
    watch: Watch, slurm: FakeSlurm, clock: list[float]
) -> None:
    slurm.prints(squeue=RUNNING, sacct="run.0|40_1|RUNNING|n2|5|cpu=1|0:0")
    for _ in range(5):
        watch.read()
        clock[0] += 30
    assert (asked(slurm, "squeue"), asked(slurm, "sacct")) == (5, 1)
    slurm.prints(squeue="")
    watch.read()
    assert asked(slurm, "sacct") == 2
    slurm.prints(sacct="run.0|40_1|FAILED|n2|5|cpu=1|7:0")
    [found] = watch.read()
    assert (asked(slurm, "sacct"), found.states) == (3, {"stopped": 1}), "accounting had called it running"
    for _ in range(5):
        watch.read()
    assert asked(slurm, "sacct") == 3
    clock[0] += 600
    watch.read()
    assert asked(slurm, "sacct") == 4


def test_a_silent_controller_does_not_count_as_an_empty_queue(
    watch: Watch, slurm: FakeSlurm, clock: list[float]
) -> None:
    slurm.prints(squeue=RUNNING, sacct="")
    watch.read()
    slurm.answers(squeue=SQUEUE_DOWN)
    [silent] = watch.read()
    assert (silent.states, asked(slurm, "sacct")) == ({"unknown": 1}, 1)
    slurm.prints(squeue="")
    watch.read()
    assert asked(slurm, "sacct") == 2, "the task has left the queue meanwhile"


def test_several_runs_are_one_query_each_from_the_day_of_the_first_submission(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.prints(squeue="", sacct="")
    runs = [plan(tmp_path, samples=samples) for samples in (1, 2)]
    for number, run in enumerate(runs):
        submissions.record(run, Submission(0, f"run-{number}.0", [[0]], 1_800_000_000.0 - number * 86_400))
        submissions.record_job(run, f"{40 + number}")
    unsubmitted = plan(tmp_path)
    statuses = Watch([*runs, unsubmitted]).read()
    assert [status.states["stopped"] for status in statuses] == [1, 1, 1]
    assert (asked(slurm, "squeue"), asked(slurm, "sacct")) == (1, 1)
    [sacct] = [call for call in slurm.calls() if call.startswith("sacct")]
    assert "-S 2027-01-1" in sacct
    assert sacct.endswith("--jobs=40,41")


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[RunFolder]:
    """A run that is finished, a newer one that is not begun, and one whose specification is damaged."""
    monkeypatch.chdir(tmp_path)
    finished, waiting, damaged = (plan(Path("runs"), samples=n) for n in (1, 2, 3))
    run_shard(str(finished.path), 0)
    os.utime(finished.spec_path, (0, finished.spec_path.stat().st_mtime - 3 * 86_400))
    damaged.spec_path.write_text("{")
    return [finished, waiting, damaged]


def test_runs_are_listed_with_what_they_are_and_how_far_they_are(runs: list[RunFolder]) -> None:
    result = jobs("list", "--json")
    assert result.exit_code == 0, result.output
    waiting, finished, damaged = json.loads(result.stdout)
    assert [found["run"] for found in (finished, waiting, damaged)] == [str(run.path) for run in runs]
    assert [found["state"] for found in (finished, damaged)] == ["finished", "damaged"]
    assert (finished["finished"], finished["planned"], waiting["finished"], waiting["planned"]) == (8, 8, 0, 16)
    assert (finished["method"], finished["dataset"], finished["target"]) == ("speccot", "demo", "scripted")
    assert "spec.json" in damaged["error"]


def test_a_run_on_which_nothing_works_is_stopped_and_one_that_vanishes_meanwhile_does_not_end_the_list(
    runs: list[RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, waiting, _ = runs
    waiting.journal_dir.mkdir(exist_ok=True)
    (waiting.journal_dir / "20260101T000000.000000-n1-1.jsonl").touch()

    def found() -> list[str]:
        result = jobs("list", "--json")
        assert result.exit_code == 0, result.output
        states = {run["run"]: run["state"] for run in json.loads(result.stdout)}
        rows = jobs("list").output
        assert all(state in rows for state in states.values()), "the table has the same words"
        return [states[str(run.path)] for run in (finished, waiting)]

    assert found() == ["finished", "stopped"]

    def vanishes(run: RunFolder) -> list[object]:
        raise FileNotFoundError(2, "No such file or directory", f"{run.path}")

    monkeypatch.setattr("jobs.run.submissions.read", vanishes)
    assert found() == ["finished", "damaged"]


def test_a_folder_without_runs_says_so_and_one_that_is_missing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert jobs("list").output.endswith(f" {tmp_path}\n")
    assert jobs("list", "nothing").exit_code == 2
