"""Where the workers run, and how the samples are split among them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from harness.launch_flags import Cluster, Flag, as_words


class ClusterFlags(BaseModel):
    """Where the workers run, and how the samples are split among them."""

    cluster: Annotated[
        Cluster,
        Flag(
            "cluster",
            "Where to run. auto: Slurm where there is a cluster, otherwise here; debug: this process.",
        ),
    ] = "auto"
    profile: Annotated[
        str | None, Flag("cluster", "Cluster profile: a file in slurm/clusters by name, or the path of a file.")
    ] = None
    slurm: Annotated[
        tuple[str, ...],
        Flag("cluster", "Any other option for sbatch; may be repeated.", metavar="KEY=VALUE"),
        BeforeValidator(as_words),
    ] = ()
    shards: Annotated[int, Flag("cluster", "Number of shards that the samples are split into."), Field(ge=1)] = 1
    shards_per_task: Annotated[
        int, Flag("cluster", "Shards that one worker of a Slurm task runs with one start of the engines."), Field(ge=1)
    ] = 1
    workers_per_task: Annotated[
        int,
        Flag(
            "cluster",
            "Workers that one Slurm task starts side by side, each with an equal part of its GPUs and cores: "
            "for sites that give out whole nodes.",
        ),
        Field(ge=1, le=64),
    ] = 1
