"""The generated parts of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from harness.cli import exit_codes
from tools import reference
from warehouse.report.summary import RunSummary

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))


def _cells(table: str) -> list[str]:
    """The first cell of each row."""
    first = [line.split("|")[1].strip().replace("\\", "") for line in table.splitlines() if line.startswith("|")]
    return [cell for cell in first[2:] if not cell.startswith(":")]


def test_each_part_stands_on_a_page_and_is_whole() -> None:
    marks = re.findall(
        r"^<!-- generated: (.*) -->$", "\n".join(page.read_text("utf-8") for page in PAGES), re.MULTILINE
    )
    assert sorted(marks) == sorted(reference.GENERATED)
    assert _cells(reference.results()) == list(RunSummary.model_fields)
    assert _cells(reference.codes()) == sorted(
        (str(value) for name, value in vars(exit_codes).items() if name.isupper()), key=int
    )
    assert "pass_at_1" in _cells(reference.columns())
    assert "--token-budget" in reference.commands()
    assert not re.search(r"\| *\|$", reference.results() + reference.codes(), re.MULTILINE), "a meaning is missing"
