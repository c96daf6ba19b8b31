"""Hand shards to a cluster; the only module that imports submitit.

A job is given the path of a run folder and an index, so nothing is pickled that an edit could break. `local` runs the
same worker in a process of this machine, `debug` in this very process, `slurm` as an array job.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from jobs.store import RunFolder
from jobs.worker import LAUNCHER_PID, run_shard

Cluster = Literal["auto", "slurm", "local", "debug"]
CLUSTERS: tuple[Cluster, ...] = ("auto", "slurm", "local", "debug")
_LOCAL_LIMIT_MINUTES = 60 * 24 * 30


class Job(Protocol):
    """What is used of a submitit job."""

    @property
    def job_id(self) -> str: ...

    def done(self, force_check: bool = False) -> bool:
        """Whether it has ended."""

    def result(self) -> Any:
        """Wait and return what the worker returned; raises what it raised."""

    def exception(self) -> BaseException | None:
        """Wait and return what the worker raised."""

    def cancel(self, check: bool = True) -> None:
        """End it."""


def resolve(cluster: Cluster) -> Cluster:
    """`auto`: Slurm where sbatch is, else this machine."""
    if cluster != "auto":
        return cluster
    return "slurm" if shutil.which("sbatch") else "local"


def submit(run: RunFolder, shards: Sequence[int], cluster: Cluster, options: Mapping[str, Any]) -> list[Job]:
    """Submit one job per shard. `options` are submitit's parameters for Slurm (partition, account, time, …)."""
    import submitit

    executor = submitit.AutoExecutor(folder=str(run.logs_dir / "jobs"), cluster=cluster)
    if cluster == "slurm":
        executor.update_parameters(name=run.path.name, **options)
    else:
        executor.update_parameters(timeout_min=_LOCAL_LIMIT_MINUTES)
    if cluster == "local":
        os.environ[LAUNCHER_PID] = str(os.getpid())
    if len(shards) == 1:
        return [executor.submit(run_shard, str(run.path), shards[0])]
    jobs: list[Job] = executor.map_array(run_shard, [str(run.path)] * len(shards), list(shards))
    return jobs
