r"""Decide whether an answer and a gold are equivalent, with a sequence of comparisons.

The comparisons are of strings, exact numbers, digits with a base, times, words, sets of numbers, lists and matrices
part by part, equations, and expressions by their values. The first one that can read both the answer and the gold
decides; math-verify decides the remaining cases. A number is never extracted from an answer that cannot be read as a
whole.

Policies for cases in which graders differ: A unit, a currency or a percent sign may be missing or extra (`5` and
`5\%`), but two known units must agree (`5 cm` is not `5 m`). A currency sign also matches a rate (`\$20` matches `20
dollars per hour`). `52` is wrong for `52_8`. A bare list has no order unless its parts have distinct names (`a = 1, b =
2`); an index is part of the name, as in math-verify. A tuple has an order and is not a set. An inequality equals
the interval that it describes. `x = 5` answers 5, and `y = 2x` and `f(x) = 2x` answer `2x`. A decimal with at least six
significant digits represents a number that is not a finite decimal.
"""

from __future__ import annotations

import re

from grading.bounds import why_not_parsed
from grading.extract import chosen_letter, find_boxes
from grading.reading import Compare, Match, Pair
from grading.reading.equations import compare_equations, compare_expressions
from grading.reading.evaluate import ROUNDING_TOLERANCE, Value, constant_value, inexact
from grading.reading.formula import read_formula, symbols
from grading.reading.lists import ListShape, SetShape, compare_shapes, compare_unordered, shape_of
from grading.reading.notation import clean, read_relation, squeezed, without_text_commands
from grading.reading.phrases import digits_of_word, is_same_words, is_text, meaning, without_condition, without_lead
from grading.reading.quantities import compare_numbers, read_number, split_unit, units_differ, without_unit
from grading.reading.sets import compare_sets, first_spelling, looks_like_a_set, read_set

_BASE = re.compile(r"\(?([0-9A-Z][0-9A-Z ,.]*)\)?_\{?\s?(?:\\text\{\s?)?(?:base )?(\d{1,2}|[a-z]{3,10})\s?\}?\}?")
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
               "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_TIME = re.compile(
    r"(\d{1,2})(?::([0-5]\d)(?::[0-5]\d)?|(?=\s?[ap]\.?\s?m\b))\s?((?:[ap]\.?\s?m\.?|noon|midnight|o'clock)?)",
    re.IGNORECASE,
)
_OPTION = re.compile(r"([A-K])|\(\s?([A-K])\s?\)")
_RATIO = re.compile(r"[^:]{1,60}(?::[^:]{1,60})+")
_DOTS = re.compile(r"\\[lcv]?dots|\.\.\.|…")
_APPROXIMATELY = re.compile(r"^(-?)\s?\\approx(?![a-z])\s?")
_MAX_CHARACTERS = 4_000
"""Longer texts are truncated before cleaning. The limit exceeds `MAX_ANSWER_CHARACTERS`, so they are still rejected."""


