"""Command results: one-line errors with exit codes, and the JSON document of `--json`."""

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
    """Workers failed or the result could not be loaded; the message includes the remedy. The same command resumes the
    run."""

    def __init__(self, message: str, worker_traceback: str = "") -> None:
        super().__init__(message)
        self.worker_traceback = worker_traceback
        """Traceback of the first failed worker's first exception; empty if it left none."""


@dataclass
class Outcome:
    """The outcome of a command, as far as it is known."""

    found: dict[str, JsonValue] = field(default_factory=dict)
    """Keys that the command adds to the `--json` output; an error raised by the command replaces the key `error`."""
    runs: Sequence[RunFolder] = ()
    """The run folders, which need not exist; empty before planning."""
    is_one_run: bool = False
    """Whether the output describes a single run: location, progress and `results.json`."""
    notices: Sequence[str] = ()
    """Warnings of this launch, in addition to those in the run's result."""
    exit_code: int = 0
    """The exit code if no error follows."""

    def record(self) -> dict[str, JsonValue]:
        """Return the JSON document."""
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
    """Convert errors to one line (see `explained`); with `as_json`, print the outcome, even after an error.

    The JSON is the last line of standard output; all other output goes to standard error.
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
    """Convert errors to one line each; an interrupt is re-raised after a line on how to resume."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("Interrupted. Finished samples are kept; run the same command again to resume.", err=True)
        raise
    except Exception as error:
        if (line := explained(error)) is None:
            raise
        raise line from error


def explained(error: Exception) -> click.ClickException | None:
    """Convert an error to one line with its exit code; None if unexpected, or explained by the command itself.

    Exit code 2: wrong input, unusable database, run that this user cannot read, or job rejected by sbatch. Exit code
    1: Slurm, workers or the grader failed, or a file is damaged or cannot be written.
    """
    if isinstance(error, SlurmRejected):
        return click.UsageError(f"Slurm rejected the run: {error}")
    if isinstance(error, SlurmError):
        return click.ClickException(f"Slurm failed: {error}. Nothing more was done")
    if isinstance(error, _WRONG_INPUTS):
        return click.UsageError(str(error))
    if isinstance(error, (FileDamaged, EngineDied, GraderFailed, LaunchFailed)):
        return click.ClickException(str(error))
    if isinstance(error, ValueError):  # library errors are not input errors; their traceback shows the origin
        is_ours = type(error) is ValueError or type(error).__module__.startswith(_PACKAGES)
        return click.UsageError(str(error)) if is_ours else None
    if not isinstance(error, OSError) or permissions.is_forbidden(error):
        return None  # the command explains permission errors
    if error.errno is None:
        return click.ClickException(str(error))  # raised by a library that found no model files
    is_full = error.errno in FULL
    if not (error.filename or is_full) or not error.strerror:
        return None
    remedy = " (is the disk or a quota full?)" if is_full else ""
    name = f"{error.filename}: " if error.filename else ""  # failed library writes have no file name
    return click.ClickException(f"{name}{error.strerror}{remedy}. Finished samples are kept")
