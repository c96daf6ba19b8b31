"""Two ordinary users of the cluster share a folder: one launches, the other watches, loads, finalizes and resumes."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.engines.scripted import SCRIPTED_SECONDS
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from tests.people import Person, commons
from tests.slurm.conftest import Cluster, slurm_output, wait_for

pytestmark = pytest.mark.slurm

NAMES = tuple(f"harness{letter}{os.getpid()}" for letter in "ab")
"""Slurm's daemons look users up by name, so they have to exist."""
GROUP = f"harness{os.getpid()}"


@pytest.fixture
def people(cluster: Cluster) -> Iterator[tuple[Person, Person]]:
    """Two users of a group, who exist while the test runs."""
    with commons() as place:
        try:
            subprocess.run(["groupadd", GROUP], check=True)
            for name in NAMES:
                subprocess.run(["useradd", "--no-create-home", "--user-group", "--groups", GROUP, name], check=True)
            gid = subprocess.run(["getent", "group", GROUP], capture_output=True, text=True, check=True).stdout
            groups = (int(gid.split(":")[2]),)
            # The first one's jobs do not end before they are canceled, however slow this machine is.
            first, second = (
                Person(
                    *(user.pw_uid, user.pw_gid, groups, place),
                    variables={"SLURM_CONF": str(cluster.conf), SCRIPTED_SECONDS: seconds},
                )
                for user, seconds in zip(map(pwd.getpwnam, NAMES), ("60", "0.01"), strict=True)
            )
            yield first, second
            for state in ("PENDING", "RUNNING"):
                slurm_output("scancel", f"--state={state}")
            wait_for(lambda: not slurm_output("squeue", "-h"), "no job left before its folder is removed")
        finally:
            for name in NAMES:
                subprocess.run(["userdel", name], capture_output=True, check=False)
            subprocess.run(["groupdel", GROUP], capture_output=True, check=False)


def test_what_one_user_launched_another_watches_loads_resumes_and_finalizes(people: tuple[Person, Person]) -> None:
    alice, bob = people
    folder = alice.commons.shared_by(alice.groups[0])
    arguments = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--limit", "8", "--shards", "2"]
    arguments += ["--cluster", "slurm", "--samples", "1", "--concurrency", "1", "--mem", "1G"]

    def done(person: Person, module: str, *words: object, exit_code: int = 0) -> str:
        answer = person.harness(module, *words)
        assert answer.returncode == exit_code, answer.stdout
        assert "Traceback" not in answer.stdout
        return answer.stdout

    done(alice, "harness.launch", *arguments, "--output", folder)
    [path] = folder.glob("demo-*")
    run = RunFolder(path)
    wait_for(lambda: len(run.journals()) == 2, "two workers at work")
    refusal = done(bob, "jobs", "cancel", path, exit_code=1)
    assert "Slurm failed: scancel: Kill job error on job id" in refusal
    assert "Access/permission denied" in refusal
    assert "2 running" in done(bob, "jobs", "status", path), "a colleague's tasks"
    done(bob, "warehouse.load", path)
    done(alice, "jobs", "cancel", path)
    wait_for(lambda: not slurm_output("squeue", "-h"), "the end of the canceled tasks")
    assert len(read_endings(run).finished) < 8
    assert "CANCELLED" in done(bob, "jobs", "status", path), "why a colleague's shards have stopped"
    assert '"mem" = "1G"' in done(bob, "jobs", "resume", path, exit_code=2), "what Bob would use of Alice's"
    assert "Submitted 2 tasks" in done(bob, "jobs", "resume", path, "--trust")
    wait_for(lambda: len(read_endings(run).finished) == 8, "every sample", 120)
    wait_for(lambda: not slurm_output("squeue", "-h"), "the end of Bob's jobs", 120)
    assert "sum 8" in done(alice, "jobs", "finalize", path), "the files are Bob's by now"
    assert owners(path) == {person.uid for person in people}


def owners(run: Path) -> set[int]:
    """Return the users whose files are in a run folder."""
    return {path.lstat().st_uid for path in run.rglob("*")}
