"""`python -m jobs`: the commands for a run folder after its launch, for suites and for nights."""

from __future__ import annotations

import click

from jobs.arguments import RunCommands
from jobs.cli import launches, results, watch, workers


@click.group(cls=RunCommands)
def main() -> None:
    """Watch, resume, cancel and finish runs; launch suites and nights."""


for _command in (
    workers.worker,
    watch.status,
    watch.list_runs,
    watch.logs,
    workers.cancel,
    workers.resume,
    workers.retry_failed,
    launches.nightly,
    launches.launch_suite,
    results.lossless,
    results.score,
    launches.probe,
    results.target_logprob,
    results.finalize,
    launches.example,
):
    main.add_command(_command)

if __name__ == "__main__":
    main(prog_name="python -m jobs")
