"""Numbers that can be read exactly, without any symbolic library."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from grading.reading.units import without_unit

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
    """Significant digits, where it was written as a decimal with a point."""
    places: int = 0
    """Digits after that point."""


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
    """Read `0.333…` as 1/3 and `3.14159…` as a decimal that goes on."""
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


def same_number(gold: Number, prediction: Number, tolerance: float | None = None) -> bool:
    """Compare exactly, except for a stated tolerance and for decimals of a fraction that has no finite decimal.

    A missing percent sign is a dropped unit. An extra one is a dropped unit too (gold `5`, answer `5%`), or the share
    it says (gold `0.35`, answer `35%`) where the gold can be a share at all, so `500%` is not 5.
    """
    wanted, given = gold.value, prediction.value
    if tolerance is not None and abs(wanted - given) <= Fraction(str(tolerance)):
        return True
    if wanted == given or _rounds_to(wanted, prediction) or _rounds_to(given, gold):
        return True
    if gold.percent and not prediction.percent:
        return given * 100 == wanted
    return prediction.percent and not gold.percent and abs(wanted) <= 1 and given == wanted * 100


def _rounds_to(wanted: Fraction, given: Number) -> bool:
    """Whether a decimal is the rounding or truncation of a fraction without a finite decimal."""
    return not _is_finite_decimal(wanted) and rounds_to_value(wanted, given)


def rounds_to_value(value: Any, given: Number) -> bool:
    """Whether a decimal of enough digits is the rounding or truncation of a value, a Fraction or mpmath's number."""
    digits = given.decimal_digits
    if digits is None or given.percent or digits < ENOUGH_DIGITS - (given.places > ENOUGH_DIGITS):
        return False
    if isinstance(value, Fraction):
        return not _is_finite_decimal(value) and abs(value - given.value) < Fraction(1, 10**given.places)
    return bool(abs(value * 10**given.places - given.value.numerator * 10**given.places / given.value.denominator) < 1)


def _is_finite_decimal(value: Fraction) -> bool:
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1
