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

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.toml_file import read_toml
from jobs.run.folder import RunFolder

DEFAULT_OUTPUT = "runs/nightly"
_OURS = {"tag", "dry-run", "config"}


class BadSuite(ValueError):
    """A suite that cannot be launched; the message is one line."""


@dataclass(frozen=True)
class Suite:
    """Launches that belong together."""

    name: str
    output: Path
    """Folder of their run folders and their warehouse."""
    launches: list[dict[str, Any]]
    """Flags of each, without their dashes."""


def read(path: Path) -> Suite:
    """Read a suite's file. Raises BadSuite."""
    try:
        content = read_toml(path, f"--suite {path}")
    except ValueError as error:
        raise BadSuite(str(error)) from error
    runs = content.pop("run", [])
    if not (isinstance(runs, list) and runs and all(isinstance(run, dict) for run in runs)):
        raise BadSuite(f"--suite {path}: no run in it; each is a table [[run]] of launch flags")
    for flags in (content, *runs):
        if ours := _OURS & {key.replace("_", "-") for key in flags}:
            raise BadSuite(f"--suite {path}: {', '.join(sorted(ours))} may not stand in a suite")
    if any("output" in run for run in runs):
        raise BadSuite(f"--suite {path}: output stands at the top, for all runs: they share a warehouse")
    output = content.setdefault("output", DEFAULT_OUTPUT)
    return Suite(path.stem, Path(output), [{**content, **run} for run in runs])


def launch(suite: Suite, tag: str | None, only: Sequence[int] | None = None) -> list[RunFolder]:
    """Launch every run of a suite, or some by number, under a tag; all are checked before the first is launched.

    Exits with code 2 and one line where a flag is wrong.
    """
    from harness import options
    from harness.launch import main

    chosen = [
        [*options.arguments(suite.launches[i]), *(["--tag", tag] if tag else [])]
        for i in (range(len(suite.launches)) if only is None else only)
    ]
    for given in chosen:
        with contextlib.redirect_stdout(io.StringIO()):
            main.main([*given, "--dry-run"])
    return [main.main(given) for given in chosen]
