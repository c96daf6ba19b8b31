"""Jobs in a container: charliecloud's ch-run on the local cluster, as a stand-in for Apptainer, which Debian lacks.

The image has a Python at another path, where possible another one than this; the project's packages are mounted. It has
neither Slurm's commands nor the interpreter that submits.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.requirements import require_tool
from tests.slurm.conftest import Cluster, Launched, assert_whole, doctor, slurm_output, wait_for, warehouse

pytestmark = pytest.mark.slurm

PYTHON = "/opt/py/bin/python3"
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
"""The packages were compiled for this version."""
SYSTEMS = Path("/usr/bin") / NAME


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile whose jobs run in an image."""
    require_tool("ch-run")
    image = tmp_path_factory.mktemp("image")
    for folder in ("dev", "etc", "home", "opt/packages", "opt/py/bin", "opt/py/lib", "proc", "root", "sys", "tmp"):
        (image / folder).mkdir(parents=True)
    for name in ("passwd", "group", "hosts", "resolv.conf"):
        (image / "etc" / name).touch()
    shown = {sysconfig.get_path("purelib"): "/opt/packages"}
    for name in ("lib", "lib64"):
        (image / "usr" / name).mkdir(parents=True)
        (image / name).symlink_to(f"usr/{name}")
        shown[f"/usr/{name}"] = f"/usr/{name}"
    if SYSTEMS.exists():
        shutil.copy(SYSTEMS, image / "opt" / "py" / "bin" / "python3")
        (image / "opt" / "py" / "lib" / NAME).symlink_to(f"/usr/lib/{NAME}")
    else:
        shown[sys.base_prefix] = "/opt/py"
    binds = " ".join(f"-b {host}:{inside}" for host, inside in shown.items())
    path = tmp_path_factory.mktemp("profile") / "container.toml"
    path.write_text(
        'setup = ["export USER=$(id -un) PATH=/usr/bin:/bin PYTHONPATH=/opt/packages"]\n'
        f'python = "ch-run {binds} --set-env=LD_LIBRARY_PATH=/opt/py/lib'
        f' {image} -- {PYTHON}"\n'
    )
    return path


def _is_worker_of(pid: int, job_id: str) -> bool:
    """Return whether a process belongs to a task of an array, whose id is the array's with the task's number."""
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    array, _, task = job_id.partition("_")
    return f"SLURM_ARRAY_JOB_ID={array}" in variables and f"SLURM_ARRAY_TASK_ID={task}" in variables


def test_a_run_in_a_container_survives_a_kill_a_requeue_and_a_cancel(
    launch: Callable[..., Launched], undisturbed: dict[str, str], profile: Path
) -> None:
    """Its Python is decided by the profile, and the batch script requeues what Slurm's signal has stopped."""
    launched = launch("--profile", str(profile), shards=3, seconds=0.5)
    wait_for(lambda: launched.is_running(3), "every shard running")
    tasks = {shard.shard: shard.task for shard in launched.status().shards if shard.task is not None}
    interpreters = {Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0] for pid in launched.worker_pids()}
    assert interpreters == {PYTHON.encode()}
    slurm_output("scancel", "--signal=USR2", tasks[0].job_id)  # what Slurm sends before the time limit
    slurm_output("scancel", tasks[1].job_id)
    [another] = [pid for pid in launched.worker_pids() if _is_worker_of(pid, tasks[2].job_id)]
    os.kill(another, signal.SIGKILL)
    launched.complete()
    assert_whole(launched.run, undisturbed)
    states = slurm_output("sacct", "-n", "-X", "-D", "-P", f"--name={launched.array}", "-o", "state").split()
    assert "REQUEUED" in states, states
    [[versions]] = warehouse(launched.run, "SELECT DISTINCT versions FROM attempt")
    there = json.loads(str(versions))["python"]
    assert there == sys.version.split()[0] or SYSTEMS.exists()


def test_the_doctor_checks_the_containers_python(cluster: Cluster, profile: Path, tmp_path: Path) -> None:
    flags = ["--on-node", "--engine", "scripted", "--dataset", "demo", "--json", "--profile", str(profile)]
    flags += ["--cpus-per-task", "1", "--mem", "1G"]
    tables = json.loads(doctor(*flags, cwd=tmp_path).stdout)
    here, node = ({check["subject"]: check for check in tables[side]["checks"]} for side in ("here", "node"))
    assert "packages" not in here
    assert "job" not in node, node
    assert node["dataset"] == here["dataset"]
    assert not (tmp_path / "runs").exists()
    assert node["packages"]["status"] == "ok", node
    assert PYTHON in node["same environment"]["text"]
    assert node["locks across nodes"]["status"] == "ok"
    assert "requeues" in node["slurm"]["text"]
