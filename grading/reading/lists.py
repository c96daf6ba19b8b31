r"""Answers of several parts: unordered lists and sets, ordered tuples, matrices, and `a \pm b` as two values.

Only brackets, commas and line breaks are read here; the parts are compared one by one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from grading.reading import PLUS_MINUS, Compare, Match, Pair
from grading.reading.notation import (
    clean,
    is_enclosed,
    is_equation,
    name_of,
    split_list,
    split_top,
    squeezed,
    with_one_name,
    without_name,
)
from grading.reading.quantities import read_number, split_unit

MAX_PARTS = 400
"""Maximum number of parts compared one by one, not counting parts that are equal as strings."""
_ARGUMENT = re.compile(r"\\?[A-Za-z]{1,8}'{0,2}\s?\(\s?([a-z])\s?\)\s?=")
_MINUS_PLUS = re.compile(r"\\mp(?![a-z])")


def split_plus_minus(parts: list[str]) -> list[str]:
    r"""Replace every `a \pm b` with its two values."""
    values: list[str] = []
    for part in parts:
        if PLUS_MINUS.search(part):
            for upper, lower in (("+", "-"), ("-", "+")):
                values.append(_MINUS_PLUS.sub(lower, PLUS_MINUS.sub(upper, part)))
        else:
            values.append(part)
    return values


def compare_unordered(golds: list[str], predictions: list[str], pair: Pair, compare: Compare) -> Match:
    """Compare two lists as multisets: in any order, every element as often as in the gold.

    `pair`: the pair that contains the parts; its tolerance and unit apply to each part.
    """
    golds = split_plus_minus([clean(part) for part in golds])
    predictions = split_plus_minus([clean(part) for part in predictions])
    if len(golds) != len(predictions):
        return _other_length(golds, predictions)
    golds, predictions = _without_equal_strings(golds, predictions)
    if len(predictions) > MAX_PARTS:
        return Match(None, f"more than {MAX_PARTS} parts")
    is_readable = True
    units = {split_unit(gold)[1] for gold in golds} - {""}
    for gold in golds:
        for index, prediction in enumerate(predictions):
            unit = split_unit(prediction)[1]
            if unit in units and unit != split_unit(gold)[1]:
                continue  # words after a number distinguish the parts: `3 boys, 5 girls`
            match = compare(pair.with_texts(gold, prediction))
            is_readable = is_readable and match.is_equal is not None
            if match.is_equal:
                del predictions[index]
                break
        else:
            return Match(False if is_readable else None, "a part is missing")
    return Match(True, "all parts")


def compare_unnamed(golds: list[str], predictions: list[str], pair: Pair, compare: Compare) -> Match:
    """Compare lists as multisets. If equally long with distinct gold names: by name or, if none is shared, in order."""
    golds, predictions = ([text for part in parts for text in with_one_name(part)] for parts in (golds, predictions))
    predictions = _with_argument_of(golds, predictions)
    names, other = ([name_of(part) for part in parts] for parts in (golds, predictions))
    has_names = all(names) and (all(other) or not any(is_equation(part) for part in predictions))
    keeps_names = all(is_equation(gold) for gold in golds) or all(
        any(without_name(part) != part for part in parts) for parts in (golds, predictions)
    )
    if has_names or not keeps_names:
        golds, predictions = [without_name(gold) for gold in golds], [without_name(part) for part in predictions]
    if has_names and len(golds) == len(predictions) and len(set(names)) == len(names) > 1:
        if sorted(names) == sorted(other):
            predictions = [predictions[other.index(name)] for name in names]
        elif set(names) & set(other) or (any("(" in name for name in names) and all(other)):
            return Match(False, "different names")
        if not any(other) or len(set(other)) == len(other):
            return compare_ordered(golds, predictions, pair, compare)
    return compare_unordered(golds, predictions, pair, compare)


def _with_argument_of(golds: list[str], predictions: list[str]) -> list[str]:
    """Rewrite `f(t) = 2t` as `f(x) = 2x` if all functions in the gold have the argument x, and all in the answer t.

    Nothing is changed if x already occurs in the answer.
    """
    letters = [{match.group(1) for part in parts if (match := _ARGUMENT.match(part))} for parts in (golds, predictions)]
    if any(len(found) != 1 for found in letters) or letters[0] == letters[1]:
        return predictions
    (new,), (old,) = letters
    alone = r"(?<![A-Za-z\\]){}(?![A-Za-z])"
    if any(re.search(alone.format(new), part) for part in predictions):
        return predictions
    return [re.sub(alone.format(old), new, part) for part in predictions]


def in_order_of_names(parts: list[str]) -> list[str]:
    """Return the parts without their names; the parts of a point such as `y = 2, x = 1` are put in coordinate order."""
    is_point = sorted(name_of(part) for part in parts) in (["x", "y"], ["x", "y", "z"])
    return [without_name(part) for part in (sorted(parts, key=name_of) if is_point else parts)]


def compare_ordered(golds: list[str], predictions: list[str], pair: Pair, compare: Compare) -> Match:
    """Compare two lists part by part, in order."""
    if len(golds) != len(predictions):
        return _other_length(golds, predictions)
    matches = [compare(pair.with_texts(*texts)) for texts in zip(golds, predictions, strict=True)]
    if any(match.is_equal is False for match in matches):
        return Match(False, "a part differs")
    return Match(None if any(match.is_equal is None for match in matches) else True, "part by part")


def _other_length(golds: list[str], predictions: list[str]) -> Match:
    return Match(False, f"{len(predictions)} parts, expected {len(golds)}")


def _without_equal_strings(golds: list[str], predictions: list[str]) -> tuple[list[str], list[str]]:
    """Return the golds and predictions without those that have an equal string in the other list."""
    by_string: dict[str, list[str]] = {}
    for prediction in predictions:
        by_string.setdefault(squeezed(prediction), []).append(prediction)
    unmatched = [gold for gold in golds if not (by_string.get(squeezed(gold)) and by_string[squeezed(gold)].pop())]
    return unmatched, [prediction for same in by_string.values() for prediction in same]


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
    """Unordered values without brackets."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SetShape:
    """Unordered values in braces."""

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
    """Return the shape of a cleaned answer, or None if it is one value."""
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
    """Compare two answers if at least one has several parts; otherwise None."""
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
    """Return the prediction without a leading `P =`, unless it is a list or the gold itself is an equation."""
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
            return compare_unnamed(golds, predictions, pair, compare)  # a list as in Python
        case (ListShape(), TupleShape(brackets="()" | "[]")) | (TupleShape(brackets="()" | "[]"), ListShape()):
            golds, predictions = in_order_of_names(golds), in_order_of_names(predictions)
    return _mismatch(gold, prediction) or compare_ordered(golds, predictions, pair, compare)


