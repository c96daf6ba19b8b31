"""How the commands end: errors in one line with an exit code, and with `--json` the outcome on one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, field

import click
import orjson
from pydantic import JsonValue

from grading import GraderFailed
from harness.cli import exit_codes, permissions
from harness.engine import EngineDied
from harness.problems import benchmarks
from harness.weights import models
from jobs import after
from jobs.finished import grading
from jobs.run.files import FULL, FileDamaged, LocksRefused
from jobs.run.folder import RunFolder, RunForbidden
from jobs.slurm.client import SlurmError, SlurmRejected

_WRONG_INPUTS = (benchmarks.DatasetNotFound, models.ModelUnavailable, after.WarehouseError, RunForbidden, LocksRefused)
_PACKAGES = ("harness.", "jobs.", "grading.", "warehouse.")


class LaunchFailed(RuntimeError):
    """Workers failed, or the result could not be loaded. What is finished is safe, and the same launch resumes.

    The message says what failed and what to do.
    """

    def __init__(self, message: str, worker_traceback: str = "") -> None:
        super().__init__(message)
        self.worker_traceback = worker_traceback
        """That of the first worker that failed, of its first exception; empty where it left none."""


@dataclass
class Outcome:
    """The outcome of a command, as far as it is known."""

    found: dict[str, JsonValue] = field(default_factory=dict)
    """What is known, under the keys of `--json`; an `error` in it counts where the command has none."""
    runs: Sequence[RunFolder] = ()
    """The run folders, which need not exist; empty before they are planned."""
    is_one_run: bool = False
    """Whether the outcome is that of its run alone: where it is, how far, and what its `results.json` holds."""
    notices: Sequence[str] = ()
    """Warnings of this launch, beside those of the run's result."""
    exit_code: int = 0
    """The exit code if no error follows."""

    def record(self) -> dict[str, JsonValue]:
        """Return what is known."""
        of_runs = [_of_run(run) for run in self.runs]
        if not self.is_one_run:
            return {**self.found, "runs": [*of_runs]}
        known = {**self.found, **(of_runs[0] if of_runs else {})}
        before = known.get("warnings")
        warnings = [*(before if isinstance(before, list) else []), *self.notices]
        return {**known, "warnings": warnings} if self.notices else known


def _of_run(run: RunFolder) -> dict[str, JsonValue]:
    path = run.path
    outcome = {"run": str(path), "run_id": path.name, "database": str(after.database_of(run))}
    if not run.exists():
        return {**outcome, "state": "not begun"}
    from jobs.watch.status import listed

    [listing] = [asdict(found) for found in listed([run])]
    is_concluded = listing["state"] == "finished" and grading.is_concluded(run)
    results = orjson.loads(run.results_path.read_bytes()) if is_concluded else {}
    return {**results, **outcome, **listing}


@contextmanager
def printed(known: Outcome, *, as_json: bool) -> Iterator[Outcome]:
    """Turn errors into one line, as below; with `as_json` print the outcome, whether there is one or not.

    It is the last line of standard output. Whatever else is printed meanwhile goes to standard error.
    """
    try:
        with redirect_stdout(sys.stderr) if as_json else nullcontext(), launch_errors_in_one_line():
            yield known
    except click.ClickException as error:
        if as_json:
            _print(known, error.exit_code, " ".join(error.format_message().split()))
        raise
    except OSError as error:
        if as_json and permissions.is_forbidden(error):
            _print(known, exit_codes.WRONG_INPUT, permissions.explained(error))
        raise
    if as_json:
        _print(known, known.exit_code)


def _print(known: Outcome, exit_code: int, error: str | None = None) -> None:
    found = known.record()
    found |= {"exit_code": exit_code, "error": error or found.get("error")}
    click.echo(json.dumps(found, allow_nan=False))


@contextmanager
def launch_errors_in_one_line() -> Iterator[None]:
    """Turn errors into one line each; an interrupt goes on, with a line on how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("Interrupted. What is finished is kept, and the same command resumes.", err=True)
        raise
    except Exception as error:
        if (line := explained(error)) is None:
            raise
        raise line from error


def explained(error: Exception) -> click.ClickException | None:
    """Return an error as one line with its exit code; None where it is one of ours already, or nobody foresaw it.

    The exit code is 2 where the input was wrong, the warehouse cannot be used, a file may not be read or sbatch
    rejected the job; it is 1 where Slurm, workers or the grader failed, or a file is damaged or cannot be written.
    """
    if isinstance(error, SlurmRejected):
        return click.UsageError(f"Slurm rejected the run: {error}")
    if isinstance(error, SlurmError):
        return click.ClickException(f"Slurm failed, and nothing more was done: {error}")
    if isinstance(error, _WRONG_INPUTS):
        return click.UsageError(str(error))
    if isinstance(error, (FileDamaged, EngineDied, GraderFailed, LaunchFailed)):
        return click.ClickException(str(error))
    if isinstance(error, ValueError):  # one of a library is no wrong input, and its traceback says where it was raised
        is_ours = type(error) is ValueError or type(error).__module__.startswith(_PACKAGES)
        return click.UsageError(str(error)) if is_ours else None
    if not isinstance(error, OSError) or permissions.is_forbidden(error):
        return None  # the command itself explains what is forbidden
    if error.errno is None:
        return click.ClickException(str(error))  # of a library that found no files of the model
    is_full = error.errno in FULL
    if not (error.filename or is_full) or not error.strerror:
        return None
    remedy = " (is the disk full, or a quota?)" if is_full else ""
    name = f"{error.filename}: " if error.filename else ""  # a failed write of a library names none
    return click.ClickException(f"{name}{error.strerror}{remedy}. Nothing finished is lost")
