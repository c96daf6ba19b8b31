"""Shapes of composite answers, and which of them can be equal."""

from __future__ import annotations

import pytest

from grading.equivalence import equivalent
from grading.reading.lists import ListShape, MatrixShape, SetShape, Shape, TupleShape, shape_of

COLUMN = r"\begin{pmatrix}1\\2\end{pmatrix}"
ROW = r"\begin{pmatrix}1&2\end{pmatrix}"
SQUARE = r"\begin{bmatrix}1&2\\3&4\end{bmatrix}"


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("5", None),
        ("1,234", None),
        ("(5)", None),
        ("1, 2", ListShape(("1", "2"))),
        (r"1 \text{ or } 2", ListShape(("1", "2"))),
        ("1;2", ListShape(("1", "2"))),
        (r"\{1,2\}", SetShape(("1", "2"))),
        (r"\{5\}", SetShape(("5",))),
        (r"\{\}", SetShape(())),
        ("{1,2}", SetShape(("1", "2"))),
        ("(1,2)", TupleShape(("1", "2"), "()")),
        ("[1,2)", TupleShape(("1", "2"), "[)")),
        (r"\langle 1,2 \rangle", TupleShape(("1", "2"), "()")),
        ("P=(1,2)", TupleShape(("1", "2"), "()")),
        ("(1,2)^T", TupleShape(("1", "2"), "()")),
        ("(1+2)^T", None),
        ("((1,2),3)", TupleShape(("(1,2)", "3"), "()")),
        (COLUMN, MatrixShape(("1", "2"), 2, 1)),
        (SQUARE, MatrixShape(("1", "2", "3", "4"), 2, 2)),
        (r"\begin{cases}x=1\\y=2\end{cases}", ListShape(("x=1", "y=2"))),
        (r"\begin{cases}x&1\\y&2\end{cases}", None),
    ],
)
def test_brackets_and_separators_decide_the_shape(text: str, shape: Shape | None) -> None:
    assert shape_of(text) == shape


@pytest.mark.parametrize(
    ("gold", "prediction"),
    [
        ("1, 2", r"\{2,1\}"),
        (r"\{2,1\}", "1, 2"),
        (r"\{1,2,3\}", "[3,2,1]"),
        ("[1,2,3]", r"\{3,2,1\}"),
        ("1, 2", "(1,2)"),
        ("(1,2)", "1, 2"),
        ("(1,2)", "x=1, y=2"),
        (COLUMN, "(1,2)"),
        ("(1,2)", COLUMN),
        (ROW, "(1,2)"),
        ("1, 2", COLUMN),
        (SQUARE, r"\begin{pmatrix}1&2\\3&\frac{8}{2}\end{pmatrix}"),
        (r"\{5\}", "5"),
        ("5", r"\{5\}"),
        ("P=(1,2)", "(1,2)"),
        (r"1 \pm \sqrt2", r"1+\sqrt2, 1-\sqrt2"),
        (r"\{-2,2\}", r"\pm 2"),
        ("(x,y)=(1,2)", "(1,2)"),
    ],
)
def test_shapes_that_can_be_equal(gold: str, prediction: str) -> None:
    assert equivalent(gold, prediction).is_equal is True


@pytest.mark.parametrize(
    ("gold", "prediction", "reason"),
    [
        (r"\{1,2\}", "[1,2]", "a pair or matrix is not a set"),
        (r"\{1,2\}", COLUMN, "a pair or matrix is not a set"),
        (COLUMN, ROW, "another size of matrix"),
        (SQUARE, "(1,2,3,4)", "a matrix is not a tuple"),
        ("(1,2)", ROW, "a matrix is not a tuple"),
        ("(1,2)", "[1,2]", "other brackets"),
        ("1, 2", "[1,2)", "other brackets"),
        ("(1,2)", "(1,2,3)", "3 parts where 2 are asked for"),
        ("(1,2)", "(2,1)", "a part differs"),
        ("5", "(5,6)", "one value against several"),
        ("(5,6)", "5", "one value against several"),
    ],
)
def test_shapes_that_cannot_be_equal(gold: str, prediction: str, reason: str) -> None:
    match = equivalent(gold, prediction)
    assert (match.is_equal, match.reason) == (False, reason)


def test_a_matrix_of_two_rows_and_ten_columns_is_not_a_vector() -> None:
    numbers = [str(number) for number in range(20)]
    matrix = r"\begin{pmatrix}" + "&".join(numbers[:10]) + r"\\" + "&".join(numbers[10:]) + r"\end{pmatrix}"
    assert equivalent(matrix, f"({','.join(numbers)})").is_equal is False
