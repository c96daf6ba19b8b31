"""The arguments that name runs, with one line for what names none."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem


class RunName(click.types.StringParamType):
    """A run that a database names: a run id, a unique beginning of one, or a run folder."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the run folders that begin so."""
        from jobs.run.folder import run_paths

        return [CompletionItem(str(path) if "/" in incomplete else path.name) for path in run_paths(incomplete)]


class RunPath(RunName):
    """A run folder by its path, or by its name or a unique beginning of it, where it lies in `runs` or here.

    An existing path that is no run folder, or that the user may not read, is left to the command to explain.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path of the run folder."""
        from jobs.run.folder import NoSuchRun, run_path

        try:
            return run_path(str(value))
        except NoSuchRun as error:
            raise click.UsageError(str(error), ctx) from error
