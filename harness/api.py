"""Python and notebook interface: `harness.run(…)`, `harness.load(…)`, `harness.results(…)`.

Uses the same code as the commands. Errors that a command prints as one line are raised as HarnessError. Workers are
separate processes that never import the calling script, so scripts need no `__main__` guard.
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
    """Invalid input or a failure; the message is the one-line error of the command."""


class RunFailed(HarnessError):
    """Workers failed; the message is the command's error, followed by the first traceback of a worker.

    Finished samples are kept; the same call resumes the run.
    """

    def __init__(self, message: str, worker_traceback: str) -> None:
        super().__init__(message, worker_traceback)  # both, because pickle calls the class with them
        self.worker_traceback = worker_traceback
        """Empty if there is none, for example because the worker was killed."""

    def __str__(self) -> str:
        """Return the message, followed by the traceback."""
        return "\n\nIn the worker:\n\n".join(filter(None, self.args))


@dataclass(frozen=True)
class Run:
    """A run, with its status and results."""

    folder: Path
    """The run folder."""
    database: Path
    """The warehouse into which the finished run is loaded."""

    @property
    def run_id(self) -> str:
        """The run's id: the name of its folder, and its key in the warehouse."""
        return self.folder.name

    @property
    def num_unfinished(self) -> int:
        """Number of unfinished samples of a run on Slurm. 0: the run is graded and loaded, or will be soon."""
        with _errors_in_one_line():
            return after.num_unfinished(self.folder)

    @property
    def summary(self) -> RunSummary:
        """The metrics printed by the launch. Raises HarnessError if the run is not in the warehouse."""
        with _errors_in_one_line():
            return after.summary_of(self.database, self.folder)

    def results(self, level: str = "run") -> pandas.DataFrame:
        """Return this run's results as a data frame; see `harness.results`."""
        return results(self, level=level)


def run(*, quiet: bool = False, wait: bool = False, dry_run: bool = False, **flags: Any) -> Run:
    """Run one method on one benchmark, grade the answers and load the results. The same call resumes a run.

    A local run blocks until it is finished. On Slurm, the call returns after submitting the jobs.

    flags: flags of `python -m harness.launch`, with underscores and without leading dashes, including `preset`,
    `config` and hyper-parameters. Use lists for repeatable flags and dicts for KEY=VALUE. `draft`, `target` and
    `reward` are model names, or dicts such as `{"model": "qwq-32b", "temperature": 0.7}`. `method` can also be a
    subclass of Method that is defined in a file.
    quiet: print nothing; a changed code version is reported as a Python warning.
    wait: on Slurm, wait until the run is finished.
    dry_run: print the plan and write nothing.
    Raises HarnessError for errors that the command would print, and RunFailed with a traceback if a worker failed.
    """
    given = {
        name: os.fspath(value) if isinstance(value, os.PathLike) else value
        for name, value in flags.items()
        if value is not None
    }
    if "method" in given:
        given["method"] = _reference_of(given["method"])
    is_notebook = Console().is_jupyter  # kernels request colors and do not erase redrawn lines
    console = terminal(quiet=quiet, force_jupyter=False, force_terminal=False if is_notebook else None)
    with _errors_in_one_line(), _children_without_the_script():
        launch = launch_from(given)
        prepared = drive.launch(outcome.Outcome(), launch, flattened(given), console, is_dry=dry_run, waits=wait)
        if quiet and prepared.code_notice:
            warnings.warn(prepared.code_notice, stacklevel=2)
        return Run(prepared.run.path.absolute(), after.database_of(prepared.run).absolute())


def load(run: str | os.PathLike[str] | Run, database: str | os.PathLike[str] | None = None) -> Run:
    """Load a run folder, which may belong to another user, into a warehouse and return the run.

    run: a run folder, run id or unique prefix of an id. database: the warehouse; None: next to the run folder. Raises
    HarnessError.
    """
    with _errors_in_one_line():
        loaded = after.load(_text(run), None if database is None else Path(database))
        return Run(*(path.absolute() for path in loaded))


def results(
    *runs: str | os.PathLike[str] | Run, level: str = "run", database: str | os.PathLike[str] | None = None
) -> pandas.DataFrame:
    """Return results as a data frame, with one row per run, problem, sample, step, candidate or call (`level`).

    runs: results of `run` or `load`, run folders, run ids or unique prefixes; default: all runs of the database.
    database: the warehouse; None: the first one found next to the first run, in the folder `runs` or in the current
    folder.
    Rates and shares are between 0 and 1, times in seconds. `python -m warehouse.query --describe VIEW` describes the
    columns. Raises HarnessError.
    """
    if database is None and runs and isinstance(runs[0], Run):
        database = runs[0].database
    with _errors_in_one_line():
        return after.data_frame(None if database is None else Path(database), [_text(one) for one in runs], level)


def _text(run: str | os.PathLike[str] | Run) -> str:
    return str(run.folder) if isinstance(run, Run) else os.fspath(run)


def _reference_of(method: str | type) -> str:
    """Return the value of --method for a name or class. Raises HarnessError if workers cannot import the class."""
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
            f"method {name}: the class is defined in a notebook cell, the main script or a function, so worker "
            "processes cannot import it. Move it to the top level of a separate file, such as my_method.py, and pass "
            f'method="my_method.py:{name.rpartition(".")[2]}" or the imported class'
        )
    return f"{module}:{name}" if "." in module or hasattr(sys.modules[module], "__path__") else f"{file}:{name}"


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Convert a command's one-line errors to HarnessError."""
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
    """Prevent child processes of multiprocessing from importing the caller's script within this context.

    Graders and vLLM do not need the script. Without a `__main__` guard, it would run again in each child process.
    """
    prepared = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        return {key: value for key, value in prepared(name).items() if not key.startswith("init_main")}

    spawn.get_preparation_data = without_main
    try:
        yield
    finally:
        spawn.get_preparation_data = prepared
