"""Command-line arguments that identify runs."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem


class RunName(click.types.StringParamType):
    """A run in a database: a run id, a unique prefix of one, or a run folder."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the run folders with this prefix."""
        from jobs.run.folder import run_paths

        return [CompletionItem(str(path) if "/" in incomplete else path.name) for path in run_paths(incomplete)]


class RunPath(RunName):
    """A run folder given by path, name or unique prefix; names are looked up in `runs` and the working directory.

    Paths that exist but are not readable run folders are passed through; the command reports the error.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path of the run folder."""
        from jobs.run.folder import NoSuchRun, run_path

        try:
            return run_path(str(value))
        except NoSuchRun as error:
            raise click.UsageError(str(error), ctx) from error
