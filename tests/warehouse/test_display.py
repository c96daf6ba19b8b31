"""Tables on terminals of several widths: every word stays whole, however narrow the terminal is."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from rich import box
from rich.table import Table

from warehouse.display import print_table

_ROWS = [("specreason-664d9e78", "65.00", "51.7 to 77.9"), ("vanilla-baf00f23", "75.00", "62.1 to 87.2")]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return Terminal()


def _plain(out: io.StringIO) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def _printed(out: io.StringIO, *columns: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    table = Table(*columns, box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*row)
    print_table(table, out)
    return [line.rstrip() for line in _plain(out).splitlines()]


@pytest.mark.parametrize("columns", ["80", "48"])
def test_a_table_that_fits_has_one_line_per_row(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = _printed(terminal, "run", "%", "95 %", rows=_ROWS)
    assert [line.split()[0] for line in lines if "to" in line] == ["specreason-664d9e78", "vanilla-baf00f23"]


def test_a_table_that_does_not_fit_is_one_block_per_row(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "36")
    assert _printed(terminal, "run", "%", "95 %", rows=_ROWS) == [
        "",
        "run   specreason-664d9e78",
        "%     65.00",
        "95 %  51.7 to 77.9",
        "",
        "run   vanilla-baf00f23",
        "%     75.00",
        "95 %  62.1 to 87.2",
        "",
    ]


def test_a_wide_table_without_rows_says_so(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    assert _printed(terminal, "a" * 20, "b" * 20, rows=[]) == ["(no rows)"]


def test_a_pipe_gets_one_line_per_row_of_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = _printed(io.StringIO(), "run", "%", "95 %", rows=_ROWS)
    assert [len(line.split("  ")) > 1 for line in lines] == [True, True, True]
