"""`python -m jobs`: commands for launched runs, suites and nightly runs."""

from __future__ import annotations

import click

from jobs.cli import launches, runs, workers
from jobs.cli.run_command import RunCommands


@click.group(cls=RunCommands)
def main() -> None:
    """Watch, resume, cancel and finish runs; launch suites and nightly runs."""


for _command in (
    workers.worker,
    runs.status,
    runs.list_runs,
    runs.logs,
    runs.show,
    workers.cancel,
    workers.resume,
    workers.retry_failed,
    launches.nightly,
    launches.launch_suite,
    runs.lossless,
    runs.score,
    launches.probe,
    launches.sweep_budget,
    runs.target_logprob,
    runs.finalize,
    launches.example,
):
    main.add_command(_command)

if __name__ == "__main__":
    main(prog_name="python -m jobs")
