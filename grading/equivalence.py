r"""Equivalence of an answer and a gold, decided by a sequence of readers.

The readers, in `grading.reading`, compare strings, exact numbers, digits with a base, times, words, sets of numbers,
lists and matrices part by part, equations, and expressions by their values; math-verify decides what none of these can
read. The first reader that can read both sides decides. No number is ever picked out of an answer that cannot be read
as a whole.

Policies, where the graders of the field differ. A unit, a currency and a percent sign may be missing or extra (`5`
and `5\%`), but two known units must agree (`5 cm` is not `5 m`); a sign of money is met by its rates (`\$20` by
`20 dollars per hour`). `52` is wrong for `52_8`. A bare list has no order unless each part has its own name (`a = 1,
b = 2`), of which an index is a part, as math-verify has it. A tuple has an order; a tuple is not a set. An inequality
equals the interval that it describes. `x = 5` answers 5, and `y = 2x` and `f(x) = 2x` answer `2x`. A decimal stands
for a number without a finite decimal from six significant digits.
"""

from __future__ import annotations

import re

from grading.bounds import why_not_parsed
from grading.extract import find_boxes
from grading.reading.equations import compare_equations, compare_expressions
from grading.reading.lists import ListShape, SetShape, compare_shapes, compare_unordered, shape_of
from grading.reading.notation import clean, squeezed, without_text_commands
from grading.reading.pair import Match, Pair
from grading.reading.phrases import without_condition, without_lead
from grading.reading.quantities import compare_numbers, split_unit, units_differ
from grading.reading.sets import compare_sets, first_spelling
from grading.reading.special import compare_special_forms

_APPROXIMATELY = re.compile(r"^(-?)\s?\\approx(?![a-z])\s?")
_MAX_CHARACTERS = 4_000
"""Characters of an answer that are cleaned; more than `grading.bounds` lets through."""


def equivalent(gold: str, prediction: str, tolerance: float | None = None, unit: str | None = None) -> Match:
    """Compare one answer with one gold, both as they stand in a text; not symmetric, the gold comes first.

    `tolerance` is the absolute error and `unit` a unit that the benchmark allows.
    """
    return _compare(Pair(gold, prediction, tolerance, unit))


def equivalent_list(
    golds: list[str], predictions: list[str], tolerance: float | None = None, unit: str | None = None
) -> Match:
    """Compare two lists as multisets: in any order, every element as often as in the gold."""
    return compare_unordered(golds, predictions, Pair("", "", tolerance, unit), _compare)


def is_list(gold: str) -> bool:
    """Return whether a gold has several parts in any order."""
    return isinstance(shape_of(_prepared(gold)), ListShape | SetShape)


def _compare(pair: Pair) -> Match:
    """Compare two answers as strings, then within bounds by the readers, which may compare their parts in turn."""
    gold, prediction = _prepared(pair.gold), _prepared(pair.prediction)
    if pair.unit:
        prediction = _without_gold_unit(prediction, clean(pair.unit))
    currencies, units = ([read(text) for text in pair.texts] for read in (_currency, lambda t: split_unit(clean(t))[1]))
    if any(currencies):
        units = [sign or re.split(r"/|\bper\b", unit)[0] for sign, unit in zip(currencies, units, strict=True)]
    if units_differ(*units):
        return Match(False, "another unit")
    if gold and squeezed(gold) == squeezed(prediction):
        return Match(True, "same string")
    if not prediction:
        return Match(None, "nothing but punctuation")
    bare, bare_prediction = without_condition(gold), without_condition(prediction)
    if (bare_prediction != prediction and bare == gold) or (bare != gold and bare_prediction == prediction):
        return _compare(pair.with_texts(bare, bare_prediction))
    problem = why_not_parsed(prediction)
    if problem:
        return Match(None, problem)
    if why_not_parsed(gold):
        return Match(False, "the gold is compared as a string only")
    return _read_and_compare(Pair(first_spelling(gold), first_spelling(prediction), pair.tolerance))


def _read_and_compare(pair: Pair) -> Match:
    return (
        compare_numbers(pair)
        or compare_special_forms(pair, _compare)
        or compare_sets(pair)
        or compare_shapes(pair, _compare)
        or compare_equations(pair, _compare)
        or compare_expressions(pair, _compare)
    )


def _prepared(text: str) -> str:
    r"""Clean an answer and take it out of boxes and of a lead such as `The answer is`."""
    text = text[:_MAX_CHARACTERS]
    if "boxed" in text:
        boxes = [box for box in find_boxes(text)[0] if box.strip()]
        text = (boxes[-1] if len(set(boxes)) == 1 else ", ".join(boxes)) if boxes else text
    return _APPROXIMATELY.sub(r"\1", without_lead(clean(text)))


def _currency(text: str) -> str:
    """Return the unit of an amount with a sign of money, which cleaning drops."""
    sign = re.match(r"\s*(?:\\\$|\$(?=[\d.,]+\s*$)|[€£])", text)
    return {"€": "euro", "£": ""}.get(sign.group().strip(), "dollar") if sign else ""


def _without_gold_unit(prediction: str, unit: str) -> str:
    plain = without_text_commands(prediction)
    for ending in (unit, unit + "s", unit.removesuffix("s")):
        if ending and plain.endswith(ending) and re.search(r"\d", plain.removesuffix(ending)):
            return plain.removesuffix(ending).strip()
    return prediction
