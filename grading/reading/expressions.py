r"""Two expressions by their values: as they stand, without units, or one side of an approximation.

What cannot be read as a formula goes to math-verify.
"""

from __future__ import annotations

import re

from grading.bounds import is_balanced
from grading.reading.evaluate import constant_value, inexact, is_same_expression
from grading.reading.formula import Node, read_formula, symbols, with_symbol_renamed
from grading.reading.lists import compare_unnamed, split_plus_minus
from grading.reading.numbers import read_number, rounds_to_value
from grading.reading.pair import Compare, Match, Pair, best_match
from grading.reading.symbolic import compare_symbols
from grading.reading.units import split_unit, units_differ, without_unit

MAX_APPROXIMATIONS = 3
r"""Sides of a chain of `\approx` that are compared, from its end."""


def compare_expressions(pair: Pair, compare: Compare) -> Match:
    """Compare two answers that are one value each."""
    if r"\approx" in pair.prediction:
        return _compare_approximations(pair, compare)
    if pair.has_plus_minus:
        return compare_unnamed(split_plus_minus([pair.gold]), split_plus_minus([pair.prediction]), pair, compare)
    if not is_balanced(pair.prediction):
        return Match(None, "unbalanced braces")
    (gold, gold_unit), (prediction, unit) = (split_unit(text) for text in pair.texts)
    if units_differ(gold_unit, unit):
        return Match(False, "another unit")
    readings = list(dict.fromkeys([pair, pair.with_texts(gold, prediction)]))  # as they stand, so that 90° is π/2
    for reading in readings:
        is_equal = _has_same_value(reading)
        if is_equal or (is_equal is False and reading == readings[-1]):
            return Match(is_equal, "values")
    return compare_symbols(pair.with_texts(without_unit(pair.gold), without_unit(pair.prediction)))


def _compare_approximations(pair: Pair, compare: Compare) -> Match:
    """Compare the gold with the last sides of a chain of approximations."""
    sides = [side.strip() for side in pair.prediction.split(r"\approx") if side.strip()]
    if not sides:
        return Match(None, "nothing beside an approximation sign")
    gold = pair.gold.replace(r"\approx", "").strip()
    return best_match([compare(pair.with_texts(gold, side)) for side in sides[-MAX_APPROXIMATIONS:]])


def _has_same_value(pair: Pair) -> bool | None:
    """Return whether both sides have the same values, or None where one of them cannot be read or computed."""
    gold, prediction = read_formula(pair.gold), read_formula(pair.prediction)
    if gold is None or prediction is None:
        return None
    if not symbols(gold) and not symbols(prediction):
        gold_value, value = constant_value(gold), constant_value(prediction)
        if gold_value is None or value is None:
            return None
        if pair.tolerance is not None and abs(inexact(gold_value) - inexact(value)) <= pair.tolerance:
            return True
        gold_number, number = read_number(pair.gold), read_number(pair.prediction)
        if number is not None and rounds_to_value(gold_value, number):
            return True
        if gold_number is not None and rounds_to_value(value, gold_number):
            return True
    return is_same_expression(gold, with_constant_of(gold, prediction))


def with_constant_of(gold: Node, prediction: Node) -> Node:
    """Return the prediction with its constant of integration named as in the gold (`C`, `C_1`)."""
    missing, extra = symbols(gold) - symbols(prediction), symbols(prediction) - symbols(gold)
    for name in extra:
        if re.fullmatch(r"[cCkK]_\d", name) and name.swapcase() in missing:
            prediction = with_symbol_renamed(prediction, name, name.swapcase())
    if gold.kind == "+" and missing == {"C"} and len(extra) == 1 and extra <= {"c", "K", "k"}:
        return with_symbol_renamed(prediction, next(iter(extra)), "C")
    return prediction
