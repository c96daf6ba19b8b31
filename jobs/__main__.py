"""`python -m jobs`: commands for launched runs, suites and nightly runs."""

from __future__ import annotations

from jobs.cli import launches, runs, workers  # noqa: F401 each module adds its commands to the group
from jobs.cli.run_command import main

__all__ = ["main"]

if __name__ == "__main__":
    main(prog_name="python -m jobs")
