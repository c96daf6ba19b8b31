"""Forms with rules of their own: digits with a base, times and ratios, option letters, words, lists with dots."""

from __future__ import annotations

import re

from grading.choice import chosen_letter
from grading.reading.clean import squeezed, without_text_commands
from grading.reading.evaluate import Value, constant_value, inexact
from grading.reading.formula import read_formula
from grading.reading.numbers import read_number
from grading.reading.sets import looks_like_a_set, read_set, relations
from grading.reading.structure import shape_of
from grading.reading.symbolic import Match
from grading.reading.units import without_unit
from grading.reading.words import digits_of_word, is_text, meaning, same_words

_BASE = re.compile(r"\(?([0-9A-Z][0-9A-Z ,.]*)\)?_\{?\s?(?:\\text\{\s?)?(?:base )?(\d{1,2}|[a-z]{3,10})\s?\}?\}?")
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9",
               "ten": "10", "twelve": "12", "sixteen": "16"}  # fmt: skip
_TIME = re.compile(r"(\d{1,2}):([0-5]\d)(?::[0-5]\d)?\s?((?:[ap]\.?\s?m\.?|noon|midnight|o'clock)?)", re.IGNORECASE)
_OPTION = re.compile(r"([A-K])|\(\s?([A-K])\s?\)")
_RATIO = re.compile(r"[^:]{1,60}(?::[^:]{1,60})+")
_UNDETERMINED = re.compile(r"\\[lcv]?dots|\.\.\.|…")


def special_form(gold: str, prediction: str) -> Match | None:
    """Settle bases, times, ratios, words and lists with dots; None leaves it to the other rungs."""
    if _BASE.fullmatch(gold) or _BASE.fullmatch(prediction):
        wanted, given = _digits_and_base(gold), _digits_and_base(prediction)
        if wanted and given:
            return Match(wanted == given, "digits and base")
    if ":" in gold or ":" in prediction:
        match = _time_or_ratio(gold, prediction)
        if match is not None:
            return match
    letters = [_option_letters(text) for text in (gold, prediction)]
    if letters[0] and letters[1] and max(map(len, letters)) > 1:
        return Match(letters[0] == letters[1], "option letters")
    if choice := _OPTION.fullmatch(without_text_commands(gold).strip()):
        letter = chosen_letter(prediction, ())
        if letter:
            return Match(letter == (choice[1] or choice[2]), "option letters")
    number = digits_of_word(prediction)
    if number is not None and read_number(gold):
        return Match(squeezed(without_unit(gold)) == number, "a number in words")
    gold_is_text = is_text(gold)
    if gold_is_text or is_text(prediction):
        return _text(gold, prediction)
    meanings = meaning(gold), meaning(prediction)
    if meanings[0] and meanings[0] == meanings[1]:
        return Match(True, "words")
    if _UNDETERMINED.search(gold) or _UNDETERMINED.search(prediction):
        same = _plain_dots(gold) == _plain_dots(prediction)
        return Match(True if same else False if _UNDETERMINED.search(gold) else None, "compared as a string only")
    return None


def _option_letters(text: str) -> str:
    """Return the letters of `A, C`, `(A) and (C)` or `AC` in order, or an empty text."""
    plain = re.sub(r"[(),;\s]|\band\b|&", "", without_text_commands(text))
    is_list = bool(re.fullmatch(r"[A-H]{1,8}", plain)) and len(set(plain)) == len(plain)
    return "".join(sorted(plain)) if is_list else ""


def _text(gold: str, prediction: str) -> Match | None:
    if same_words(gold, prediction):
        return Match(True, "words")
    meanings = meaning(gold), meaning(prediction)
    if "reals" in meanings and (read_set(gold) and read_set(prediction)):
        return None
    shapes = shape_of(gold), shape_of(prediction)
    if (
        shapes[0]
        and shapes[1]
        and shapes[0].kind == "list"
        and not any(is_text(p) and not re.search(r"\d", p) for p in shapes[1].parts)
    ):
        return None
    if not is_text(gold) and (looks_like_a_set(gold) or looks_like_a_set(prediction)) and read_set(prediction):
        return None
    operands, signs = relations(prediction)
    if signs == ["="] and is_text(operands[0]) and not is_text(operands[1]):
        return None
    return Match(False, "words")


def _plain_dots(text: str) -> str:
    return re.sub(r"\\[lcv]?dots[cbmio]?(?![a-z])|\.\.\.", "…", squeezed(text))


def _digits_and_base(text: str) -> tuple[str, str] | None:
    match = _BASE.fullmatch(text)
    if match is None:
        return (re.sub("[ ,]", "", text), "10") if re.fullmatch(r"[0-9A-Z ,]+", text) else None
    digits, base = match.groups()
    named = _BASE_WORDS.get(base, base)
    return (re.sub("[ ,]", "", digits), named) if named.isdigit() else None


def _time_or_ratio(gold: str, prediction: str) -> Match | None:
    plain = [without_text_commands(text).replace("~", " ") for text in (gold, prediction)]
    times = [_TIME.fullmatch(re.sub(r"\s+", " ", text)) for text in plain]
    if times[0] and times[1]:
        clocks = [(int(t[1]), t[2], t[3].lower().replace(".", "").replace(" ", "")) for t in times if t]
        same_half = clocks[0][2] == clocks[1][2] or not clocks[0][2] or not clocks[1][2]
        return Match(clocks[0][:2] == clocks[1][:2] and same_half, "times")
    if any(time and time[3] for time in times):
        return Match(False, "a time")
    if not all(_RATIO.fullmatch(text) or read_formula(text) for text in (gold, prediction)) or (
        "{" in gold and "|" in gold
    ):
        return None
    terms = [[read_formula(term.strip()) for term in text.split(":")] for text in (gold, prediction)]
    values = [[constant_value(term) if term else None for term in side] for side in terms]
    if any(value is None or value == 0 for side in values for value in side):
        return None
    if len(values[0]) == 1 or len(values[1]) == 1:
        quotients = [side[0] if len(side) == 1 else side[0] / side[1] for side in map(_inexact_all, values)]
        is_pair = all(len(side) <= 2 for side in values) and not any(times)
        return Match(is_pair and bool(abs(quotients[0] - quotients[1]) <= abs(quotients[0]) * 1e-25), "ratios")
    if len(values[0]) != len(values[1]):
        return Match(False, "ratios")
    left, right = map(_inexact_all, values)
    same = all(abs(a * right[0] - b * left[0]) <= abs(a * right[0]) * 1e-25 for a, b in zip(left, right, strict=True))
    return Match(bool(same), "ratios")


def _inexact_all(values: list[Value]) -> list[Value]:
    return [inexact(value) for value in values]
