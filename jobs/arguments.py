"""The arguments of `python -m jobs`: run folders and shards, with one line for what cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from harness.cli.command import OneLineGroup
from harness.plural import counted
from jobs.run.folder import RunDamaged, RunFolder, RunForbidden, run_folders

_MAX_NAMES = 8
"""Run folders that are named to someone who gave their parent folder."""


class RunCommands(OneLineGroup):
    """Commands on run folders: a damaged plan is one line and exit code 1, one that may not be read exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except RunForbidden as error:
            raise click.UsageError(str(error)) from error
        except RunDamaged as error:
            raise click.ClickException(str(error)) from error


def run_folder(path: Path) -> RunFolder:
    """Return the run folder at a path. Raises click.UsageError where there is none."""
    run = RunFolder(path)
    if not run.exists():
        names = [inner.path.name for inner in run_folders([path])] if path.is_dir() else []
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        inside = f"; the run folders in it: {', '.join(names[:_MAX_NAMES])}{more}" if names else ""
        raise click.UsageError(f"{path} is not a run folder: it has no shards.parquet{inside}")
    return run


def check_shard(run: RunFolder, shard: int) -> None:
    """Raise click.UsageError where a run has no shard of this number."""
    number = run.num_shards()
    if not 0 <= shard < number:
        numbered = "numbered 0" if number == 1 else f"numbered 0 to {number - 1}"
        raise click.UsageError(f"SHARD {shard}: the run has {counted(number, 'shard')}, {numbered}")
