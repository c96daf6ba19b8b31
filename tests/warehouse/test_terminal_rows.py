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


def test_what_every_row_has_is_said_once_above_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(shown(monkeypatch, 80))
    assert f"In every row: dataset demo, n 40, grader_version {GRADER}" in text
    assert text.count(GRADER) == 1
    empty = " ".join(shown(monkeypatch, 80, [(*row, None, None) for row in ROWS], (*NAMES, "tag", "preset")))
    assert "NULL in every row: tag, preset" in empty


def test_columns_without_room_are_named_with_the_options_that_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(shown(monkeypatch, 45))
    assert "1 column does not fit: rerun_standard_error (--columns NAME,NAME chooses, --wide shows all)" in text


def test_headers_are_broken_behind_underscores_before_anything_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    names, rows = ("rerun_standard_error", "ratio_of_means_high_95"), [(0.5, 0.25), (0.75, 0.5), (1.0, 0.1)]
    assert shown(monkeypatch, 21, rows, names)[:6] == [
        "           ratio_",
        "              of_",
        "   rerun_  means_",
        "standard_   high_",
        "    error      95",
        "─────────  ──────",
    ]


def test_one_row_without_room_is_a_block_with_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 60, ROWS[:1])
    assert [line.split()[0] for line in lines if line and not line.startswith(" ")] == list(NAMES)
    assert "not fit" not in " ".join(lines)


def test_text_is_wrapped_between_words_before_columns_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"toy/{i}", "a sentence of some words " * 4) for i in range(3)]
    lines = shown(monkeypatch, 60, rows, ("problem_id", "text"))
    assert " ".join(lines).count("sentence") == 12
    assert max(map(len, lines)) <= 60


def test_wide_shows_every_column_and_digit_on_one_line_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    header, rule, *rows = shown(monkeypatch, 40, is_wide=True)
    assert header.split() == list(NAMES)
    assert set(rule) == {"─", " "}
    assert len(rows) == 3
    assert "0.6666666667" in rows[0]
    assert rows[0].endswith(GRADER)


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


def test_an_answer_without_rows_names_its_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    assert " ".join(shown(monkeypatch, 30, [])).startswith("(no rows) run_id, method,")
    assert shown(monkeypatch, 80, [], ("a", "b"))[0] == "a  b"


def test_wide_characters_count_as_two_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = shown(monkeypatch, 80, [("数学", 1), ("ab", 2)], ("text", "n"))
    assert lines[2:] == ["数学  1", "ab    2"]
