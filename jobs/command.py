"""How the commands report errors: one line and an exit code instead of a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from grading import GraderFailed
from harness.engine import EngineDied
from harness.problems import benchmarks
from harness.weights import models
from jobs import after
from jobs.arguments import file_errors_in_one_line
from jobs.drive import LaunchFailed
from jobs.finished.tracking import NotTracked
from jobs.slurm.client import SlurmError, SlurmRejected


@contextmanager
def slurm_errors_in_one_line(submitted: str) -> Iterator[None]:
    """Turn an error from Slurm into one line that names what was `submitted`, such as "the run".

    The exit code is 2 where sbatch rejected the job as it was asked for, 1 where Slurm failed or did not answer.
    """
    try:
        yield
    except SlurmRejected as rejection:
        raise click.UsageError(f"Slurm rejected {submitted}: {rejection}") from rejection
    except SlurmError as error:
        raise click.ClickException(f"{submitted} was not submitted, because Slurm failed: {error}") from error


@contextmanager
def launch_errors_in_one_line(submitted: str = "the run") -> Iterator[None]:
    """Turn the errors of planning and starting a launch into one line each.

    The exit code is 2 where the input was wrong, the warehouse cannot be used or sbatch rejected the job; it is 1 where
    Slurm, workers or the grader failed, or a file cannot be written. An interrupt goes on, with a line on how to
    resume.
    """
    try:
        with file_errors_in_one_line(), slurm_errors_in_one_line(submitted):
            yield
    except KeyboardInterrupt:
        click.echo("Interrupted. What is finished is kept, and the same command resumes.", err=True)
        raise
    except (EngineDied, GraderFailed, LaunchFailed, NotTracked) as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise click.ClickException(str(error)) from error  # of a library that found no files of the model
    except after.WarehouseFailed as error:  # as the warehouse's own commands do
        raise click.UsageError(str(error)) from error
    except (benchmarks.DatasetNotFound, benchmarks.BadDataset, models.ModelUnavailable, ValueError) as error:
        raise click.UsageError(str(error)) from error
