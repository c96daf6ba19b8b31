r"""Units at the end of an answer: dropped where one side has none, compared where both name a known one.

Lengths, times, masses and money are known by name; any other word after a number (`12 apples`) is dropped. Nothing is
converted: `5 cm` and `0.05 m` are different answers, as `5 cm` and `5 m` are.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
    "km/h": "kmh kph", "mi/h": "mph", "N": "newton", "J": "joule", "W": "watt", "V": "volt",
}  # fmt: skip
_CANONICAL = {alias: name for name, aliases in _NAMES.items() for alias in (name, *aliases.split())}


@lru_cache(maxsize=2048)
def split_unit(text: str) -> tuple[str, str]:
    r"""Return an answer without the one unit at its end, and that unit (`5 cm`, `5\text{ cm}^2`, `90^\circ`)."""
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
    """Return an answer without the one unit at its end."""
    return split_unit(text)[0]


def known_unit(unit: str) -> str | None:
    """Return the canonical name of a known unit with its powers (`cm^2` for `square centimetres`), else None."""
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
    return None not in names and names[0] != names[1]
