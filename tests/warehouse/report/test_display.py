"""Tables on terminals of several widths: every word stays whole, however narrow the terminal is."""

from __future__ import annotations

import io
import re

import pytest

from harness.cli.number_format import NOTHING, fixed, number, p_value, percent, signed, span
from harness.cli.screen import Cell, Column, Table
from warehouse.query import print_rows, rounded
from warehouse.report.facts import scaled
from warehouse.report.tables import latex_text, markdown, markdown_text, write_csv
from warehouse.statistics.intervals import Interval


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


NAMES = ("run_id", "method", "dataset", "n", "pass_at_1", "rerun_standard_error", "grader_version")
GRADER = "2 math-verify=0.9.0 latex2sympy2-extended=1.11.0 sympy=1.14.0"
ROWS = [
    ("demo-specreason-79bb4286", "specreason", "demo", 40, 2 / 3, 0.051, GRADER),
    ("demo-vanilla-4f6a19cc", "vanilla", "demo", 40, 0.75, 0.25, GRADER),
    ("demo-scot-332796e0", "scot", "demo", 40, 1.0, 0.0, GRADER),
]


@pytest.mark.parametrize(
    ("width", "names", "rows", "most_lines"),
    [
        *((width, NAMES, ROWS, 15) for width in (60, 80, 120)),
        (36, ("run", "%", "95 %"), [("specreason-664d9e78", "65.00", "51.7 to 77.9"), ("vanilla", "75.00", "–")], 9),
        (80, ("text", "n"), [("数学", 1), ("ab", 2)], 4),
    ],
)
def test_no_line_is_wider_than_the_terminal_and_every_row_is_there(
    monkeypatch: pytest.MonkeyPatch, width: int, names: tuple[str, ...], rows: list[tuple[Cell, ...]], most_lines: int
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    print_rows(Table([Column(name) for name in names], rows), out, is_wide=False)
    lines = [line.rstrip() for line in re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()]
    assert max(map(len, lines)) <= width
    assert [sum(str(row[0]) in line.split() for line in lines) for row in rows] == [1] * len(rows)
    assert len(lines) <= most_lines


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (percent(None), NOTHING), (span(None, 1.0, 1), NOTHING), (percent(0.1234), "12.3 %"),
        (number(1234.5), "1,234"), (number(0.01234), "0.0123"), (fixed(-0.5, 1), "−0.5"), (signed(0.5, 2), "+0.50"),
        (span(-0.125, 0.5, 1, 100), "−12.5 to 50.0"), (p_value(0.00001), "<0.0001"), (p_value(0.0095), "0.0095"),
        (p_value(0.0295), "0.029"), (p_value(1.0), "1.000"),
    ],
)  # fmt: skip
def test_numbers_have_a_fixed_form_with_a_typographic_minus(text: str, expected: str) -> None:
    assert text == expected


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


def test_text_is_escaped_and_columns_of_numbers_are_aligned_right() -> None:
    assert markdown_text("a_b <i> $x$") == r"a\_b &lt;i&gt; \$x\$"
    assert latex_text("−5 % of a_b <i>") == r"\(-\)5 \% of a\_b \textless{}i\textgreater{}"
    table = Table([Column("run"), Column("%")], [("a_b", "75.00"), ("c", None)])
    assert markdown([table]).splitlines()[1] == "|:-----|------:|"


def test_a_text_that_a_spreadsheet_would_evaluate_is_not_one_in_csv() -> None:
    out = io.StringIO()
    write_csv(Table([Column("text"), Column("n")], [("=1+1", -1.5), ("@a", None), ("a=b", 2), ("-5", 3)]), out)
    assert out.getvalue() == "text,n\n'=1+1,-1.5\n'@a,\na=b,2\n-5,3\n"


def test_an_interval_is_limited_to_possible_values() -> None:
    assert scaled(Interval(0.75, 0.25, 1.25, None, ""), 100, 1.0) == Interval(75.0, 25.0, 100.0, None, "")
    assert scaled(Interval(0.25, -0.25, 0.75, None, "")) == Interval(0.25, 0.0, 0.75, None, "")
    assert scaled(Interval(0.5, None, None, None, ""), 2) == Interval(1.0, None, None, None, "")
