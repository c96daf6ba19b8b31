"""The documentation names the kinds of files and of events that a run folder has."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from jobs.run import derived
from tests.jobs.run.corpus import corpus

PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text("utf-8")
BESIDE = ("logs", "locks")
"""Folders of a run that are no kind of its files."""


def first_cells(heading: str) -> list[str]:
    """The code in the first column of the table of the page that has this heading, row by row."""
    rows = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_the_page_names_every_kind_of_file_and_of_event(tmp_path: Path) -> None:
    run = corpus(tmp_path).run
    patterns = [re.sub("[A-Z]{4,}", "*", name) for name in first_cells("file")]
    files = [path.relative_to(run.path) for path in run.path.rglob("*") if path.is_file()]
    names = [path.as_posix() for path in files if path.parts[0] not in BESIDE]
    assert not [name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    assert set(first_cells("kind of a derived file")) == set(derived.SCHEMAS)
    lines = len(run.events_path.read_bytes().splitlines())
    assert lines == sum(len(run.events(kind)) for kind in first_cells("kind of event")), "no other kind of event"
