"""The command `slurm/local-cluster`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from local_cluster import processes, scrontab
from local_cluster.configuration import Cluster, load, write_configuration
from local_cluster.daemons import kill_node, start, start_node, stop

PACKAGES = (
    "slurmctld",
    "slurmd",
    "slurmdbd",
    "slurm-client",
    "munge",
    "mariadb-server-core",
    "mariadb-client-core",
    "gcc",
    "libc6-dev",
    "charliecloud",  # only for container tests; Debian has no package of Apptainer
)


@click.group()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    envvar="HARNESS_SLURM_DIR",
    default="/tmp/harness-slurm",
    show_default=True,
    help="Folder of the cluster's files; can also be set with HARNESS_SLURM_DIR.",
)
@click.pass_context
def main(context: click.Context, folder: Path) -> None:
    """A real Slurm on one machine, for tests."""
    context.obj = folder.resolve()


@main.command()
def install() -> None:
    """Install Debian's packages without starting their services, and build scrontab, which they lack."""
    policy = Path("/usr/sbin/policy-rc.d")  # package scripts run it before a service starts; status 101 forbids it
    is_created_here = not policy.exists()
    if is_created_here:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=quiet, check=True)
        subprocess.run(["apt-get", "install", "-qqy", "--no-install-recommends", *PACKAGES], env=quiet, check=True)
        if not shutil.which("scrontab"):
            scrontab.build()
    except (OSError, subprocess.CalledProcessError) as failure:
        raise processes.ClusterError(f"installation failed: {failure}") from failure
    finally:
        if is_created_here:
            policy.unlink()


@main.command()
@click.option("--nodes", type=click.IntRange(1, 500), default=4, show_default=True, help="Number of nodes.")
@click.option("--gpus", type=click.IntRange(0, 64), default=2, show_default=True, help="Fake GPUs per node.")
@click.option("--cpus", type=click.IntRange(1), default=16, show_default=True, help="CPUs reported by each node.")
@click.option("--port", type=click.IntRange(1024, 65000), default=27000, show_default=True, help="slurmctld's port.")
@click.option("--max-array-size", type=click.IntRange(2), default=1001, show_default=True, help="MaxArraySize.")
@click.option(
    "--node-timeout",
    type=click.IntRange(2),
    default=10,
    show_default=True,
    help="Seconds after which a node that does not respond counts as down.",
)
@click.option(
    "--prefix", default="hn", show_default=True, help="Prefix of node names, unique among clusters on this machine."
)
@click.pass_obj
def up(
    folder: Path, nodes: int, gpus: int, cpus: int, port: int, max_array_size: int, node_timeout: int, prefix: str
) -> None:
    """Start a cluster and wait until every node is up; earlier jobs resume."""
    if os.geteuid() != 0:
        raise click.UsageError("a local Slurm requires root: its node daemons run jobs as their users")
    if missing := [
        name for name in ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd") if not shutil.which(name)
    ]:
        raise click.UsageError(f"not installed: {', '.join(missing)}; on Debian, run `slurm/local-cluster install`")
    begun = time.monotonic()
    cluster = load(folder)
    if cluster is None:
        cluster = Cluster(str(folder), nodes, gpus, port, cpus, 100_000, max_array_size, node_timeout, prefix)
        write_configuration(cluster)
        cluster.save()
    start(cluster)
    click.echo(
        f"{cluster.nodes} nodes of {cluster.gpus} fake GPUs are up after {time.monotonic() - begun:.1f} s\n"
        f"export SLURM_CONF={cluster.conf}"
    )


@main.command()
@click.pass_obj
def down(folder: Path) -> None:
    """Stop all jobs and daemons, and remove the cluster's folder."""
    if cluster := load(folder):
        stop(cluster)
    click.echo("down")


@main.command()
@click.pass_obj
def status(folder: Path) -> None:
    """Print which daemons are running; exit status 3 if any daemon is not running."""
    cluster = _existing_cluster(folder)
    daemons = ["munged", "mariadbd", "slurmdbd", "slurmctld", *(f"slurmd-{node}" for node in cluster.names)]
    running = {name: processes.daemon(cluster, name) for name in daemons}
    for name, process in running.items():
        click.echo(f"{name:12} " + (f"pid {process.pid}" if process else "not running"))
    click.echo(f"{processes.ready(cluster)} of {cluster.nodes} nodes up")
    sys.exit(0 if all(running.values()) else 3)


@main.command("kill-node")
@click.argument("node")
@click.pass_obj
def kill_node_command(folder: Path, node: str) -> None:
    """Kill a node's daemon and all its processes at once."""
    click.echo(f"{kill_node(_existing_cluster(folder, node), node)} processes killed")


@main.command("start-node")
@click.argument("node")
@click.pass_obj
def start_node_command(folder: Path, node: str) -> None:
    """Restart a node's daemon."""
    start_node(_existing_cluster(folder, node), node)


@main.command()
@click.pass_obj
def env(folder: Path) -> None:
    """Print SLURM_CONF=…"""
    click.echo(f"SLURM_CONF={_existing_cluster(folder).conf}")


def _existing_cluster(folder: Path, node: str | None = None) -> Cluster:
    cluster = load(folder)
    if cluster is None:
        raise click.UsageError(f"no cluster in {folder}; `slurm/local-cluster up` creates one")
    if node is not None and node not in cluster.names:
        raise click.UsageError(f"no node {node}; valid: {', '.join(cluster.names)}")
    return cluster


if __name__ == "__main__":
    main(prog_name="slurm/local-cluster")
