"""One table has the exit codes of all commands."""

from __future__ import annotations

import re
from pathlib import Path

from harness.cli import exit_codes
from jobs import nightly
from tests.test_imports import FILES, ROOT
from warehouse.nightly.judge import EXIT_CODES

CONSTANTS = {name: value for name, value in vars(exit_codes).items() if name.isupper()}


def table() -> dict[int, list[str]]:
    """Return the other cells of each row of the guide's table by exit code."""
    text = (
        (ROOT / "jobs" / "README.md").read_text(encoding="utf-8").partition("### Exit codes")[2].partition("\n## ")[0]
    )
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {int(code): cells for first, *cells in rows[2:] for code in first.split(", ")}


def test_the_table_has_exactly_the_codes_that_there_are() -> None:
    assert sorted(table()) == sorted(CONSTANTS.values())
    assert all(any(cells) for cells in table().values())


def test_the_table_has_the_verdict_of_a_night_beside_its_code() -> None:
    verdicts = {cells[1]: code for code, cells in table().items() if cells[1] and cells[1] != "no verdict was possible"}
    assert verdicts == EXIT_CODES
    assert table()[nightly.NO_VERDICT][1] == "no verdict was possible"


def test_no_command_ends_with_a_number_that_the_table_lacks() -> None:
    found = {(name, int(code)) for name, path in FILES.items() for code in numbers(path)}
    assert found
    assert {(name, code) for name, code in found if code not in table()} == set()


def numbers(path: Path) -> list[str]:
    return re.findall(r"\b(?:_exit|exit)\((\d+)\)", path.read_text(encoding="utf-8"))
