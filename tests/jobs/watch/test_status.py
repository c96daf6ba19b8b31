"""Output of `jobs status`: from the run's files, and from Slurm if the run was submitted."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from harness.cli.screen import Screen
from jobs import __main__ as commands
from jobs import after
from jobs.run import submissions
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.watch.follow import PACE_SECONDS, Pace
from jobs.watch.status import page, status
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_run, plan, slow_worker, wait_for_steps
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
    gone = CliRunner().invoke(commands.main, ["status", str(run.path)], catch_exceptions=False).output
    assert "1 stopped" in gone
    assert "ETA" not in gone
    [record] = json.loads(CliRunner().invoke(commands.main, ["status", str(run.path), "--json"]).output)
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
    now = status(run)
    assert now.shards[1].silent_seconds == pytest.approx(1_500, abs=30)
    console = Console(width=200, record=True, file=io.StringIO())
    Screen(console).show(page(now))
    assert "25 min" in console.export_text()
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
