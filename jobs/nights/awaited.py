"""Waiting for the verdict on a night, and the file that continuous integration reads of it."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from harness.cli import exit_codes
from jobs.after import warehouse
from jobs.nights.record import NightRecord
from jobs.run.files import write_atomically
from jobs.slurm import client
from jobs.suite import Suite

if TYPE_CHECKING:
    from warehouse.nightly.judge import NightVerdict

_LOOK_SECONDS = 30.0
"""Time between two looks, each of which asks Slurm's queue once, for the verdict jobs alone."""
_LOOKS_WITHOUT_JOB = 3
"""Looks in a row without a verdict job after which there will be no verdict: one hands on to another in between."""
_NO_VERDICT = exit_codes.WRONG_INPUT


def wait(suite: Suite, night: date) -> int:
    """Wait until a night has its verdict; returns the exit code of it, 2 where its jobs ended without one.

    Interrupted, the jobs go on.
    """
    folder = suite.output.resolve() / "nights"
    record = NightRecord(folder / f"{night}.jsonl")
    names = [f"{suite.name}.{night}{ending}.verdict" for ending in ("", ".confirm")]
    idle_looks = 0
    while True:
        if concluded := record.last("concluded"):
            click.echo(f"{concluded['verdict']}: {folder / f'{night}.md'}")
            return int(concluded["exit_code"])
        idle_looks = idle_looks + 1 if _has_no_job(names, record) else 0
        if idle_looks >= _LOOKS_WITHOUT_JOB:
            click.echo(f"no verdict on the night of {night}: its verdict jobs ended without one; logs: {folder}/logs")
            return _NO_VERDICT
        sleep(_LOOK_SECONDS)


def _has_no_job(names: list[str], record: NightRecord) -> bool:
    """Return whether Slurm says that no verdict job of this night is running or queued.

    A job of the same name may be a colleague's, of a suite in another folder.
    """
    try:
        active = [task.job_id for task in client.queue(names) if task.is_active]
        return record.verdict_job(active) is None
    except client.SlurmError:
        return False


def write_junit(suite: Suite, night: date, file: Path, exit_code: int) -> None:
    """Write the verdict on a night as JUnit XML; where none was possible, the one case in it is an error.

    exit_code: that of the verdict. Raises OSError.
    """
    try:
        text = warehouse.junit_of(_verdict(suite, night, exit_code))
    except warehouse.WarehouseFailed as error:
        text = warehouse.junit_of_no_verdict(night, str(error), _NO_VERDICT)
    write_atomically(file, text.encode())


def record(suite: Suite, night: date, exit_code: int) -> dict[str, Any]:
    """Return the verdict on a night under the keys of `warehouse.nightly --json`; an `error` where none was possible.

    exit_code: that of the verdict.
    """
    try:
        return warehouse.record_of(_verdict(suite, night, exit_code))
    except warehouse.WarehouseFailed as error:
        return {"error": str(error)}


def _verdict(suite: Suite, night: date, exit_code: int) -> NightVerdict:
    """Judge a night again that was judged. Raises WarehouseFailed where no verdict was possible."""
    if exit_code == _NO_VERDICT:
        raise warehouse.WarehouseFailed(f"no verdict was possible; logs: {suite.output.resolve() / 'nights/logs'}")
    return warehouse.judged(suite.output / "warehouse.duckdb", night, suite.nightly.since)
