"""Fault injection on a real Slurm: afterwards each sample exists exactly once, as if nothing had happened."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.slurm.conftest import Cluster, Launched, assert_whole, harness, slurm_output, wait_for

pytestmark = pytest.mark.slurm
Launch = Callable[..., Launched]
Texts = dict[str, str]
_DISK_BYTES = 64 << 20
"""Size of a small disk: the run folder, the warehouse and some copies of it fit."""


def states_of(launched: Launched) -> list[str]:
    """Return the state that each start of the run's tasks has ended in, as accounting has it."""
    return slurm_output("sacct", "-n", "-X", "-D", "-P", f"--name={launched.array}", "-o", "state").split()


def test_a_launcher_dies_right_after_sbatch_and_what_is_resumed_after_a_cancellation_loses_a_task(
    launch: Launch, undisturbed: Texts, tmp_path: Path
) -> None:
    """The sbatch of this test submits the job and then kills its caller."""
    real = slurm_output("which", "sbatch").strip()
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\n"{real}" "$@"\nkill -9 $PPID\n')
    wrapper.chmod(0o755)
    launched = launch(first_path=f"{wrapper.parent}:{os.environ['PATH']}", seconds=0.7)
    assert slurm_output("squeue", "-h"), "the array is queued, but its number was never recorded"
    assert "Submitted" not in launched.again()
    # Without the files that the launcher was to write, the tasks would fail after a minute.
    harness("jobs", "cancel", str(launched.run.path), environment=launched.environment)
    wait_for(lambda: not slurm_output("squeue", "-h"), "all cancelled")

    launched.resume()
    wait_for(lambda: launched.is_running(2), "two shards running")
    task = next(s.task for s in launched.status().shards if s.state == "running")
    assert task is not None
    witness = launched.witness()
    assert witness.steps, "something is under way"
    slurm_output("scancel", task.job_id)
    wait_for(lambda: launched.status().states["stopped"] == 1, "one shard stopped")
    wait_for(lambda: any("CANCELLED" in shard.last_error for shard in launched.status().shards), "its reason")
    launched.complete()
    assert_whole(launched.run, undisturbed)
    assert witness.lost() == 0


def test_two_more_launches_a_requeue_and_a_preemption_need_no_resume(
    launch: Launch, undisturbed: Texts, cluster: Cluster
) -> None:
    launched = launch(seconds=0.8)
    command = [sys.executable, "-m", "harness.launch", *launched.arguments]
    launchers = [
        subprocess.Popen(command, env=launched.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(2)
    ]
    for launcher in launchers:
        output, _ = launcher.communicate(timeout=120)
        assert launcher.returncode == 0, output
        assert "Submitted" not in output

    wait_for(launched.is_running, "a shard running")
    task = next(s.task for s in launched.status().shards if s.state == "running")
    assert task is not None
    witness = launched.witness()
    slurm_output("scontrol", "requeue", task.job_id)

    everything = ["--partition=urgent", f"--nodes={cluster.nodes}", "--exclusive"]
    urgent = slurm_output("sbatch", "--parsable", *everything, "--output=/dev/null", "--wrap=sleep 1").strip()
    ended = ["sacct", "-n", "-P", "-X", "-o", "jobid,state", "-j", urgent]
    wait_for(lambda: f"{urgent}|COMPLETED" in slurm_output(*ended), "the urgent job's end")
    launched.complete(starts=1)
    assert_whole(launched.run, undisturbed)
    assert {"REQUEUED", "PREEMPTED"} <= set(states_of(launched)), states_of(launched)
    assert witness.lost() == 0


def test_the_time_limit_comes_first(launch: Launch, undisturbed: Texts) -> None:
    """One minute for a shard that takes longer: it drains, is requeued and resumes by itself."""
    launched = launch("--time", "1", shards=1, seconds=1.0)
    witness = launched.witness()
    launched.complete(starts=1, seconds=600, witness=witness)
    assert_whole(launched.run, undisturbed)
    assert witness.lost() == 0
    assert "REQUEUED" in states_of(launched), states_of(launched)
    assert "TIMEOUT" not in states_of(launched), states_of(launched)


def test_slurms_daemons_and_a_node_die_and_come_back(launch: Launch, undisturbed: Texts, cluster: Cluster) -> None:
    os.kill(cluster.pid("slurmdbd"), signal.SIGKILL)
    launched = launch(seconds=1.5)
    wait_for(launched.is_running, "a shard running")
    now = launched.status()
    assert now.gpu_hours is None
    assert now.slurm_error
    cluster.command("up")

    # Otherwise Slurm forgets that the tasks are running, starts them again, and holds them as duplicates. It saves its
    # state after a change, such as one more job.
    state = cluster.folder / "state" / "job_state"
    former = state.stat().st_mtime_ns
    slurm_output("sbatch", "--hold", "--output=/dev/null", "--wrap=true")
    wait_for(lambda: state.stat().st_mtime_ns > former, "a controller that has saved its state", 30)
    witness = launched.witness()
    os.kill(cluster.pid("slurmctld"), signal.SIGKILL)
    now = launched.status()
    assert now.slurm_error, "status reports that Slurm does not answer, and reads the files"
    assert now.planned == 80
    cluster.command("up")

    wait_for(launched.is_running, "a shard running")
    node = next(s.task.node for s in launched.status().shards if s.state == "running" and s.task)
    witness.look()
    cluster.command("kill-node", node)
    time.sleep(2)
    cluster.command("start-node", node)
    launched.complete()
    assert_whole(launched.run, undisturbed)
    assert witness.lost() == 0


def test_the_disk_fills_up(launch: Launch, undisturbed: Texts, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(small)], check=True)
    try:
        launched = launch(output=small / "runs")
        wait_for(launched.is_running, "a shard running")
        ballast = small / "ballast"
        with contextlib.suppress(OSError):
            ballast.write_bytes(bytes(_DISK_BYTES))
        wait_for(launched.has_ended, "the end", 120)
        now = launched.status()
        assert now.finished < now.planned

        def tells_why() -> bool:
            shown = harness("jobs", "status", str(launched.run.path), environment=launched.environment)
            # A log has the exception if its last block had room; otherwise Slurm's word is all that there is.
            return any(said in shown for said in ("Slurm: FAILED", "is the disk full?", "No space left"))

        # slurmctld tells accounting of new jobs every five seconds, and this one may end sooner.
        wait_for(tells_why, "the reason of the failure")
        witness = launched.witness()
        ballast.unlink()
        launched.complete()
        assert_whole(launched.run, undisturbed)
        assert witness.lost() == 0
    finally:
        slurm_output("scancel", "--user=root")
        wait_for(lambda: not slurm_output("squeue", "-h"), "no job left")
        subprocess.run(["umount", "-l", str(small)], check=False)
