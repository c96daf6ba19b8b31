"""How the commands end: errors in one line with an exit code, and with `--json` the outcome on one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Protocol, TypeVar

import click
import orjson
from pydantic import JsonValue

from grading import GraderFailed
from harness.cli import exit_codes, permissions
from harness.engine import EngineDied
from harness.problems import benchmarks
from harness.weights import models
from jobs import after
from jobs.arguments import file_errors_in_one_line
from jobs.drive import LaunchFailed
from jobs.run.folder import RunFolder
from jobs.slurm.client import SlurmError, SlurmRejected


class Outcome(Protocol):
    """The outcome of a command, as far as it is known."""

    exit_code: int
    """The exit code if no error follows."""

    def record(self) -> dict[str, JsonValue]:
        """Return what is known, under the keys of `--json`; an `error` in it counts where the command has none."""


@dataclass
class LaunchOutcome:
    """The outcome of a launch."""

    run: RunFolder | None = None
    """The run folder, which need not exist; None before the launch is planned."""
    notices: Sequence[str] = ()
    """Warnings of this launch, beside those of the run's result."""
    exit_code: int = 0

    def record(self) -> dict[str, JsonValue]:
        """Return where the run is, how far it is, and once it is finished what `results.json` holds."""
        found = {} if self.run is None else _of_run(self.run)
        before = found.get("warnings")
        all_warnings = [*(before if isinstance(before, list) else []), *self.notices]
        return {**found, "warnings": all_warnings} if self.notices else found


@dataclass
class SuiteOutcome:
    """The outcome of the runs of a suite."""

    suite: str
    """Name of the suite."""
    runs: Sequence[RunFolder] = ()
    """The run folders in the order of the file; empty before they are planned."""
    report: Path | None = None
    """The report on all runs, once it is written."""
    exit_code: int = 0

    def record(self) -> dict[str, JsonValue]:
        """Return the report, and of each run what a launch prints of it."""
        report = None if self.report is None else str(self.report)
        return {"suite": self.suite, "report": report, "runs": [_of_run(run) for run in self.runs]}


@dataclass
class NightOutcome:
    """The outcome of a night: its runs, and the verdict where there is one already."""

    night: date
    runs: Sequence[RunFolder] = ()
    verdict_job: str | None = None
    """The Slurm job that gives the verdict."""
    page: Path | None = None
    """The page of the verdict."""
    verdict: dict[str, JsonValue] | None = None
    """What `warehouse.nightly --json` prints; None where there is no verdict."""
    exit_code: int = 0

    def record(self) -> dict[str, JsonValue]:
        """Return the verdict under the keys of `warehouse.nightly --json`, and of each run what a launch prints."""
        found = {"verdict": None, "cells": [], **(self.verdict or {}), "night": self.night.isoformat()}
        page = None if self.page is None else str(self.page)
        return {**found, "verdict_job": self.verdict_job, "page": page, "runs": [_of_run(run) for run in self.runs]}


def _of_run(run: RunFolder) -> dict[str, JsonValue]:
    path = run.path
    outcome = {"run": str(path), "run_id": path.name, "database": str(after.database_of(run))}
    if not run.exists():
        return {**outcome, "state": "not begun"}
    from jobs.watch.status import listed

    [listing] = [asdict(found) for found in listed([run])]
    is_concluded = listing["state"] == "finished" and run.results_path.exists()
    results = orjson.loads(run.results_path.read_bytes()) if is_concluded else {}
    return {**results, **outcome, **listing}


_Known = TypeVar("_Known", bound=Outcome)


@contextmanager
def printed(known: _Known, *, as_json: bool) -> Iterator[_Known]:
    """Print the outcome of a command as the last line of standard output, whether it succeeds or not.

    Whatever else is printed meanwhile goes to standard error. Errors go on as they are. If not `as_json`, nothing
    changes and nothing is printed.
    """
    if not as_json:
        yield known
        return
    try:
        with redirect_stdout(sys.stderr):
            yield known
    except click.ClickException as error:
        _print(known, error.exit_code, " ".join(error.format_message().split()))
        raise
    except OSError as error:
        if permissions.is_forbidden(error):
            _print(known, exit_codes.WRONG_INPUT, permissions.explained(error))
        raise
    _print(known, known.exit_code)


def _print(known: Outcome, exit_code: int, error: str | None = None) -> None:
    found = known.record()
    found |= {"exit_code": exit_code, "error": error or found.get("error")}
    click.echo(json.dumps(found, allow_nan=False))


@contextmanager
def launch_errors_in_one_line(submitted: str = "the run") -> Iterator[None]:
    """Turn the errors of planning and starting a launch into one line each, which names what was `submitted`.

    The exit code is 2 where the input was wrong, the warehouse cannot be used or sbatch rejected the job; it is 1 where
    Slurm, workers or the grader failed, or a file cannot be written. An interrupt goes on, with a line on how to
    resume.
    """
    try:
        with file_errors_in_one_line():
            yield
    except SlurmRejected as rejection:
        raise click.UsageError(f"Slurm rejected {submitted}: {rejection}") from rejection
    except SlurmError as error:
        raise click.ClickException(f"{submitted} was not submitted, because Slurm failed: {error}") from error
    except KeyboardInterrupt:
        click.echo("Interrupted. What is finished is kept, and the same command resumes.", err=True)
        raise
    except (EngineDied, GraderFailed, LaunchFailed) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise click.ClickException(str(error)) from error  # of a library that found no files of the model
    except after.WarehouseFailed as error:  # as the warehouse's own commands do
        raise click.UsageError(str(error)) from error
    except (benchmarks.DatasetNotFound, benchmarks.BadDataset, models.ModelUnavailable, ValueError) as error:
        raise click.UsageError(str(error)) from error
