"""Run Slurm's commands, and find the processes of one cluster on the machine."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable

import click
import psutil

from local_cluster.configuration import Cluster

_STOP_SECONDS = 15.0


class ClusterError(click.ClickException):
    """The cluster could not be installed or started; the message says why."""

    exit_code = 1


def environment(cluster: Cluster) -> dict[str, str]:
    """Return this process's environment with SLURM_CONF and English messages."""
    return {**os.environ, "SLURM_CONF": str(cluster.conf), "LC_ALL": "C"}


def run(command: list[str], environment: dict[str, str]) -> None:
    """Run a command that must succeed; raises ClusterError with its output."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(command)} failed: {(done.stderr or done.stdout).strip()[-500:]}")


def output(command: list[str], environment: dict[str, str]) -> str | None:
    """Return a command's output; None if it fails or times out."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=20)
    except subprocess.TimeoutExpired:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def daemon(cluster: Cluster, name: str) -> psutil.Process | None:
    """Return the process that a daemon's pid file names; None if it is not running or not that daemon."""
    try:
        process = psutil.Process(int(cluster.pid_file(name).read_text()))
        if process.name() == name.partition("-")[0] and process.status() != psutil.STATUS_ZOMBIE:
            return process
    except (OSError, ValueError, psutil.Error):
        pass
    return None


def jobs(cluster: Cluster, nodes: list[str]) -> list[psutil.Process]:
    """Return the processes that jobs started on these nodes.

    They are identified by their environment, because a process may have changed its session and its name.
    """
    job_processes = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
        except psutil.Error:
            continue
        if environment.get("SLURM_CONF") == str(cluster.conf) and environment.get("SLURMD_NODENAME") in nodes:
            job_processes.append(process)
    return job_processes


def steps(cluster: Cluster, nodes: list[str]) -> list[psutil.Process]:
    """Return the slurmstepd process of each job step on these nodes, identified by its open log file."""
    logs = {str(cluster.log(f"slurmd-{node}")) for node in nodes}
    step_processes = []
    for process in psutil.process_iter():
        try:
            if process.name() == "slurmstepd" and logs & {file.path for file in process.open_files()}:
                step_processes.append(process)
        except psutil.Error:
            continue
    return step_processes


def kill(processes: list[psutil.Process]) -> int:
    """Kill processes, wait for them, and return their number."""
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(processes, timeout=_STOP_SECONDS)
    return len(processes)


def end(cluster: Cluster, *names: str) -> None:
    """Terminate these daemons if they are running; kill those that take too long to end."""
    running = [process for name in names if (process := daemon(cluster, name))]
    for process in running:
        process.terminate()
    _, stubborn = psutil.wait_procs(running, timeout=_STOP_SECONDS)
    kill(stubborn)


def states(cluster: Cluster) -> dict[str, str]:
    """Return Slurm's state of each node."""
    lines = output(["sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %t"], environment(cluster)) or ""
    return dict(line.split() for line in lines.splitlines())


def ready(cluster: Cluster) -> int:
    """Return the number of nodes that are up, idle or busy."""
    return sum(state in {"idle", "mix", "alloc", "comp"} for state in states(cluster).values())


def until(seconds: float, holds: Callable[[], object]) -> bool:
    """Wait until `holds` is true; return False on timeout."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def wait(cluster: Cluster, what: str, seconds: float, holds: Callable[[], object]) -> None:
    """Wait for a part of the cluster. Raises ClusterError with the daemons' log if it takes too long."""
    if not until(seconds, holds):
        raise ClusterError(f"{what}: timed out after {seconds:g} s. Log:\n{_complaints(cluster)}")


def _complaints(cluster: Cluster) -> str:
    lines = [
        f"{log.name}: {line}"
        for log in sorted((cluster.path / "log").glob("*.log"))
        for line in log.read_text(errors="replace").splitlines()
        if "error" in line or "fatal" in line
    ]
    return "\n".join(lines[-15:]) or "nothing"