def equivalent(gold: str, prediction: str, tolerance: float | None = None, unit: str | None = None) -> Match:
    """Compare one answer with one gold, both as they occur in a text. Not symmetric: the gold comes first.

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
    """Compare two answers as strings, then, within `bounds`, by content; parts of answers are compared recursively."""
    gold, prediction = _prepared(pair.gold), _prepared(pair.prediction)
    if pair.unit:
        prediction = _without_gold_unit(prediction, clean(pair.unit))
    currencies, units = ([read(text) for text in pair.texts] for read in (_currency, lambda t: split_unit(clean(t))[1]))
    if any(currencies):
        units = [sign or re.split(r"/|\bper\b", unit)[0] for sign, unit in zip(currencies, units, strict=True)]
    if units_differ(*units):
        return Match(False, "different units")
    if gold and squeezed(gold) == squeezed(prediction):
        return Match(True, "same string")
    if not prediction:
        return Match(None, "only punctuation")
    bare, bare_prediction = without_condition(gold), without_condition(prediction)
    if (bare_prediction != prediction and bare == gold) or (bare != gold and bare_prediction == prediction):
        return _compare(pair.with_texts(bare, bare_prediction))
    problem = why_not_parsed(prediction)
    if problem:
        return Match(None, problem)
    if why_not_parsed(gold):
        return Match(False, "the gold is only compared as a string")
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
    r"""Clean an answer and remove boxes and a lead such as `The answer is`."""
    text = text[:_MAX_CHARACTERS]
    if "boxed" in text:
        boxes = [box for box in find_boxes(text)[0] if box.strip()]
        text = (boxes[-1] if len(set(boxes)) == 1 else ", ".join(boxes)) if boxes else text
    return _APPROXIMATELY.sub(r"\1", without_lead(clean(text)))


def _currency(text: str) -> str:
    """Return the unit of an amount's currency sign, which cleaning removes; empty for £ or without a sign."""
    sign = re.match(r"\s*(?:\\\$|\$(?=[\d.,]+\s*$)|[€£])", text)
    return {"€": "euro", "£": ""}.get(sign.group().strip(), "dollar") if sign else ""


def _without_gold_unit(prediction: str, unit: str) -> str:
    plain = without_text_commands(prediction)
    for ending in (unit, unit + "s", unit.removesuffix("s")):
        if ending and plain.endswith(ending) and re.search(r"\d", plain.removesuffix(ending)):
            return plain.removesuffix(ending).strip()
    return prediction


def compare_special_forms(pair: Pair, compare: Compare) -> Match | None:
    """Compare numbers in a base, times, ratios, option letters, words and lists with an ellipsis; None: undecided."""
    match = _compare_bases(pair) or _compare_times(pair) or _compare_options(pair) or _compare_number_word(pair)
    if match is not None:
        return match
    if any(is_text(text) for text in pair.texts):
        return _compare_texts(pair, compare)
    return _compare_meanings(pair) or _compare_dots(pair)


def _compare_bases(pair: Pair) -> Match | None:
    if not any(_BASE.fullmatch(text) for text in pair.texts):
        return None
    gold, prediction = (_digits_and_base(text) for text in pair.texts)
    if gold and prediction:
        return Match(gold == prediction, "digits and base")
    values = [node for text in pair.texts if not _BASE.fullmatch(text) and (node := read_formula(text))]
    is_value = len(values) == 1 and not symbols(values[0])
    return Match(False, "digits with a base vs. a value") if is_value else None


def _digits_and_base(text: str) -> tuple[str, str] | None:
    match = _BASE.fullmatch(text)
    if match is None:
        return (re.sub("[ ,]", "", text), "10") if re.fullmatch(r"[0-9A-Z ,]+", text) else None
    digits, base = match.groups()
    base = _BASE_WORDS.get(base, base)
    return (re.sub("[ ,]", "", digits), base) if base.isdigit() else None


def _compare_times(pair: Pair) -> Match | None:
    """Compare times of day, or ratios."""
    plain = [without_text_commands(text).replace("~", " ") for text in pair.texts]
    times = [_TIME.fullmatch(re.sub(r"\s+", " ", text)) for text in plain]
    if times[0] and times[1]:
        clocks = [(int(t[1]), t[2] or "00", t[3].lower().replace(".", "").replace(" ", "")) for t in times if t]
        is_same_half = clocks[0][2] == clocks[1][2] or not clocks[0][2] or not clocks[1][2]
        return Match(clocks[0][:2] == clocks[1][:2] and is_same_half, "times")
    if ":" not in pair.gold and ":" not in pair.prediction:
        return None
    if any(time and time[3] for time in times):
        return Match(False, "a time")
    return _compare_ratios(pair, has_time=any(times))


