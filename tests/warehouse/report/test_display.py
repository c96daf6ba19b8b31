"""Tables on terminals of several widths: every word stays whole, however narrow the terminal is."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest

from harness.cli.number_format import NOTHING, fixed, number, p_value, percent, signed, span
from harness.cli.screen import Cell, Column, Screen, Table
from warehouse.query import print_rows, rounded
from warehouse.report.facts import scaled
from warehouse.report.tables import latex_text, markdown, markdown_text, write_csv
from warehouse.statistics.intervals import Interval

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
    Screen(out).table(Table([Column(name) for name in columns], rows))
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
    assert _printed(terminal, "a" * 20, "b" * 20, rows=[]) == ["(no rows)", "a" * 20 + ",", "b" * 20]


def test_a_pipe_gets_one_line_per_row_of_any_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    lines = _printed(io.StringIO(), "run", "%", "95 %", rows=_ROWS)
    assert [len(line.split("  ")) > 1 for line in lines] == [True, True, True]


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
    rows: Sequence[Sequence[Cell]] = ROWS,
    names: Sequence[str] = NAMES,
    *,
    is_wide: bool = False,
) -> list[str]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    out = Terminal()
    print_rows(Table([Column(name) for name in names], rows), out, is_wide=is_wide)
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


def test_missing_values_are_a_dash() -> None:
    assert {percent(None), number(None), fixed(None, 2), span(None, 1.0, 1), span(0.0, None, 1)} == {NOTHING}


def test_numbers_have_a_fixed_form_with_a_typographic_minus() -> None:
    assert (percent(0.1234), number(1234.5), number(0.01234)) == ("12.3 %", "1,234", "0.0123")
    assert (fixed(-0.5, 1), signed(0.5, 2), span(-0.125, 0.5, 1, 100)) == ("−0.5", "+0.50", "−12.5 to 50.0")


@pytest.mark.parametrize(("p", "text"), [(0.00001, "<0.0001"), (0.0095, "0.0095"), (0.0295, "0.029"), (1.0, "1.000")])
def test_small_p_values_have_more_decimals(p: float, text: str) -> None:
    assert p_value(p) == text


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
