r"""Shapes of composite answers: bare lists, sets, tuples (also as points and intervals) and matrices.

Only brackets, commas and line breaks are read here; `grading.reading.lists` compares the parts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from grading.reading.clean import is_enclosed, split_list, split_top
from grading.reading.lists import compare_ordered, compare_unnamed, in_order_of_names, split_plus_minus
from grading.reading.numbers import read_number
from grading.reading.pair import Compare, Match, Pair
from grading.reading.relations import is_equation, without_name

_MATRIX = re.compile(
    r"\\?[\[({|]?\s?\\begin\{(?:[pbvBV]|small)?(?:matrix|array)\}(?:\{[lcr| ]*\})?"
    r"(.*?)\\end\{[a-zA-Z]*\}\s?\\?[\])}|]?",
    re.DOTALL,
)
_CASES = re.compile(r"\\begin\{(?:cases|array|aligned)\}(?:\{[lcr]\})?(.*?)\\end\{(?:cases|array|aligned)\}", re.DOTALL)
_ANGLE = re.compile(r"(?:\\langle|<)\s?(.*?)\s?(?:\\rangle|>)", re.DOTALL)
_TRANSPOSED = re.compile(r"(.*[)\]])\s?\^\s?\{?\s?(?:T|\\top|\\mathrm\s?\{T\}|\\intercal|\\prime)\s?\}?", re.DOTALL)
_POINT_NAME = re.compile(r"[A-Z](?:_\{?\w\}?)?'?\s?(?==?\s?\([^()]*,)=?\s?")
_MARKS = (",", ";", "matrix", "array", " ", "{")
"""A text without any of these is one value."""


@dataclass(frozen=True, slots=True)
class ListShape:
    """Values one after the other without brackets; their order does not count."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetShape:
    """Values in braces; their order does not count."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TupleShape:
    """Values in round or square brackets: a tuple, a point, a vector or an interval."""

    parts: tuple[str, ...]
    brackets: str
    """`()`, `[]`, `(]` or `[)`."""


@dataclass(frozen=True, slots=True)
class MatrixShape:
    """A matrix or a column or row vector."""

    parts: tuple[str, ...]
    """The cells, row by row."""
    num_rows: int
    num_columns: int


Shape = ListShape | SetShape | TupleShape | MatrixShape


def shape_of(text: str) -> Shape | None:
    """Return the shape of a cleaned answer, or None where it is one value."""
    if not any(mark in text for mark in _MARKS) or (text[:1].isdigit() and read_number(text)):
        return None
    if matrix := _MATRIX.fullmatch(text.strip()):
        lines: list[str] = re.split(r"\\\\|\\cr", matrix.group(1))
        rows = [line.split("&") for line in lines if line.strip()]
        if rows and len({len(row) for row in rows}) == 1:
            return MatrixShape(tuple(cell.strip() for row in rows for cell in row), len(rows), len(rows[0]))
    if cases := _CASES.fullmatch(text.strip()):
        parts = [line.strip(" ,.") for line in re.split(r"\\\\", cases.group(1)) if line.strip()]
        return ListShape(tuple(parts)) if len(parts) > 1 and "&" not in text else None
    if transposed := _TRANSPOSED.fullmatch(text):
        inner = shape_of(transposed.group(1))
        return inner if isinstance(inner, TupleShape) else None
    if (angle := _ANGLE.fullmatch(text)) and "," in angle.group(1):
        return TupleShape(tuple(split_top(angle.group(1), ",")), "()")
    point = _POINT_NAME.sub("", text, count=1)
    return _shape_in_brackets(point if is_enclosed(point) else text)


def _shape_in_brackets(text: str) -> Shape | None:
    if is_enclosed(text):
        if text.startswith(r"\{") and text.endswith(r"\}"):
            return SetShape(tuple(part for part in split_list(text) if part))
        if text[0] in "([" and text[-1] in ")]":
            parts = split_top(text[1:-1], "[,;]")
            rows = [shape_of(part) for part in parts] if text.startswith("[[") else []
            if rows and all(isinstance(row, TupleShape) and row.brackets == "[]" for row in rows):
                lengths = {len(row.parts) for row in rows if row}
                if len(lengths) == 1:
                    return MatrixShape(tuple(cell for row in rows if row for cell in row.parts), len(rows), *lengths)
            return TupleShape(tuple(parts), text[0] + text[-1]) if len(parts) > 1 else None
        if text[0] == "{" and text[-1] == "}":
            parts = split_list(text[1:-1])
            return SetShape(tuple(parts)) if len(parts) > 1 else None
    parts = split_list(text)
    return ListShape(tuple(parts)) if len(parts) > 1 else None


def compare_shapes(pair: Pair, compare: Compare) -> Match | None:
    """Compare two answers of which at least one has several parts; None where neither has."""
    pair = pair.with_texts(pair.gold, _without_extra_name(pair))
    gold, prediction = shape_of(pair.gold), shape_of(pair.prediction)
    if gold is None and (bare := without_name(pair.gold)) != pair.gold:
        gold = shape_of(bare)
    if gold is not None and prediction is not None:
        return _compare_two(gold, prediction, pair, compare)
    if gold is not None or prediction is not None:
        return _compare_with_value(gold, prediction, pair, compare)
    return None


def _without_extra_name(pair: Pair) -> str:
    """Return the prediction without `P =` in front, unless it is a list or the gold itself is an equation."""
    is_gold_equation = is_equation(pair.gold) and not shape_of(pair.gold) and not shape_of(without_name(pair.gold))
    if isinstance(shape_of(pair.prediction), ListShape) or is_gold_equation:
        return pair.prediction
    return without_name(pair.prediction)


def _compare_two(gold: Shape, prediction: Shape, pair: Pair, compare: Compare) -> Match:
    golds, predictions = list(gold.parts), list(prediction.parts)
    match gold, prediction:
        case ((ListShape() | SetShape()), (ListShape() | SetShape())):
            return compare_unnamed(golds, predictions, pair, compare)
        case (SetShape(), TupleShape(brackets="[]")) | (TupleShape(brackets="[]"), SetShape()) if len(predictions) > 2:
            return compare_unnamed(golds, predictions, pair, compare)  # a list in a programmer's brackets
        case (ListShape(), TupleShape(brackets="()" | "[]")) | (TupleShape(brackets="()" | "[]"), ListShape()):
            golds, predictions = in_order_of_names(golds), in_order_of_names(predictions)
    return _mismatch(gold, prediction) or compare_ordered(golds, predictions, pair, compare)


def _mismatch(gold: Shape, prediction: Shape) -> Match | None:
    """Return why two shapes cannot be equal, whatever their parts are, or None."""
    match gold, prediction:
        case (SetShape(), _) | (_, SetShape()):
            return Match(False, "a pair or matrix is not a set")
        case MatrixShape(_, rows, columns), MatrixShape(_, other_rows, other_columns):
            is_same_size = (rows, columns) == (other_rows, other_columns)
            return None if is_same_size else Match(False, "another size of matrix")
        case MatrixShape(_, rows, columns), TupleShape():
            is_vector = 1 in (rows, columns)
            return None if is_vector else Match(False, "a matrix is not a tuple")
        case TupleShape(), MatrixShape(_, _, columns):
            return None if columns == 1 else Match(False, "a matrix is not a tuple")
        case TupleShape(_, brackets), TupleShape(_, other_brackets):
            return None if brackets == other_brackets else Match(False, "other brackets")
        case (ListShape(), TupleShape(_, brackets)) | (TupleShape(_, brackets), ListShape()):
            return None if brackets in ("()", "[]") else Match(False, "other brackets")
    return None


def _compare_with_value(gold: Shape | None, prediction: Shape | None, pair: Pair, compare: Compare) -> Match | None:
    r"""Compare several parts with one value: `\pm` stands for two values, and a set of one element is its element."""
    if pair.has_plus_minus:
        golds = list(gold.parts) if isinstance(gold, ListShape | SetShape) else [pair.gold]
        predictions = list(prediction.parts) if isinstance(prediction, ListShape | SetShape) else [pair.prediction]
        if len(split_plus_minus(golds)) > 1 and len(split_plus_minus(predictions)) > 1:
            return compare_unnamed(golds, predictions, pair, compare)
    match gold, prediction:
        case SetShape((element,)), None:
            return compare(pair.with_texts(element, pair.prediction))
        case None, SetShape((element,)):
            return compare(pair.with_texts(pair.gold, element))
    if any("matrix" in text or "array" in text for text in pair.texts):
        return None
    return Match(False, "one value against several")
