"""Forms with rules of their own: digits with a base, times and ratios, option letters, words, lists with dots."""

from __future__ import annotations

import re

from grading.extract import chosen_letter
from grading.reading.evaluate import Value, constant_value, inexact
from grading.reading.formula import read_formula, symbols
from grading.reading.lists import ListShape, shape_of
from grading.reading.notation import squeezed, without_text_commands
from grading.reading.pair import Compare, Match, Pair
from grading.reading.phrases import digits_of_word, is_same_words, is_text, meaning
from grading.reading.quantities import read_number, without_unit
from grading.reading.relations import read_relation
from grading.reading.sets import looks_like_a_set, read_set

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
_RELATIVE_ERROR = 1e-25


def compare_special_forms(pair: Pair, compare: Compare) -> Match | None:
    """Compare bases, times, ratios, option letters, words and lists with dots; None where neither side is one."""
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
    return Match(False, "digits with a base beside a value") if is_value else None


def _digits_and_base(text: str) -> tuple[str, str] | None:
    match = _BASE.fullmatch(text)
    if match is None:
        return (re.sub("[ ,]", "", text), "10") if re.fullmatch(r"[0-9A-Z ,]+", text) else None
    digits, base = match.groups()
    base = _BASE_WORDS.get(base, base)
    return (re.sub("[ ,]", "", digits), base) if base.isdigit() else None


def _compare_times(pair: Pair) -> Match | None:
    """Compare times of day, and else ratios."""
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
        return Match(is_pair and bool(abs(quotient - other) <= abs(quotient) * _RELATIVE_ERROR), "ratios")
    return Match(len(gold) == len(prediction) and _is_proportional(gold, prediction), "ratios")


def _is_proportional(gold: list[Value], prediction: list[Value]) -> bool:
    products = [(a * prediction[0], b * gold[0]) for a, b in zip(gold, prediction, strict=True)]
    return all(bool(abs(left - right) <= abs(left) * _RELATIVE_ERROR) for left, right in products)


def _compare_options(pair: Pair) -> Match | None:
    """Compare option letters, one or several."""
    gold, prediction = (_option_letters(text) for text in pair.texts)
    if gold and prediction and max(len(gold), len(prediction)) > 1:
        return Match(gold == prediction, "option letters")
    if option := _OPTION.fullmatch(without_text_commands(pair.gold).strip()):
        letter = chosen_letter(pair.prediction, ())
        if letter:
            return Match(letter == (option[1] or option[2]), "option letters")
    return None


def _option_letters(text: str) -> str:
    """Return the letters of `A, C`, `(A) and (C)` or `AC` in order, or an empty text."""
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
    """Return whether the words are part of a list, a set or an equation that other readers can compare."""
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
    """Compare lists that go on with dots as strings: what the dots stand for is not determined."""
    if not any(_DOTS.search(text) for text in pair.texts):
        return None
    gold, prediction = (_with_plain_dots(text) for text in pair.texts)
    is_equal = True if gold == prediction else False if _DOTS.search(pair.gold) else None
    return Match(is_equal, "compared as a string only")


def _with_plain_dots(text: str) -> str:
    return re.sub(r"\\[lcv]?dots[cbmio]?(?![a-z])|\.\.\.", "…", squeezed(text))
