"""How the tests of a corpus ask the commands, and how they compare what was found with what is stored."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner, Result

from jobs.run.folder import RunFolder

_TOLERANCE = 1e-9
_PLANS = ("spec.json", "problems.parquet", "shards.parquet")


def invoke(command: click.Command, *arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


def done(command: click.Command, *arguments: str | Path) -> str:
    """What a command printed that must have succeeded."""
    result = invoke(command, *arguments)
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


def check_refusal(run: RunFolder, words: str, command: click.Command, *arguments: str | Path) -> None:
    """Fails unless the command refuses a run in these words, with exit code 2, and leaves the run as it is."""
    before = written(run)
    result = invoke(command, *arguments)
    assert (result.exit_code, words in result.output) == (2, True), result.output
    assert written(run) == before


def written(run: RunFolder) -> dict[str, str]:
    """The plan, the journals and the trace files of a run, by their content."""
    journals, trace_files = sorted(run.journal_dir.glob("*")), sorted(run.trace_files_dir.glob("*"))
    files = [*(run.path / name for name in _PLANS), *journals, *trace_files]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def flat(value: Any, at: str = "") -> dict[str, Any]:
    """The leaves of a nested value by their place in it."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else None
    if inner is None:
        return {at: value}
    return {place: leaf for key, part in inner for place, leaf in flat(part, f"{at}/{key}").items()}


def assert_same(found: Any, stored: Any) -> None:
    """Fails with every place where the two differ; numbers may differ in their last digits."""
    ours, theirs = flat(found), flat(stored)
    places = [*theirs, *(place for place in ours if place not in theirs)]
    pairs = {place: (ours.get(place, "nothing"), theirs.get(place, "nothing")) for place in places}
    assert {place: pair for place, pair in pairs.items() if not _equal(*pair)} == {}, "found, stored"


def _equal(found: Any, stored: Any) -> bool:
    if isinstance(found, int | float) and isinstance(stored, int | float):
        return math.isclose(found, stored, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
    return bool(found == stored)