def _compare_ratios(pair: Pair, has_time: bool) -> Match | None:
    if not all(_RATIO.fullmatch(text) or read_formula(text) for text in pair.texts):
        return None
    if "{" in pair.gold and "|" in pair.gold:
        return None
    sides = []
    for text in pair.texts:
        terms = [read_formula(term.strip()) for term in text.split(":")]
        values = [constant_value(term) if term else None for term in terms]
        if any(value is None or value == 0 for value in values):
            return None
        sides.append([inexact(value) for value in values])
    gold, prediction = sides
    if len(gold) == 1 or len(prediction) == 1:
        quotient, other = (side[0] if len(side) == 1 else side[0] / side[1] for side in sides)
        is_pair = all(len(side) <= 2 for side in sides) and not has_time
        return Match(is_pair and bool(abs(quotient - other) <= abs(quotient) * ROUNDING_TOLERANCE), "ratios")
    return Match(len(gold) == len(prediction) and _is_proportional(gold, prediction), "ratios")


def _is_proportional(gold: list[Value], prediction: list[Value]) -> bool:
    products = [(a * prediction[0], b * gold[0]) for a, b in zip(gold, prediction, strict=True)]
    return all(bool(abs(left - right) <= abs(left) * ROUNDING_TOLERANCE) for left, right in products)


def _compare_options(pair: Pair) -> Match | None:
    gold, prediction = (_option_letters(text) for text in pair.texts)
    if gold and prediction and max(len(gold), len(prediction)) > 1:
        return Match(gold == prediction, "option letters")
    if option := _OPTION.fullmatch(without_text_commands(pair.gold).strip()):
        letter = chosen_letter(pair.prediction, ())
        if letter:
            return Match(letter == (option[1] or option[2]), "option letters")
    return None


def _option_letters(text: str) -> str:
    """Return the letters of `A, C`, `(A) and (C)` or `AC` in order, or an empty string."""
    plain = re.sub(r"[(),;\s]|\band\b|&", "", without_text_commands(text))
    is_list = bool(re.fullmatch(r"[A-H]{1,8}", plain)) and len(set(plain)) == len(plain)
    return "".join(sorted(plain)) if is_list else ""


def _compare_number_word(pair: Pair) -> Match | None:
    digits = digits_of_word(pair.prediction)
    if digits is None or not read_number(pair.gold):
        return None
    return Match(squeezed(without_unit(pair.gold)) == digits, "a number in words")


def _compare_texts(pair: Pair, compare: Compare) -> Match | None:
    if is_same_words(pair, compare):
        return Match(True, "words")
    return None if _is_formula_beside_words(pair) else Match(False, "words")


def _compare_meanings(pair: Pair) -> Match | None:
    gold, prediction = (meaning(text) for text in pair.texts)
    return Match(True, "words") if gold and gold == prediction else None


def _is_formula_beside_words(pair: Pair) -> bool:
    """Return whether the words are part of a list, a set or an equation that later comparisons can read."""
    if any(meaning(text) == "reals" for text in pair.texts) and all(read_set(text) for text in pair.texts):
        return True
    gold, prediction = (shape_of(text) for text in pair.texts)
    words = [part for part in prediction.parts if is_text(part) and not re.search(r"\d", part)] if prediction else []
    if isinstance(gold, ListShape) and prediction and not words:
        return True
    if not is_text(pair.gold) and any(looks_like_a_set(text) for text in pair.texts) and read_set(pair.prediction):
        return True
    relation = read_relation(pair.prediction)
    return relation.signs == ("=",) and is_text(relation.operands[0]) and not is_text(relation.operands[1])


def _compare_dots(pair: Pair) -> Match | None:
    """Compare lists with an ellipsis as strings, because the omitted elements are not defined."""
    if not any(_DOTS.search(text) for text in pair.texts):
        return None
    gold, prediction = (_with_plain_dots(text) for text in pair.texts)
    is_equal = True if gold == prediction else False if _DOTS.search(pair.gold) else None
    return Match(is_equal, "only compared as a string")


def _with_plain_dots(text: str) -> str:
    return re.sub(r"\\[lcv]?dots[cbmio]?(?![a-z])|\.\.\.", "…", squeezed(text))
