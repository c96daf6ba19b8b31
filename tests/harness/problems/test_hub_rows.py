"""The hub's columns become the records that local files hold."""

from __future__ import annotations

from typing import Any

import pytest

from harness.problems import benchmarks
from tests.shared import shared_rows


@pytest.mark.parametrize(
    ("convert", "row", "expected"),
    [
        (benchmarks.gsm8k_record, {"question": "q", "answer": "a #### b\n#### 1,234 "}, {"answer": "1234"}),
        (benchmarks.integer_answer_record, {"problem": "q", "answer": "025"}, {"answer": "25"}),
        (benchmarks.integer_answer_record, {"question": "q", "answer": 27.0}, {"problem": "q", "answer": "27"}),
        (benchmarks.integer_answer_record, {"problem": "q", "answer": 336}, {"answer": "336"}),
        (benchmarks.integer_answer_record, {"problem": "q", "answer": "$336^\\circ$"}, {"answer": "336"}),
        (benchmarks.gaokao_record, {"question": "q", "answer": "$145$solution:"}, {"answer": "$145$"}),
        (
            benchmarks.gaokao_record,
            {"question": "Find it. Answer: A", "answer": ""},
            {"problem": "Find it.", "answer": "A"},
        ),
        (
            benchmarks.gaokao_record,
            {"question": "How many answers: two", "answer": "2"},
            {"problem": "How many answers: two"},
        ),
        (
            benchmarks.college_math_record,
            {"question": "q", "answer": "$x$", "data_topic": "algebra"},
            {"subject": "algebra"},
        ),
        (
            benchmarks.math500_record,
            {"problem": "q", "answer": "1", "level": 5, "subject": "Algebra", "solution": "s", "unique_id": "u"},
            {"problem": "q", "answer": "1", "level": 5, "subject": "Algebra"},
        ),
        (
            benchmarks.olympiadbench_record,
            {"question": "q", "final_answer": ["$(1,2), [3,4)$"], "is_multiple_answer": True, "error": "1e-1"},
            {"answers": ["(1,2)", "[3,4)"], "answer": "$(1,2), [3,4)$", "tolerance": "1e-1"},
        ),
    ],
)
def test_hub_columns_become_records(convert: Any, row: dict[str, Any], expected: dict[str, Any]) -> None:
    record = convert(row)
    assert {field: record[field] for field in expected} == expected


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        (r"so $\boxed{\frac{1}{2}}$", [r"\frac{1}{2}"]),
        (r"\boxed{1} and \fbox{2}", ["1", "2"]),
        (r"$\boxed 7$.", ["7"]),
        (r"\boxed{never closed", []),
    ],
)
def test_boxes_are_matched_with_their_braces(text: str, contents: list[str]) -> None:
    assert benchmarks.boxes(text) == contents


def test_math_answers_from_solutions_equal_the_checked_file() -> None:
    for row in shared_rows("math"):
        hub = {"problem": row["problem"], "solution": row["solution"], "level": f"Level {row['level']}", "type": "x"}
        record = benchmarks.math_record(hub)
        for field in ("answer", "answers", "alternatives", "level"):
            assert record.get(field) == row.get(field), row["id"]


def test_olympiadbench_parts_equal_the_checked_file() -> None:
    for row in shared_rows("olympiadbench"):
        hub = {"question": "q", "final_answer": [row["answer"]], "is_multiple_answer": "answers" in row}
        assert (
            benchmarks.olympiadbench_record(hub).get("answers") == row.get("answers") or row["id"] == "olympiadbench/73"
        )
