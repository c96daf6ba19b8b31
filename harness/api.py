"""Runs and results from Python and notebooks: `harness.run(…)`, `harness.load(…)`, `harness.results(…)`.

A front like the commands: it makes the same `Launch` and calls the same code. Where a command prints one line and
exits, it raises HarnessError with that line. Workers are processes of their own, which never import the script that
calls this, so that a script needs no guard around its calls.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from harness.cli import permissions
from harness.cli.screen import terminal
from harness.methods import METHODS, Method
from harness.methods.method import problem_of
from harness.settings.layers import launch_from
from harness.settings.roles import flattened
from jobs import after, drive, outcome

if TYPE_CHECKING:
    import pandas

    from warehouse.report.summary import RunSummary


class HarnessError(Exception):
    """A wrong input, or something that cannot be done; the message is the one line that the command would print."""


class RunFailed(HarnessError):
    """Workers failed; the message is the command's line, with the traceback of the first exception of a worker below.

    What is finished is safe, and the same call resumes.
    """

    def __init__(self, message: str, worker_traceback: str) -> None:
        super().__init__(f"{message}\n\nIn the worker:\n\n{worker_traceback}" if worker_traceback else message)
        self.worker_traceback = worker_traceback
        """Empty where the worker left none, as one that was killed."""


@dataclass(frozen=True)
class Run:
    """A run: where it is, and what it came to."""

    folder: Path
    """The run folder."""
    database: Path
    """The warehouse that the run is loaded into once it has ended."""

    @property
    def run_id(self) -> str:
        """The run's name, in the warehouse too."""
        return self.folder.name

    @property
    def num_unfinished(self) -> int:
        """Samples that are not finished, for a run on Slurm. 0: graded and loaded, or soon to be."""
        with _errors_in_one_line():
            return after.num_unfinished(self.folder)

    @property
    def summary(self) -> RunSummary:
        """The numbers that the launch prints, from the warehouse. Raises HarnessError where it lacks the run."""
        with _errors_in_one_line():
            return after.summary_of(self.database, self.folder)

    def results(self, level: str = "run") -> pandas.DataFrame:
        """Return the rows of this run; see `harness.results`."""
        return results(self, level=level)


def run(*, quiet: bool = False, wait: bool = False, dry_run: bool = False, **flags: Any) -> Run:
    """Run one method on one benchmark, grade the answers and load them; the same call again resumes.

    flags: those of `python -m harness.launch`, with underscores and without the dashes in front, `preset`, `config` and
    the method's hyper-parameters among them; lists for those that may be repeated, tables for KEY=VALUE. `draft`,
    `target` and `reward` are names of models, or tables such as `{"model": "qwq-32b", "temperature": 0.7}`. `method`
    may also be a class of Method whose code is in a file. A local run is waited for; on Slurm the jobs are submitted.

    quiet: print nothing; that other code began the run is then a Python warning. wait: on Slurm too, wait until the run
    has ended. dry_run: print what would be done, and write nothing. Raises HarnessError for what the command refuses,
    and RunFailed with a worker's traceback where one failed.
    """
    given = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in flags.items()
        if value is not None
    }
    if "method" in given:
        given["method"] = _reference_of(given["method"])
    is_notebook = Console().is_jupyter  # its kernel asks for colors, and what is redrawn there stays
    console = terminal(quiet=quiet, force_jupyter=False, force_terminal=False if is_notebook else None)
    with _errors_in_one_line(), _children_without_the_script():
        launch = launch_from(given)
        prepared = drive.launch(outcome.Outcome(), launch, flattened(given), console, is_dry=dry_run, waits=wait)
        if quiet and prepared.code_notice:
            warnings.warn(prepared.code_notice, stacklevel=2)
        return Run(prepared.run.path, after.database_of(prepared.run))


def load(run: str | os.PathLike[str] | Run, database: str | os.PathLike[str] | None = None) -> Run:
    """Bring a warehouse up to date with a run folder, which may be a colleague's, and return the run.

    run: a run folder, a run id or a unique beginning of one. database: default: the one beside the run folder. Raises
    HarnessError.
    """
    with _errors_in_one_line():
        return Run(*after.load(_text(run), None if database is None else Path(database)))


def results(
    *runs: str | os.PathLike[str] | Run, level: str = "run", database: str | os.PathLike[str] | None = None
) -> pandas.DataFrame:
    """Return results as a data frame: a row for each run, problem, sample, step, candidate or call, by `level`.

    runs: what `run` and `load` return, run folders, run ids or beginnings of them, in this order; without any: all runs
    of the database. database: default: the one beside the first run, else in `runs`, else here. Rates and shares are
    from 0 to 1, times in seconds; `python -m warehouse.query --describe VIEW` explains the columns. Raises
    HarnessError.
    """
    if database is None and runs and isinstance(runs[0], Run):
        database = runs[0].database
    with _errors_in_one_line():
        return after.data_frame(None if database is None else Path(database), [_text(one) for one in runs], level)


def _text(run: str | os.PathLike[str] | Run) -> str:
    return str(run.folder) if isinstance(run, Run) else os.fspath(run)


def _reference_of(method: str | type) -> str:
    """Return how the command names a method. Raises HarnessError for a class whose code is in no file of its own."""
    if isinstance(method, str):
        return method
    if not isinstance(method, type):
        raise HarnessError(f"method {method!r}: expected a name, FILE.py:CLASS, PACKAGE.MODULE:CLASS, or a class")
    for built_in, known in METHODS.items():
        if method is known:
            return built_in
    name, module = method.__qualname__, method.__module__
    if Method not in method.__mro__:
        raise HarnessError(f"method {name} {problem_of(method)}")
    file = getattr(sys.modules.get(module), "__file__", None)
    if module == "__main__" or file is None or not name.isidentifier():
        raise HarnessError(
            f"method {name}: the class is defined in a notebook's cell, in the script itself or in a function, where "
            "workers, which are other processes, cannot import it; put it at the top of a file of its own, such as "
            f'my_method.py, and write method="my_method.py:{name.rpartition(".")[2]}", or import it from there'
        )
    return f"{module}:{name}" if "." in module or hasattr(sys.modules[module], "__path__") else f"{file}:{name}"


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Raise HarnessError in place of what a command would print as one line."""
    try:
        with outcome.launch_errors_in_one_line():
            yield
    except click.ClickException as error:
        line, cause = " ".join(error.format_message().split()), error.__cause__
        if isinstance(cause, outcome.LaunchFailed) and cause.__cause__ is None:
            raise RunFailed(line, cause.worker_traceback) from None
        raise HarnessError(line) from (None if isinstance(error, click.UsageError) else cause)
    except OSError as error:
        if not permissions.is_forbidden(error):
            raise
        raise HarnessError(permissions.explained(error)) from error


@contextmanager
def _children_without_the_script() -> Iterator[None]:
    """Keep processes that multiprocessing starts meanwhile from importing the caller's script.

    The graders' and vLLM's need nothing of it. They would run it once more, and this call within it, unless it asks
    whether its name is "__main__".
    """
    prepared = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        return {key: value for key, value in prepared(name).items() if not key.startswith("init_main")}

    spawn.get_preparation_data = without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = prepared
