r"""Units at the end of an answer, and numbers that can be read exactly without a symbolic library.

Known units measure length, time, mass, money and a few other quantities; any other word after a number (`12 apples`) is
removed. A unit is removed if the other side has none, and compared if both sides have a known one. Units are not
converted: `5 cm` and `0.05 m` are different answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from grading.reading import Match, Pair
from grading.reading.evaluate import Value, constant_value
from grading.reading.formula import MAX_EXPONENT, contains, read_formula

_NOT_UNITS = (
    "pi|sqrt|cbrt|sin|cos|tan|cot|sec|csc|log|ln|exp|mod|over|choose|times|plus|minus|and|or|to|factorial|squared|cubed|"
    "halves|thirds?|quarters?|fourths?|fifths?|sixths?|eighths?|tenths?|hundredths?|thousandths?|more|less|modulo|"
    "hundred|thousand|million|billion|trillion|dozen|percent|half|infinity|infty|base|dots|ldots|cdots|theta|alpha|beta|"
    "gamma|lambda|omega|sinh|cosh|tanh|arcsin|arccos|arctan"
)
_SHORT = "cm|mm|km|kg|mg|ml|mL|hr|hrs|ft|in|lb|lbs|oz|mph|yd|mi|sec|min|km/h|m/s|cm/s|ft/s|units?"
_POWER = r"(?:\s?\^\s?(?:\d|\{\s?\d\s?\})|\s?\^\{\s?\\text\{\s?\d\s?\}\s?\})?"
_TEXT = r"\\(?:text(?:rm|bf|it|normal)?|mbox|mathrm|rm|hbox|operatorname)\s?\{(?:[^{}]|\{[^{}]{0,9}\}){0,80}\}" + _POWER
_PLAIN = (
    rf"(?:\s?(?:sq|cu)\.? |\s?(?:square|cubic) )?(?!\s?(?:{_NOT_UNITS})\b)"
    rf"(?:\s[a-z]{{3,20}}|(?<![\\a-zA-Z_])[a-z]{{4,20}}|\s?(?<![\\a-zA-Z_^])(?:{_SHORT}))"
    rf"{_POWER}(?:/[a-z]{{1,10}})?(?: (?:per |a )?[a-z]{{2,20}}){{0,3}}{_POWER}"
)
_UNIT = re.compile(
    rf"\s?(?:\^\s?\\circ\s?(?:[CFK]|{_TEXT})?|(?:{_TEXT})(?:\s?(?:/|\\cdot)?\s?{_TEXT}){{0,3}}|{_PLAIN}"
    rf"|(?<=\d) [mgshlL]{_POWER})$"
)
_NO_UNIT_TEXT = re.compile(
    rf"\\\w+\s?\{{\s*(?:(?:and|or|i|e|if|when|for|base|mod|{_NOT_UNITS})\b|[0-9().,]+|(?![JNVW])[A-Z]\s*\}})"
)
_MATHS_TEXT = re.compile(
    r"\\(?:mathrm|text|rm|operatorname)\s?\{\s*(?:[eid]|sin|cos|tan|ln|log|exp|two|ten|eight)\s*\}"
)

_NAMES = {
    "mm": "millimeter millimetre", "cm": "centimeter centimetre", "m": "meter metre", "km": "kilometer kilometre",
    "in": "inch inche", "ft": "foot feet", "yd": "yard", "mi": "mile", "mg": "milligram",
    "g": "gram gm", "kg": "kilogram",
    "lb": "pound lbs", "oz": "ounce", "s": "second sec", "min": "minute", "h": "hour hr hrs", "day": "", "week": "",
    "month": "", "year": "yr", "ml": "milliliter millilitre mL", "l": "liter litre L", "gal": "gallon",
    "dollar": "", "cent": "", "euro": "", "deg": "degree ^\\circ", "rad": "radian", "am": "", "pm": "",
    "km/h": "kmh kph", "mi/h": "mph", "N": "newton", "J": "joule", "W": "watt", "V": "volt", "unit": "",
}  # fmt: skip
_CANONICAL = {alias: name for name, aliases in _NAMES.items() for alias in (name, *aliases.split())}


@lru_cache(maxsize=2048)
def split_unit(text: str) -> tuple[str, str]:
    r"""Return an answer without the unit at its end, and the unit (`5 cm`, `5\text{ cm}^2`, `90^\circ`)."""
    match = _UNIT.search(text, max(0, len(text) - 120))
    if match is None or _NO_UNIT_TEXT.match(match.group().strip()) or _MATHS_TEXT.match(match.group().strip()):
        return text, ""
    head = text[: match.start()].rstrip()
    # The rest must be a value: it ends in a digit, or a closing bracket or letter of an expression with a digit.
    if not head or head[-1] in "+-*/^_=({," or not re.search(r"\d\W*$|\d.*[})a-z]$|\\frac|\\pi$|\\sqrt|^[a-z]$", head):
        return text, ""
    if re.fullmatch(r"[a-z]", head) and not match.group().strip().startswith(("\\", "^")):
        return text, ""
    head = re.sub(r"\\times$|\\cdot$", "", head).rstrip()
    return head, match.group().strip()


def without_unit(text: str) -> str:
    """Return an answer without the unit at its end."""
    return split_unit(text)[0]


def known_unit(unit: str) -> str | None:
    """Return the canonical name of a known unit with its powers (`cm^2` for `square centimetres`), or None."""
    plain = re.sub(
        r"\\(?:text(?:rm|bf|it|normal)?|mbox|mathrm|rm|hbox)|\\cdot|[{}~\s.]+", " ", unit.replace("^", " ^ ")
    ).strip()
    if plain in ("^ \\circ", "^\\circ"):
        return "deg"
    plain = re.sub(r"\b([ap]) ?m\b(?=$)", r"\1m", plain)
    plain = re.sub(r"\s*\^\s*(-?\d)(?!\d)", r"^\1", plain)
    plain = re.sub(r"(?:square|sq) (\w+)", r"\1^2", plain)
    plain = re.sub(r"(?:cubic|cu) (\w+)", r"\1^3", plain)
    plain = re.sub(r" squared\b", "^2", re.sub(r" cubed\b", "^3", plain))
    whole = _canonical(plain)
    powers: dict[str, int] = {}
    for index, side in enumerate(re.split(r"\s?/\s?| per ", whole or plain)):
        for factor in side.split():
            name, _, power = factor.partition("^")
            known = _canonical(name)
            if known is None:
                return None
            powers[known] = powers.get(known, 0) + (-1 if index else 1) * int(power or 1)
    top = [name + (f"^{power}" if power > 1 else "") for name, power in powers.items() if power > 0]
    bottom = [name + (f"^{-power}" if power < -1 else "") for name, power in powers.items() if power < 0]
    return "/".join([" ".join(top), *bottom]) if top or bottom else None


def _canonical(name: str) -> str | None:
    name = name.strip()
    for form in (name, name.lower(), name.lower().removesuffix("s"), name.lower().removesuffix("es")):
        if form in _CANONICAL:
            return _CANONICAL[form]
    return None


def units_differ(gold: str, prediction: str) -> bool:
    """Return whether both units are known and differ."""
    if not gold or not prediction:
        return False
    names = known_unit(gold), known_unit(prediction)
    if None in names or len({re.match("unit", name or "") is None for name in names}) > 1:
        return False  # `units` and `square units` agree with any other unit, but not with each other
    return names[0] != names[1]


MAX_DIGITS = 400
"""Maximum number of consecutive digits that are read as a number."""
ENOUGH_DIGITS = 6
"""Minimum number of significant digits for a rounded decimal to represent a fraction that is not a finite decimal."""

_UNSIGNED = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?: \d{3})+|\d+(?:\.\d*)?|\.\d+)"
_DECIMAL = re.compile(_UNSIGNED)
_SCIENTIFIC = re.compile(
    rf"({_UNSIGNED})(?:[eE]([+-]?\d{{1,4}})|\s?(?:\\times|\\cdot|\*|x)\s?10\^(?:\{{\s?(-?\d{{1,4}})\s?\}}|(-?\d{{1,4}})))"
)
_DOTS = re.compile(r"(\d{0,9}\.\d{1,40})\s?\\[lc]?dots")
_PERIOD = re.compile(r"(\d*)\.(\d*?)(\d{1,6}?)\3{2,}")
_LARGE_NUMBERS = {"hundred": 100, "thousand": 1_000, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_LARGE = re.compile(r"(?<=[\d }])\s?(?:\\text\s?\{\s?)?(hundred|thousand|million|billion|trillion)\s?\}?$")


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
            digits = match.group(1).replace(",", "").replace(" ", "").rstrip(".")
            return Number(Fraction(digits) * Fraction(10) ** exponent)
    node = read_formula(text)
    if node is None or contains(node, lambda part: part.kind not in ("number", "/", "-")):
        return None
    value = constant_value(node)
    return None if value is None else Number(value)


def _with_dots(digits: str) -> Number | None:
    """Read `0.333…` as 1/3 and `3.14159…` as the decimal before the dots."""
    if match := _PERIOD.fullmatch(digits):
        whole, fixed, period = match.groups()
        value = Fraction(int(whole + fixed or 0)) + Fraction(int(period), 10 ** len(period) - 1)
        return Number(value / 10 ** len(fixed))
    return _unsigned(digits)


def compare_numbers(pair: Pair) -> Match | None:
    """Compare two answers that can both be read as exact numbers; otherwise return None."""
    gold = read_number(pair.gold)
    prediction = read_number(pair.prediction) if gold is not None else None
    if gold is None or prediction is None:
        return None
    if units_differ(split_unit(pair.gold)[1], split_unit(pair.prediction)[1]):
        return Match(False, "different units")
    return Match(is_same_number(gold, prediction, pair.tolerance), "exact numbers")


def is_same_number(gold: Number, prediction: Number, tolerance: float | None = None) -> bool:
    """Compare exactly, except for a given tolerance and for rounded values that are not finite decimals.

    A percent sign on only one side is a unit that the other omits (`5` and `5%`), or marks a share (`0.35` and `35%`).
    If only the answer has the sign, it marks a share only for golds of at most 1, so `500%` is not 5.
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


def rounds_to_value(value: Value, decimal: Number) -> bool:
    """Return whether a decimal with enough digits rounds or truncates a value that is not a finite decimal."""
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
