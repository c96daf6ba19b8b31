"""Start and stop the daemons of a cluster."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess

from local_cluster import processes
from local_cluster.configuration import CGROUPS, Cluster


def start(cluster: Cluster) -> None:
    """Start every daemon that is not running. Raises processes.ClusterError."""
    environment = processes.environment(cluster)
    _start_munge(cluster)
    _start_database(cluster)
    if not processes.daemon(cluster, "slurmdbd"):
        processes.run(["slurmdbd"], {**environment, "MYSQL_UNIX_PORT": str(cluster.database_socket)})
    probe = ["sacctmgr", "-n", "show", "cluster"]
    processes.wait(cluster, "slurmdbd", 40, lambda: processes.output(probe, environment) is not None)
    if not processes.daemon(cluster, "slurmctld"):
        processes.run(["slurmctld"], environment)
    processes.wait(cluster, "slurmctld", 40, lambda: _controller_answers(environment))
    for node in cluster.names:
        start_node(cluster, node)
    processes.wait(cluster, "every node up", 60, lambda: _resume_drained(cluster) == cluster.nodes)


def _controller_answers(environment: dict[str, str]) -> bool:
    return "is UP" in (processes.output(["scontrol", "ping"], environment) or "")


def _resume_drained(cluster: Cluster) -> int:
    """Resume drained nodes, as an administrator would, and return how many nodes are up.

    Slurm drains a node if it loses track of the node's jobs when the node dies.
    """
    for node, state in processes.states(cluster).items():
        if state.startswith(("drain", "drng", "fail")):
            processes.output(["scontrol", "update", f"nodename={node}", "state=resume"], processes.environment(cluster))
    return processes.ready(cluster)


def start_node(cluster: Cluster, node: str) -> None:
    """Start a node's daemon if it is not running."""
    if not processes.daemon(cluster, f"slurmd-{node}"):
        processes.run(["slurmd", "-N", node], processes.environment(cluster))


def kill_node(cluster: Cluster, node: str) -> int:
    """Kill a node's daemon and all its processes, like a power cut; return the number of processes killed."""
    daemon = processes.daemon(cluster, f"slurmd-{node}")
    return processes.kill(
        [*([daemon] if daemon else []), *processes.steps(cluster, [node]), *processes.jobs(cluster, [node])]
    )


def stop(cluster: Cluster) -> None:
    """End all jobs, daemons and processes of the cluster, and remove its folder."""
    environment = processes.environment(cluster)
    if processes.daemon(cluster, "slurmctld") and _controller_answers(environment):
        for state in ("PENDING", "RUNNING", "SUSPENDED"):  # jobs of every user
            processes.output(["scancel", "--full", f"--state={state}"], environment)
        processes.until(10, lambda: processes.output(["squeue", "-h"], environment) == "")
    processes.end(cluster, "slurmctld", *(f"slurmd-{node}" for node in cluster.names))
    processes.kill([*processes.jobs(cluster, cluster.names), *processes.steps(cluster, cluster.names)])
    for daemon in ("slurmdbd", "mariadbd", "munged"):
        processes.end(cluster, daemon)
    for node in cluster.names:
        for group in CGROUPS.glob(f"*/slurm_{node}"):
            for folder in [*sorted(group.rglob("*"), reverse=True), group]:
                with contextlib.suppress(OSError):  # fails for files, which disappear with their folder
                    folder.rmdir()
    shutil.rmtree(cluster.path)


def _start_munge(cluster: Cluster) -> None:
    if not processes.daemon(cluster, "munged"):
        options = {"key-file": cluster.secrets / "munge.key", "socket": cluster.munge_socket}
        options |= {"seed-file": cluster.secrets / "munge.seed"}
        options |= {"log-file": cluster.log("munged"), "pid-file": cluster.pid_file("munged")}
        processes.run(
            ["munged", "--force", *(f"--{name}={value}" for name, value in options.items())], dict(os.environ)
        )
    probe = ["munge", "-n", "-S", str(cluster.munge_socket)]
    processes.wait(cluster, "munged", 20, lambda: processes.output(probe, dict(os.environ)) is not None)


def _start_database(cluster: Cluster) -> None:
    data = cluster.path / "database"
    if not (data / "mysql").exists():
        options = [f"--datadir={data}", "--user=root", "--skip-test-db", "--auth-root-authentication-method=socket"]
        processes.run(["mariadb-install-db", "--no-defaults", *options], dict(os.environ))
    if not processes.daemon(cluster, "mariadbd"):
        command = ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-networking"]
        command += [f"--socket={cluster.database_socket}", f"--pid-file={cluster.pid_file('mariadbd')}"]
        command += ["--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=2", "--performance-schema=off"]
        with cluster.log("mariadbd").open("ab") as log:
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    probe = ["mariadb", "--no-defaults", f"--socket={cluster.database_socket}", "-e", "select 1"]
    processes.wait(cluster, "mariadbd", 40, lambda: processes.output(probe, dict(os.environ)) is not None)
