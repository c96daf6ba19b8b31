"""What a command says where Slurm does not take what it submits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from jobs.slurm.client import SlurmRefused, SlurmSilent


@contextmanager
def told(what: str) -> Iterator[None]:
    """One line: exit code 2 where sbatch refuses `what` as it was asked for, 1 where Slurm does not answer."""
    try:
        yield
    except SlurmRefused as refused:
        raise click.UsageError(f"Slurm did not take {what}: {refused}") from refused
    except SlurmSilent as silent:
        raise click.ClickException(f"Slurm did not take {what}: {silent}") from silent
