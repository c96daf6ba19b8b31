"""Numbers that can be read exactly, without any symbolic library."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction

MAX_DIGITS = 400
"""Longest run of digits that is read as a number."""
MAX_EXPONENT = 400
"""Largest power of ten in scientific notation."""
ENOUGH_DIGITS = 6
"""Significant digits from which a rounded decimal stands for a fraction that has no finite decimal."""

_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+|\d+(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(_UNSIGNED)
_SCIENTIFIC = re.compile(
    rf"({_UNSIGNED})(?:[eE]([+-]?\d{{1,4}})|\s?(?:\\times|\\cdot|\*|x)\s?10\^(?:\{{\s?(-?\d{{1,4}})\s?\}}|(-?\d{{1,4}})))"
)
_GROUP = r"(?:\{\s?(-?[\d,.]+)\s?\}|\s?(\d))"
_FRAC = re.compile(rf"(\d*)\s?\\frac{_GROUP}{_GROUP}")
_SLASH = re.compile(r"(?:(\d+) )?([\d,.]+)\s?/\s?(-?[\d,.]+)")
_NOT_UNITS = (
    "pi|sqrt|sin|cos|tan|cot|sec|csc|log|ln|exp|mod|over|choose|times|plus|minus|and|or|to|factorial|squared|cubed|"
    "hundred|thousand|million|billion|trillion|dozen|percent|half|infinity|base|dots|ldots|cdots"
)
_SHORT = "cm|mm|km|kg|mg|ml|hr|ft|in|am|pm|km/h|m/s"
_UNIT_TEXT = r"\\(?:text(?:rm)?|mbox|mathrm)\s?\{\s*[A-Za-z/. ]*(?:\^\{?\d\}?)?\s*\}"
_UNIT = re.compile(
    rf"\s?(?:\^\\circ\s?[CF]?|(?:{_UNIT_TEXT})(?:\s?\^\{{?\d\}}?|\s?²|\s?³)?"
    rf"|(?!\s?(?:{_NOT_UNITS})\b)(?:\s[a-z]{{3,20}}|(?<![\\a-zA-Z])[a-z]{{4,20}}|\s?(?<![\\a-zA-Z])(?:{_SHORT}))"
    r"(?: (?:per )?[a-z]{2,20}){0,2})$"
)


@dataclass(frozen=True, slots=True)
class Number:
    """One exact number as it was written."""

    value: Fraction
    percent: bool = False
    """Whether a percent sign followed; the value is the number before the sign."""
    decimal_digits: int | None = None
    """Significant digits, where it was written as a decimal with a point."""
    places: int = 0
    """Digits after that point."""


def without_unit(text: str) -> str:
    r"""Drop one unit at the end (`5 cm`, `5\text{ cm}^2`, `90^\circ`), where something with a digit is before it."""
    match = _UNIT.search(text[-120:])
    if match is None:
        return text
    head = text[: len(text) - (len(text[-120:]) - match.start())].rstrip()
    return head if re.search(r"\d\W*$|\d.*[})a-z]$", head) and head[-1] not in "+-*/^_=" else text


def read_number(text: str) -> Number | None:
    """Read a cleaned answer as one exact number, or return None; units and percent signs may follow it."""
    text = without_unit(text).strip()
    percent = text.endswith(("%", "percent"))
    text = text.removesuffix("percent").rstrip("% ")
    if re.search(rf"\d{{{MAX_DIGITS + 1}}}", text):
        return None
    sign = -1 if text.startswith("-") else 1
    text = text[1:].lstrip() if text[:1] in ("-", "+") else text
    number = _unsigned(text)
    return None if number is None else replace(number, value=sign * number.value, percent=percent)


def _unsigned(text: str) -> Number | None:
    if _DECIMAL.fullmatch(text):
        digits = text.replace(",", "").replace(" ", "")
        significant = len(digits.replace(".", "").lstrip("0")) if "." in digits else None
        places = len(digits.partition(".")[2])
        return Number(Fraction(digits.rstrip(".")), decimal_digits=significant, places=places)
    if match := _SCIENTIFIC.fullmatch(text):
        exponent = int(match.group(2) or match.group(3) or match.group(4))
        if abs(exponent) <= MAX_EXPONENT:
            return Number(_plain(match.group(1)) * Fraction(10) ** exponent)
    if match := _FRAC.fullmatch(text):
        whole, top, bottom = match.group(1), match.group(2) or match.group(3), match.group(4) or match.group(5)
        return _mixed(whole, top, bottom)
    if match := _SLASH.fullmatch(text):
        return _mixed(match.group(1) or "", match.group(2), match.group(3))
    return None


def _mixed(whole: str, top: str, bottom: str) -> Number | None:
    numerator, denominator = _signed(top), _signed(bottom)
    if numerator is None or denominator is None or denominator == 0 or (whole and numerator < 0):
        return None
    return Number(Fraction(int(whole or 0)) + numerator / denominator)


def _signed(text: str) -> Fraction | None:
    body = text.removeprefix("-")
    if not _DECIMAL.fullmatch(body):
        return None
    return -_plain(body) if text.startswith("-") else _plain(body)


def _plain(digits: str) -> Fraction:
    return Fraction(digits.replace(",", "").replace(" ", "").rstrip("."))


def same_number(gold: Number, prediction: Number, tolerance: float | None = None) -> bool:
    """Compare exactly, except for a stated tolerance and for decimals of a fraction that has no finite decimal.

    A missing percent sign is a dropped unit. An extra one is a dropped unit too (gold `5`, answer `5%`), or the share
    it says (gold `0.35`, answer `35%`) where the gold can be a share at all, so `500%` is not 5.
    """
    wanted, given = gold.value, prediction.value
    if tolerance is not None and abs(wanted - given) <= Fraction(str(tolerance)):
        return True
    if wanted == given or _rounds_to(wanted, prediction):
        return True
    if gold.percent and not prediction.percent:
        return given * 100 == wanted
    return prediction.percent and not gold.percent and abs(wanted) <= 1 and given == wanted * 100


def _rounds_to(wanted: Fraction, given: Number) -> bool:
    """Whether a decimal is the rounding or truncation of a fraction without a finite decimal."""
    digits = given.decimal_digits
    if digits is None or digits < ENOUGH_DIGITS or _is_finite_decimal(wanted):
        return False
    return abs(wanted - given.value) < Fraction(1, 10**given.places)


def _is_finite_decimal(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
