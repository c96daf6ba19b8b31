"""Numbers that can be read exactly, without a symbolic library."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from grading.reading.pair import Match, Pair
from grading.reading.units import split_unit, units_differ, without_unit

MAX_DIGITS = 400
"""Length of the longest run of digits that is read as a number."""
MAX_EXPONENT = 400
"""Largest power of ten in scientific notation."""
ENOUGH_DIGITS = 6
"""Significant digits from which a rounded decimal stands for a fraction that has no finite decimal."""

_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+|\d+(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(_UNSIGNED)
_SCIENTIFIC = re.compile(
    rf"({_UNSIGNED})(?:[eE]([+-]?\d{{1,4}})|\s?(?:\\times|\\cdot|\*|x)\s?10\^(?:\{{\s?(-?\d{{1,4}})\s?\}}|(-?\d{{1,4}})))"
)
_DOTS = re.compile(r"(\d{0,9}\.\d{1,40})\s?\\[lc]?dots")
_PERIOD = re.compile(r"(\d*)\.(\d*?)(\d{1,6}?)\3{2,}")
_LARGE_NUMBERS = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_LARGE = re.compile(r"(?<=[\d }])\s?(?:\\text\s?\{\s?)?(hundred|thousand|million|billion|trillion)\s?\}?$")
_GROUP = r"(?:\{\s?(-?[\d,.]+)\s?\}|\s?(\d))"
_FRAC = re.compile(rf"(\d*)\s?\\frac{_GROUP}{_GROUP}")
_SLASH = re.compile(r"(?:(\d+) )?([\d,.]+)\s?/\s?(-?[\d,.]+)")


@dataclass(frozen=True, slots=True)
class Number:
    """One exact number as it was written."""

    value: Fraction
    percent: bool = False
    """Whether a percent sign followed; the value is the number before the sign."""
    decimal_digits: int | None = None
    """Significant digits of a decimal with a point; None for other notations."""
    places: int = 0
    """Digits after the point of a decimal."""


def read_number(text: str) -> Number | None:
    """Read a cleaned answer as one exact number, or return None; units and percent signs may follow it."""
    text = without_unit(text).strip()
    percent = text.endswith(("%", "percent"))
    text = text.removesuffix("percent").rstrip("% ").removesuffix("\\").rstrip()
    if re.search(rf"\d{{{MAX_DIGITS + 1}}}", text):
        return None
    large = _LARGE.search(text)
    text = text[: large.start()].rstrip() if large else text
    sign = -1 if text.startswith("-") else 1
    text = text[1:].lstrip() if text[:1] in ("-", "+") else text
    number = _unsigned(text)
    if number is None:
        return None
    return replace(
        number, value=sign * number.value * (_LARGE_NUMBERS[large.group(1)] if large else 1), percent=percent
    )


def _unsigned(text: str) -> Number | None:
    if _DECIMAL.fullmatch(text):
        digits = text.replace(",", "").replace(" ", "")
        significant = len(digits.replace(".", "").lstrip("0")) if "." in digits else None
        places = len(digits.partition(".")[2])
        return Number(Fraction(digits.rstrip(".")), decimal_digits=significant, places=places)
    if match := _DOTS.fullmatch(text):
        return _with_dots(match.group(1))
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


def _with_dots(digits: str) -> Number | None:
    """Read `0.333…` as 1/3 and `3.14159…` as the decimal before the dots."""
    if match := _PERIOD.fullmatch(digits):
        whole, fixed, period = match.groups()
        value = Fraction(int(whole + fixed or 0)) + Fraction(int(period), 10 ** len(period) - 1)
        return Number(value / 10 ** len(fixed))
    return _unsigned(digits)


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


def compare_numbers(pair: Pair) -> Match | None:
    """Compare two answers that can both be read as exact numbers; else None."""
    gold = read_number(pair.gold)
    prediction = read_number(pair.prediction) if gold is not None else None
    if gold is None or prediction is None:
        return None
    if units_differ(split_unit(pair.gold)[1], split_unit(pair.prediction)[1]):
        return Match(False, "another unit")
    return Match(is_same_number(gold, prediction, pair.tolerance), "exact numbers")


def is_same_number(gold: Number, prediction: Number, tolerance: float | None = None) -> bool:
    """Compare exactly, except for a stated tolerance and for decimals of a fraction that has no finite decimal.

    A missing percent sign is a dropped unit. An extra one is a dropped unit too (gold `5`, answer `5%`), or a share
    (gold `0.35`, answer `35%`) where the gold can be a share at all, so `500%` is not 5.
    """
    if tolerance is not None and abs(gold.value - prediction.value) <= Fraction(str(tolerance)):
        return True
    if gold.value == prediction.value:
        return True
    if rounds_to_value(gold.value, prediction) or rounds_to_value(prediction.value, gold):
        return True
    if gold.percent and not prediction.percent:
        return prediction.value * 100 == gold.value
    is_share = prediction.percent and not gold.percent and abs(gold.value) <= 1
    return is_share and prediction.value == gold.value * 100


def rounds_to_value(value: Any, decimal: Number) -> bool:
    """Return whether a decimal of enough digits is the rounding or truncation of a value without a finite decimal.

    The value is a Fraction or a number of mpmath.
    """
    digits, scale = decimal.decimal_digits, 10**decimal.places
    if digits is None or decimal.percent or digits < ENOUGH_DIGITS - (decimal.places > ENOUGH_DIGITS):
        return False
    if isinstance(value, Fraction):
        return not _is_finite_decimal(value) and abs(value - decimal.value) < Fraction(1, scale)
    return bool(abs(value * scale - decimal.value.numerator * scale / decimal.value.denominator) < 1)


def _is_finite_decimal(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
