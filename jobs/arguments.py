"""The arguments of `python -m jobs`: run folders and shards, with one line for what cannot be used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from harness.cli import permissions
from harness.cli.command import OneLineErrors, OneLineGroup
from harness.cli.messages import counted

if TYPE_CHECKING:
    from jobs.run.folder import RunFolder

_MAX_NAMES = 8
"""Run folders that are named to someone who gave their parent folder."""


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


RUN = click.argument("run", metavar="RUN", type=RunPath())
"""The argument of a command on one run."""
ACCEPT_CODE_CHANGE = click.option(
    "--accept-code-change",
    "accept",
    is_flag=True,
    help="Go on with a run that other code began; its results then say that two codes made them.",
)
"""The option of a command that goes on with runs."""
TRUST = click.option(
    "--trust",
    is_flag=True,
    help="Accept what somebody else recorded in the run folder, as this command has shown it: code of a method, "
    "addresses of servers, options of sbatch.",
)
"""The option of a command that works on a run, or submits work on it."""
MAX_GPU_HOURS = click.option(
    "--max-gpu-hours",
    metavar="H",
    type=click.FloatRange(0, min_open=True),
    help="Refuse to begin where the estimate for all runs of this command is above H GPU-hours, or where a run has "
    "none. Without GPUs: hours of workers.",
)
"""The option of a command that launches runs."""
JSON_OUTCOME = click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print the outcome as JSON, as the last line of standard output; everything else goes to standard error.",
)
"""The option of a command that ends with the outcome of several runs."""


@contextmanager
def file_errors_in_one_line() -> Iterator[None]:
    """Turn a file that is damaged, and one that cannot be read or written, into one line and exit code 1."""
    from jobs.run.files import FULL, FileDamaged, LocksRefused
    from jobs.run.folder import RunForbidden

    try:
        yield
    except (RunForbidden, LocksRefused) as error:
        raise click.UsageError(str(error)) from error
    except FileDamaged as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        is_full = error.errno in FULL
        if permissions.is_forbidden(error) or not (error.filename or is_full) or not error.strerror:
            raise  # the command itself explains what is forbidden
        remedy = " (is the disk full, or a quota?)" if is_full else ""
        name = f"{error.filename}: " if error.filename else ""  # a failed write of a library names none
        raise click.ClickException(f"{name}{error.strerror}{remedy}. Nothing finished is lost") from error


class RunCommand(OneLineErrors):
    """A command on runs: a file that is damaged or cannot be used is one line and exit code 1.

    One that may not be read has exit code 2.
    """

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with file_errors_in_one_line():
            return super().invoke(ctx)


class RunCommands(OneLineGroup):
    """A command whose subcommands are commands on runs."""

    command_class = RunCommand


def given(cost: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of these options that were given, as flags of every run."""
    return {name: value for name, value in cost.items() if value is not None}


def run_folder(path: Path) -> RunFolder:
    """Return the run folder at a path. Raises click.UsageError where there is none."""
    from jobs.run.folder import RunFolder, run_folders

    run = RunFolder(path)
    if not run.exists():
        names = [inner.path.name for inner in run_folders([path])] if path.is_dir() else []
        inside = f"; the run folders in it: {', '.join(names[:_MAX_NAMES])}" if names else ""
        raise click.UsageError(f"{path} is not a run folder: it has no events.jsonl{inside}")
    return run


def trusted_run(path: Path, *, accept: bool, submits: bool = False, runs_method: bool = True) -> RunFolder:
    """Return the run folder at a path, of which all that a command uses to work on the run is trusted.

    What is not trusted is shown, and accepted with `accept`. `submits`: whether jobs are submitted with the options of
    the last ones; `runs_method`: whether the run's method runs. Raises click.UsageError.
    """
    from harness.methods.plugins import BadMethod
    from jobs.run import codes, sizing, submissions, trust

    run = run_folder(path)
    submitted = submissions.read(run) if submits else []
    try:
        of_submission = trust.options(submitted[-1].options) if submitted else []
        of_method = codes.recorded_method(run) if runs_method else []
        of_models = [*trust.arguments(run.spec().settings), *trust.servers(sizing.recorded_servers(run))]
        trust.ask(run, [*of_submission, *of_models, *of_method], accept=accept)
    except (trust.NotTrusted, BadMethod) as error:
        raise click.UsageError(str(error)) from error
    return run


def check_shard(run: RunFolder, shard: int) -> None:
    """Raise click.UsageError where a run has no shard of this number."""
    number = run.num_shards()
    if not 0 <= shard < number:
        raise click.UsageError(f"SHARD {shard}: the run has {counted(number, 'shard')}, numbered from 0")
