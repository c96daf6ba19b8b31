"""Shared parts of the commands of `python -m jobs`: error handling, options and run folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from harness.cli.command import OneLineErrors, OneLineGroup
from harness.cli.messages import counted
from jobs.arguments import RunPath

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder

_MAX_NAMES = 8
"""Maximum number of run folders listed if the user gave their parent folder."""

RUN = click.argument("run", metavar="RUN", type=RunPath())
"""The argument of a command on one run."""
ACCEPT_CODE_CHANGE = click.option(
    "--accept-code-change",
    "accept",
    is_flag=True,
    help="Resume a run that was started with other code; its results will list both code versions.",
)
"""Option of commands that resume runs."""
MAX_GPU_HOURS = click.option(
    "--max-gpu-hours",
    metavar="H",
    type=click.FloatRange(0, min_open=True),
    help="Abort if the estimate for all runs of this command exceeds H GPU-hours, or a run has no estimate. "
    "Without GPUs, the limit is in worker-hours.",
)
"""Option of commands that launch runs."""
JSON_OUTCOME = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the result as JSON on the last line of standard output; all other output goes to standard error.",
)
"""Option of commands that return the result of several runs."""


def integer(name: str, default: int, text: str, least: int = 1) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return an option for a whole number, with its default in the help."""
    return click.option(name, type=click.IntRange(least), default=default, show_default=True, help=text)


class RunCommand(OneLineErrors):
    """A command on runs that reports expected errors in one line."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            from jobs.outcome import explained

            if (line := explained(error)) is None:
                raise
            raise line from error


class RunCommands(OneLineGroup):
    """A group of commands on runs."""

    command_class = RunCommand


@click.group(cls=RunCommands)
def main() -> None:
    """Watch, resume, cancel and finish runs; launch suites and nightly runs."""


def given(cost: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that have a value, as flags for every run."""
    return {name: value for name, value in cost.items() if value is not None}


def run_folder(path: Path) -> RunFolder:
    """Return the run folder at a path. Raises click.UsageError if there is none."""
    from jobs.run.folder import RunFolder, run_folders

    run = RunFolder(path)
    if not run.exists():
        names = [inner.path.name for inner in run_folders([path])] if path.is_dir() else []
        inside = f"; run folders in it: {', '.join(names[:_MAX_NAMES])}" if names else ""
        raise click.UsageError(f"{path} is not a run folder: it has no events.jsonl{inside}")
    return run


def trusted_run(
    path: Path, *, accept: bool, submits: bool = False, runs_method: bool = True, grades: bool = False
) -> RunFolder:
    """Return the run folder at a path after checking that the content used by a command is trusted.

    Untrusted content is shown; with `accept` it is accepted. The other arguments state what the command does: submit
    jobs with the options of the last submission, including a job that grades (`submits`), run the run's method
    (`runs_method`), or grade samples itself (`grades`). Raises UsageError, NotTrusted and BadMethod.
    """
    from jobs import graders
    from jobs.run import codes, sizing, submissions, trust

    run = run_folder(path)
    submitted = submissions.read(run) if submits else []
    of_submission = trust.options(submitted[-1].options) if submitted else []
    of_method = codes.recorded_method(run) if runs_method else []
    of_grader = graders.code_recorded(run) if submits or grades else []
    of_models = [*trust.arguments(run.spec().settings), *trust.servers(sizing.recorded_servers(run))]
    trust.ask(run, [*of_submission, *of_models, *of_method, *of_grader], accept=accept)
    return run


def check_shard(run: RunFolder, shard: int) -> None:
    """Raise click.UsageError if the run has no shard with this number."""
    number = run.num_shards()
    if not 0 <= shard < number:
        raise click.UsageError(f"SHARD {shard}: the run has {counted(number, 'shard')}, numbered from 0")