def _mismatch(gold: Shape, prediction: Shape) -> Match | None:
    """Return why two shapes cannot be equal, whatever their parts, or None."""
    match gold, prediction:
        case (SetShape(), _) | (_, SetShape()):
            return Match(False, "a pair or matrix is not a set")
        case MatrixShape(_, rows, columns), MatrixShape(_, other_rows, other_columns):
            is_same_size = (rows, columns) == (other_rows, other_columns)
            return None if is_same_size else Match(False, "different matrix size")
        case MatrixShape(_, rows, columns), TupleShape():
            is_vector = 1 in (rows, columns)
            return None if is_vector else Match(False, "a matrix is not a tuple")
        case TupleShape(), MatrixShape(_, _, columns):
            return None if columns == 1 else Match(False, "a matrix is not a tuple")
        case TupleShape(_, brackets), TupleShape(_, other_brackets):
            return None if brackets == other_brackets else Match(False, "different brackets")
        case (ListShape(), TupleShape(_, brackets)) | (TupleShape(_, brackets), ListShape()):
            return None if brackets in ("()", "[]") else Match(False, "different brackets")
    return None


def _compare_with_value(gold: Shape | None, prediction: Shape | None, pair: Pair, compare: Compare) -> Match | None:
    r"""Compare several parts with one value: `\pm` represents two values, and a one-element set equals its element."""
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
    shape, other = (gold, pair.prediction) if prediction is None else (prediction, pair.gold)
    if any("matrix" in text or "array" in text for text in pair.texts):
        is_determinant = any("|" in text or "vmatrix" in text for text in pair.texts)
        if is_determinant or shape is None or len(shape.parts) == 1 or read_number(other) is None:
            return None
    return Match(False, "one value vs. several")
