"""The generated parts of the documentation."""

from __future__ import annotations

import re
from pathlib import Path

from harness.cli import exit_codes
from tools import reference
from warehouse.report.summary import RunSummary

PAGES = sorted((Path(__file__).parents[2] / "docs").glob("*.md"))


def test_each_part_stands_on_a_page_and_is_whole() -> None:
    marks = re.findall(
        r"^<!-- generated: (.*) -->$", "\n".join(page.read_text("utf-8") for page in PAGES), re.MULTILINE
    )
    assert sorted(marks) == sorted(reference.GENERATED)
    assert all(f"| `{name}` |" in reference.results() for name in RunSummary.model_fields)
    assert reference.codes().count("\n") == 2 + sum(name.isupper() for name in vars(exit_codes))
    assert "| `pass_at_1` | double |" in reference.columns()
    assert "--token-budget" in reference.commands()
    assert not re.search(r"\| *\|$", reference.results() + reference.codes(), re.MULTILINE), "a meaning is missing"
