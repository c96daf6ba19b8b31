"""Errors of Slurm become one line and an exit code."""

from __future__ import annotations

import click
import pytest

from jobs.outcome import launch_errors_in_one_line
from jobs.slurm.client import SlurmError, SlurmRejected


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        (SlurmRejected("invalid partition"), 2, "Slurm rejected the run: invalid partition"),
        (SlurmError("squeue: no answer in 30 s"), 1, "Slurm failed, and nothing more was done: squeue: no"),
    ],
)
def test_a_rejection_is_a_usage_error_and_silence_is_not(error: SlurmError, exit_code: int, message: str) -> None:
    with pytest.raises(click.ClickException) as reported, launch_errors_in_one_line():
        raise error
    assert reported.value.exit_code == exit_code
    assert reported.value.format_message().startswith(message)
