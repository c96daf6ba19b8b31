"""Rows of a query on terminals of several widths: what does not fit is said once or named, and numbers are rounded."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from tests.warehouse.test_display import Terminal
from warehouse.answer import print_rows, rounded

NAMES = ("run_id", "method", "dataset", "n", "pass_at_1", "rerun_standard_error", "grader_version")
GRADER = "2 math-verify=0.9.0 latex2sympy2-extended=1.11.0 sympy=1.14.0"
ROWS = [
    ("demo-specreason-79bb4286", "specreason", "demo", 40, 2 / 3, 0.051, GRADER),
    ("demo-vanilla-4f6a19cc", "vanilla", "demo", 40, 0.75, 0.25, GRADER),
    ("demo-scot-332796e0", "scot", "demo", 40, 1.0, 0.0, GRADER),
]


def shown(
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    rows: Sequence[Sequence[object]] = ROWS,
    names: Sequence[str] = NAMES,
    *,
    is_wide: bool = False,
) -> list[str]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    print_rows(names, rows, out, is_wide=is_wide)
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_many_columns_are_one_line_per_row_and_no_line_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    lines = shown(monkeypatch, width)
    assert max(map(len, lines)) <= width
    assert [sum(line.startswith(str(row[0])) for line in lines) for row in ROWS] == [1, 1, 1]
    assert len(lines) <= 15


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([2 / 3, 0.75, 1.0], ["0.667", "0.750", "1.000"]),
        ([0.5, 1.0, None], ["0.5", "1.0", "NULL"]),
        ([1.0, 0.0], ["1", "0"]),
        ([12.34567, 0.5], ["12.35", "0.50"]),
        ([123456.789], ["123457"]),
        ([0.5, 0.00000123], ["0.5000", "1.2e-06"]),
        ([0.00012345], ["0.0001234"]),
        ([float("nan"), float("-inf"), 0.25], ["nan", "-inf", "0.25"]),
        ([1e300, -2.5], ["1e+300", "-2.5"]),
        ([3, True, "x"], ["3", "True", "x"]),
        ([], []),
    ],
)
def test_a_column_has_the_decimals_that_four_digits_of_its_largest_need(
    values: list[object], expected: list[str]
) -> None:
    assert rounded(values) == expected


def test_wide_characters_count_as_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80, [("数学", 1), ("ab", 2)], ("text", "n"))
    assert lines[2:] == ["数学  1", "ab    2"]
