"""The files that an installation brings with it: a suite to try, and examples of what users write."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import click

from jobs.arguments import RunCommand

_FOLDER = resources.files("jobs") / "examples"
EXAMPLES = {
    "profile": _FOLDER / "clusters" / "example.toml",
    "suite": _FOLDER / "suites" / "nightly.toml",
    "scrontab": _FOLDER / "nightly.scrontab",
    "notebook": resources.files("harness") / "examples" / "compare_methods.ipynb",
}
"""The files by the name that `jobs example` takes. In a checkout, those of Slurm are links into the folder slurm."""
_BUNDLED = Path(str(resources.files("harness"))) / "data"
SUITES = {
    "demo": _BUNDLED / "demo.toml",
    "demo-methods": _BUNDLED / "demo_methods.toml",
    "specreason-probe": _BUNDLED / "specreason_probe.toml",
}
"""Suites that can be launched by name: real files, which a job's archive of the code has not."""


@click.command(cls=RunCommand, short_help="Print an example of a file.")
@click.argument("kind", type=click.Choice(list(EXAMPLES)))
def example(kind: str) -> None:
    """Print an example of a cluster's profile, of a suite, of a scrontab for nights, or of a notebook, to be edited.

    For instance: python -m jobs example profile > mycluster.toml
    """
    click.echo(EXAMPLES[kind].read_text(encoding="utf-8"), nl=False)


def suite_file(file: Path) -> Path:
    """Return the file of a suite: the one named, else the bundled one of this name. Raises click.UsageError."""
    if file.exists() or file.suffix:
        return file
    if str(file) not in SUITES:
        raise click.UsageError(f"{file}: no such file; the bundled suites are: {', '.join(SUITES)}")
    return SUITES[str(file)]
