"""Kill random processes until the run completes, and compare it with an undisturbed one.

`python -m tools.chaos` does so for as many kills as one wants, with more kinds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable

import pytest

from jobs.run import submissions
from jobs.slurm import client
from jobs.slurm.client import Task
from tests.slurm.conftest import Cluster, Launched, assert_whole, slurm_output
from tests.slurm.ledger import Death, Witness

pytestmark = pytest.mark.slurm
_KINDS = ["worker", "worker", "stop", "cancel", "array", "requeue", "node", "controller"]
"""The kinds of a round, which come in a random order."""
_PAUSE_SECONDS = (0.5, 2.0)


def running(launched: Launched) -> list[Task]:
    """Return the tasks of the run that Slurm is running."""
    names = [submission.name for submission in submissions.read(launched.run)]
    return [task for task in client.queue(names) if task.state == "RUNNING"]


def strike(how: str, launched: Launched, cluster: Cluster, dice: random.Random) -> bool:
    """Kill one process of a kind; return False if there is none now."""
    if how == "controller":
        os.kill(cluster.pid("slurmctld"), signal.SIGKILL)
        cluster.command("up")
        return True
    if how in ("worker", "stop"):
        pids = launched.worker_pids()
        if pids:
            pid = dice.choice(pids)
            os.kill(pid, signal.SIGKILL if how == "worker" else signal.SIGSTOP)
            if how == "stop":
                time.sleep(1)
                os.kill(pid, signal.SIGCONT)
        return bool(pids)
    tasks = running(launched)
    if not tasks:
        return False
    task = dice.choice(tasks)
    if how == "cancel":
        slurm_output("scancel", task.job_id)
    elif how == "array":
        slurm_output("scancel", f"--name={task.name}")
    elif how == "requeue":
        slurm_output("scontrol", "requeue", task.job_id)
    else:
        cluster.command("kill-node", task.node)
        time.sleep(1)
        cluster.command("start-node", task.node)
    return True


def launch_until(holds: Callable[[], object], launched: Launched) -> None:
    """Launch again, as a user would, until `holds` is true; what Slurm has given up is submitted again by that."""
    end = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < end, f"{launched.status()}; Slurm has:\n{slurm_output('squeue', '-r')}"
        time.sleep(3)
        launched.again()


def test_chaos(
    launch: Callable[..., Launched],
    undisturbed: dict[str, str],
    cluster: Cluster,
    ledger: Callable[[str, Witness], Death],
) -> None:
    dice = random.Random(20261121)
    launched = launch(seconds=1.0)  # long enough for all kills, however slow the machine makes each launch
    witness = launched.witness()
    struck: Counter[str] = Counter()
    for how in dice.sample(_KINDS, len(_KINDS)):
        launch_until(lambda: launched.worker_pids() or launched.finished() == 80, launched)
        time.sleep(dice.uniform(*_PAUSE_SECONDS))
        witness.look()
        struck[how] += strike(how, launched, cluster, dice)
    launch_until(lambda: launched.finished() == 80 and launched.has_ended(), launched)
    launched.again()
    print(f"\nchaos: {sum(struck.values())} kills ({dict(struck)}), {launched.finished()} samples, each once")
    assert sum(struck.values()) >= 5
    assert_whole(launched.run, undisturbed)
    assert ledger(f"chaos: {sum(struck.values())} kills at random", witness).lost == 0
