"""Settings of a cluster, and the configuration files of its daemons."""

from __future__ import annotations

import json
import os
import secrets
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Cluster:
    """Settings of a cluster; stored in its folder, so only `up` needs options."""

    folder: str
    nodes: int = 4
    gpus: int = 2
    """Fake GPUs per node."""
    port: int = 27000
    """Port of slurmctld; slurmdbd uses the next port, and nodes use the ports from `port` + 101."""
    cpus: int = 16
    memory_mb: int = 100_000
    """Memory reported by each node, in MB; the machine may have less."""
    max_array_size: int = 1001
    node_timeout_seconds: int = 10
    """Seconds after which an unresponsive node counts as down."""
    prefix: str = "hn"
    """Prefix of node names, e.g. hn1, hn2, …; Slurm also uses the node names for the jobs' control groups."""

    @property
    def path(self) -> Path:
        """The folder of the cluster's files."""
        return Path(self.folder)

    @property
    def conf(self) -> Path:
        """Path of slurm.conf, the value of SLURM_CONF."""
        return self.path / "slurm.conf"

    @property
    def munge_socket(self) -> Path:
        """Path of the socket of the cluster's munged, used by every user."""
        return self.path / "munge" / "socket"

    @property
    def secrets(self) -> Path:
        """Folder with munge's key, accessible only to root."""
        return self.path / "secrets"

    @property
    def database_socket(self) -> Path:
        """Path of the socket of the cluster's MariaDB."""
        return self.path / "run" / "mariadb.sock"

    @property
    def names(self) -> list[str]:
        """Names of the nodes."""
        return [f"{self.prefix}{i + 1}" for i in range(self.nodes)]

    def pid_file(self, daemon: str) -> Path:
        """Return the path of a daemon's file with its process id."""
        return self.path / "run" / f"{daemon}.pid"

    def log(self, daemon: str) -> Path:
        """Return the path of a daemon's log."""
        return self.path / "log" / f"{daemon}.log"

    def save(self) -> None:
        """Write the settings into the folder."""
        settings = self.path / "cluster.json"
        settings.write_text(json.dumps(asdict(self)))
        settings.chmod(0o644)


def load(folder: Path) -> Cluster | None:
    """Read the cluster of a folder; None if the folder has none."""
    settings = folder / "cluster.json"
    return Cluster(**json.loads(settings.read_bytes())) if settings.exists() else None


def write_configuration(cluster: Cluster) -> None:
    """Write all configuration files of the daemons, and create the devices of the fake GPUs."""
    folder = cluster.path
    names = ("state", "log", "run", "munge", "gpus", "spool", *(f"spool/{node}" for node in cluster.names))
    for name in ("", *names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name).chmod(0o755)  # independent of the umask: ordinary users submit jobs too
    cluster.secrets.mkdir(exist_ok=True)
    cluster.secrets.chmod(0o700)
    key = cluster.secrets / "munge.key"
    if not key.exists():
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
    for i in range(cluster.gpus):
        if not (device := folder / "gpus" / f"nvidia{i}").exists():
            os.mknod(device, 0o20666, os.makedev(1, 3))  # Slurm requires a device file for each GPU
            device.chmod(0o666)
    if cluster.gpus:
        devices = f"{folder}/gpus/nvidia[0-{cluster.gpus - 1}]"
        nodes = f"{cluster.prefix}[1-{cluster.nodes}]"
        (folder / "gres.conf").write_text(f"NodeName={nodes} Name=gpu Type=h200 File={devices}\n")
    if cgroups_usable():
        (folder / "cgroup.conf").write_text("ConstrainRAMSpace=yes\nConstrainSwapSpace=yes\nAllowedSwapSpace=0\n")
    _write_settings(folder / "slurmdbd.conf", _accounting(cluster)).chmod(0o600)
    _write_settings(cluster.conf, _slurm(cluster))
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        if (folder / name).exists():
            (folder / name).chmod(0o644)


def _write_settings(path: Path, settings: dict[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def cgroups_usable() -> bool:
    """Return True if Slurm can write to cgroups v1, which allow it to kill every process of a job."""
    return all(os.access(CGROUPS / name, os.W_OK) for name in ("freezer", "memory"))


def _accounting(cluster: Cluster) -> dict[str, object]:
    return {
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={cluster.munge_socket}",
        "DbdHost": socket.gethostname().partition(".")[0],
        "DbdAddr": "127.0.0.1",
        "DbdPort": cluster.port + 1,
        "SlurmUser": "root",
        "LogFile": cluster.log("slurmdbd"),
        "PidFile": cluster.pid_file("slurmdbd"),
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StorageUser": "root",
        "CommitDelay": 1,
    }


def _slurm(cluster: Cluster) -> dict[str, object]:
    host = socket.gethostname().partition(".")[0]
    first, last = cluster.port + 101, cluster.port + 100 + cluster.nodes
    gpus = f" Gres=gpu:h200:{cluster.gpus}" if cluster.gpus else ""
    own_cgroups = cgroups_usable()
    return {
        "ClusterName": "local",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": cluster.port,
        "SlurmUser": "root",
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={cluster.munge_socket},cred_expire=5",  # short: old credentials delay a job's end
        "StateSaveLocation": cluster.path / "state",
        "SlurmdSpoolDir": cluster.path / "spool" / "%n",
        "SlurmctldPidFile": cluster.pid_file("slurmctld"),
        "SlurmdPidFile": cluster.pid_file("slurmd-%n"),
        "SlurmctldLogFile": cluster.log("slurmctld"),
        "SlurmdLogFile": cluster.log("slurmd-%n"),
        "ProctrackType": "proctrack/cgroup" if own_cgroups else "proctrack/linuxproc",
        "TaskPlugin": "task/cgroup" if own_cgroups else "task/none",
        "MpiDefault": "none",
        "ReturnToService": 2,
        "KillWait": 5,
        "SlurmdTimeout": cluster.node_timeout_seconds,
        "MessageTimeout": 30,
        "MaxArraySize": cluster.max_array_size,
        "MaxJobCount": 50_000,
        "SchedulerParameters": "batch_sched_delay=1,sched_interval=2,bf_interval=5",
        "PreemptType": "preempt/partition_prio",
        "PreemptMode": "REQUEUE",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_CPU_Memory",
        "DefMemPerCPU": 1000,
        "GresTypes": "gpu",
        "SlurmdParameters": "config_overrides",  # nodes may report more than the machine has
        "ScronParameters": "enable",
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": host,
        "AccountingStoragePort": cluster.port + 1,
        "AccountingStoragePass": cluster.munge_socket,
        "AccountingStorageTRES": "gres/gpu",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=2",
        "NodeName": f"{cluster.prefix}[1-{cluster.nodes}] NodeHostname={host} NodeAddr=127.0.0.1 "
        f"Port=[{first}-{last}] CPUs={cluster.cpus} RealMemory={cluster.memory_mb}{gpus} State=UNKNOWN",
        "PartitionName": "gpu Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=1 State=UP\n"
        "PartitionName=urgent Nodes=ALL MaxTime=INFINITE PriorityTier=10 State=UP",
    }
