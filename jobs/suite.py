"""A suite: launches that belong together, as a file.

# slurm/suites/nightly.toml
output = "runs/nightly"           # flags of harness.launch without their dashes, for every run …
profile = "mycluster"
dataset = "amc23"

[[run]]                           # … and for one
method = "vanilla"

[[run]]
method = "speccot"
drafts = 3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from harness.cli import options
from harness.cli.toml_file import read_toml
from harness.launch_options import BadLaunch, Launch
from jobs import launching, launching_several
from jobs.run.folder import RunFolder

DEFAULT_OUTPUT = "runs/nightly"
_NOT_IN_A_SUITE = {"tag", "dry-run", "config"}


class BadSuite(ValueError):
    """A suite that cannot be launched; the message is one line."""


@dataclass(frozen=True)
class Suite:
    """Launches that belong together."""

    name: str
    output: Path
    """Folder of their run folders and their warehouse."""
    launches: tuple[Launch, ...]


def read(path: Path) -> Suite:
    """Read a suite's file and validate each of its launches. Raises BadSuite."""
    try:
        content = read_toml(path)
    except ValueError as error:
        raise BadSuite(str(error)) from error
    runs = content.pop("run", [])
    if not (isinstance(runs, list) and runs and all(isinstance(run, dict) for run in runs)):
        raise BadSuite(f"{path}: no runs; add at least one [[run]] table of launch flags")
    for flags in (content, *runs):
        if misplaced := _NOT_IN_A_SUITE & {key.replace("_", "-") for key in flags}:
            raise BadSuite(f"{path}: not allowed in a suite: {', '.join(sorted(misplaced))}")
    if any("output" in run for run in runs):
        raise BadSuite(f"{path}: set output once at the top: all runs share a warehouse")
    output = content.setdefault("output", DEFAULT_OUTPUT)
    launches = []
    for number, run in enumerate(runs, 1):
        try:
            launches.append(options.launch_from(content | run))
        except BadLaunch as error:
            raise BadSuite(f"{path}: run {number}: {error}") from error
    return Suite(path.stem, Path(output), tuple(launches))


def launch(suite: Suite, tag: str | None, only: Sequence[int] | None = None) -> list[RunFolder]:
    """Launch every run of a suite, or some by number, under a tag; all are planned before the first is started.

    Runs that can share engines follow each other. Returns the run folders in the order of the suite.

    Raises what planning and starting a launch raise (see `jobs.launching`).
    """
    console = Console(highlight=False)
    launches = suite.launches if only is None else [suite.launches[number] for number in only]
    prepared = [launching.prepare(request.changed(tag=tag) if tag else request) for request in launches]
    return launching_several.start_several(prepared, console)
