"""Comparison of an answer with a gold by the second grader: equal, different, or undecided."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from grading.second.formula import MAX_CHARACTERS, Unreadable, read_expression, symbolic

RELATIVE_ERROR = 1e-6
"""Allowed between an irrational gold and a decimal."""
_EXACT_ERROR = 1e-15
_POINTS = (Fraction(731, 1000), Fraction(1913, 1000), Fraction(3307, 1000))
"""Positive points at which expressions with letters are compared; each letter gets a multiple of its own."""

_WRITTEN = {
    "−": "-", "–": "-", "×": r"\times ", "·": r"\cdot ", "÷": "/", "π": r"\pi ", "√": r"\sqrt ", "∞": r"\infty ",
    "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "±": r"\pm ", "∪": r"\cup ", "°": r"^\circ ",
}  # fmt: skip
_TEXT = re.compile(r"\\(?:text|mbox|mathrm|mathbf|textbf|textrm|operatorname)\s*\{([^{}]*)\}")
_TEXT_UNIT = re.compile(r"(?<=[\d})])\s*\\(?:text|mbox|mathrm)\s*\{[^{}]*\}(?:\^\{?\d\}?)?$")
_PLAIN_UNIT = re.compile(r"(?<=\d) (?!pi$|and |or )[a-z]{2,20}(?: per [a-z]{1,20})?(?:\^\{?[23]\}?)?\s*$")
_DROPPED = re.compile(
    r"\\(?:left|right|big|Big|bigg|Bigg|displaystyle|quad|qquad)(?![a-zA-Z])|\\[!,;: ]|~|\\?\$|\\[()]|\*\*$|^\*\*"
)
_AND = re.compile(r"\s+(?:and|or)\s+")
_THOUSANDS = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_RATIONAL = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:/(\d+))?(\\?%)?")
_RELATION = re.compile(r"(<|>|\\leq?(?![a-zA-Z])|\\geq?(?![a-zA-Z])|\\neq?(?![a-zA-Z]))")
_RELATIONS = {"\\leq": "<=", "\\le": "<=", "\\geq": ">=", "\\ge": ">=", "\\neq": "!=", "\\ne": "!="}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}
_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]*")
_KNOWN_WORDS = re.compile(r"(?:pi|sin|cos|tan|log|ln|exp|sqrt)+")
_TRAILING_WORDS = re.compile(r"(?<=[\d})])\s*(?:\\?%|(?:[a-zA-Z]{2,20}\s?){1,3}(?:\^\{?[23]\}?)?)$")
_NAME = re.compile(r"\\?[a-zA-Z]+(?:_\w)?(?:\(\w\))?")
_OPENERS, _CLOSERS = "([{⦃", ")]}⦄"
_FAILURES = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RecursionError, TypeError, ValueError)
"""Exceptions from reading or comparing values that make no sense together; Unreadable is a ValueError."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one comparison."""

    is_equal: bool | None
    """None: undecided."""
    reason: str


def compare(gold: str, prediction: str, tolerance: float | None = None) -> Decision:
    """Compare an answer with the gold; `tolerance` is the absolute error that the benchmark allows."""
    if len(prediction) > MAX_CHARACTERS or len(gold) > MAX_CHARACTERS:
        return Decision(None, f"longer than {MAX_CHARACTERS} characters")
    gold, prediction = normal_form(gold), normal_form(prediction)
    if _squeezed(gold) == _squeezed(prediction):
        return Decision(True, "same normal form")
    exact = _rationals(gold, prediction, tolerance)
    if exact is not None:
        return exact
    if _is_words(gold) or _is_words(prediction):
        return Decision(gold.casefold().split() == prediction.casefold().split(), "other words")
    try:
        return Decision(_same(gold, prediction, tolerance), "compared as formulas")
    except _FAILURES as error:
        return Decision(None, f"not read: {str(error)[:80] or type(error).__name__}")


def normal_form(text: str) -> str:
    """Return the text with one notation for one thing: ASCII mathematics without sizing, spacing and text commands."""
    text = "".join(_WRITTEN.get(character, character) for character in text)
    text = unicodedata.normalize("NFKC", text)
    text = "".join(c for c in text if unicodedata.category(c)[0] != "C" or c == " ")
    text = _TEXT.sub(r" \1 ", _TEXT_UNIT.sub("", _DROPPED.sub("", text).strip(" .")))
    text = _PLAIN_UNIT.sub("", text)
    text = re.sub(r"\\[dtc]frac", r"\\frac", text).replace(r"\{", "⦃").replace(r"\}", "⦄")
    text = text.replace(r"\lbrace", "⦃").replace(r"\rbrace", "⦄").replace(r"\%", "%").replace(r"^{\circ}", r"^\circ")
    text = re.sub(r"\s+", " ", text).strip().rstrip(".").strip()
    return text.replace(",", "") if _THOUSANDS.fullmatch(text) else text


def _squeezed(text: str) -> str:
    return text.replace(" ", "").replace("{", "").replace("}", "") if "frac" not in text else text.replace(" ", "")


def _is_words(text: str) -> bool:
    letters = text.replace(" ", "")
    is_phrase = _WORDS.fullmatch(text) is not None and re.search("[A-Za-z]{3}", text) is not None
    return is_phrase and _KNOWN_WORDS.fullmatch(letters) is None


def _rationals(gold: str, prediction: str, tolerance: float | None) -> Decision | None:
    """Decide exactly where both are plain numbers; a percent sign is read as a unit or as hundredths."""
    numbers = [_RATIONAL.fullmatch(re.sub(r"^[a-zA-Z] ?= ?|\s|\^\\circ", "", text)) for text in (gold, prediction)]
    if numbers[0] is None or numbers[1] is None:
        return None
    if any(match and (len(match.group()) > 60 or (match[3] and int(match[3]) == 0)) for match in numbers):
        return None
    values = [Fraction(m[1] + m[2]) / Fraction(m[3] or 1) for m in numbers if m]
    error = abs(values[0] - values[1])
    is_close = error == 0 or (tolerance is not None and error <= Fraction(str(tolerance)))
    is_share = bool(numbers[1][4]) and not numbers[0][4] and values[1] == 100 * values[0] and abs(values[0]) <= 1
    is_share = is_share or (bool(numbers[0][4]) and not numbers[1][4] and values[0] == 100 * values[1])
    if is_close or is_share:
        return Decision(True, "same number")
    if "." in prediction and not _is_finite(values[0].denominator) and error <= abs(values[0]) * Fraction(1, 10**6):
        return Decision(True, "a rounded number")
    return Decision(False, f"{values[1]} is not {values[0]}")


def _is_finite(denominator: int) -> bool:
    """Return whether a fraction with this denominator has a finite decimal, which must then be written in full."""
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _same(gold: str, prediction: str, tolerance: float | None) -> bool:
    """Compare structures, then expressions. Raises Unreadable and the exceptions of sympy."""
    golds, predictions = _parts(gold, ",;"), _parts(prediction, ",;")
    if len(golds) > 1 or len(predictions) > 1:
        return _same_unordered(_opened(golds), _opened(predictions), tolerance)
    if r"\pm" in gold or r"\pm" in prediction:
        return _same_unordered(_opened([gold]), _opened([prediction]), tolerance)
    unions = gold.split(r"\cup"), prediction.split(r"\cup")
    if len(unions[0]) > 1 or len(unions[1]) > 1:
        return _same_unordered(*unions, tolerance)
    if _RELATION.search(gold) or _RELATION.search(prediction):
        return _same_relation(gold, prediction, tolerance)
    if "=" in gold or "=" in prediction:
        return _same_equation(gold, prediction, tolerance)
    groups = _group(gold), _group(prediction)
    if groups[0] or groups[1]:
        return _same_group(groups, gold, prediction, tolerance)
    return _same_expression(_expression(gold), _expression(prediction), prediction, tolerance)


def _same_unordered(golds: list[str], predictions: list[str], tolerance: float | None) -> bool:
    if len(golds) != len(predictions):
        return False
    unmatched = [prediction.strip() for prediction in predictions]
    for gold in golds:
        matching = (i for i, part in enumerate(unmatched) if _same_or_equal(gold.strip(), part, tolerance))
        index = next(matching, None)
        if index is None:
            return False
        del unmatched[index]
    return True


def _same_or_equal(gold: str, prediction: str, tolerance: float | None) -> bool:
    if _squeezed(gold) == _squeezed(prediction):
        return True
    exact = _rationals(gold, prediction, tolerance)
    if exact is not None and exact.is_equal is not None:
        return exact.is_equal
    return _same(gold, prediction, tolerance)


def _opened(parts: list[str]) -> list[str]:
    r"""Replace each `a \pm b` by its two values, and a set by its elements where it stands alone."""
    if len(parts) == 1 and (group := _group(parts[0].strip())) and group[0] == "⦃⦄":
        parts = group[1]
    return [part.replace(r"\pm", sign) for part in parts for sign in (("+", "-") if r"\pm" in part else ("+",))]


def _same_group(
    groups: tuple[tuple[str, list[str]] | None, ...], gold: str, prediction: str, tolerance: float | None
) -> bool:
    gold_group, group = groups
    if gold_group is None or group is None:
        raise Unreadable(f"{gold[:30]} beside {prediction[:30]}")
    (gold_brackets, golds), (brackets, predictions) = gold_group, group
    if gold_brackets != brackets or len(golds) != len(predictions):
        return False
    if brackets == "⦃⦄":
        return _same_unordered(_opened(golds), _opened(predictions), tolerance)
    pairs = zip(golds, predictions, strict=True)
    return all(_same_or_equal(gold.strip(), part.strip(), tolerance) for gold, part in pairs)


def _same_relation(gold: str, prediction: str, tolerance: float | None) -> bool:
    chains = [_RELATION.split(text) for text in (gold, prediction)]
    if len(chains[0]) != len(chains[1]):
        raise Unreadable("an inequality beside another form")
    signs = [[_RELATIONS.get(sign, sign) for sign in chain[1::2]] for chain in chains]
    sides = [[side.strip() for side in chain[0::2]] for chain in chains]
    mirrored = [_MIRRORED[sign] for sign in reversed(signs[1])], list(reversed(sides[1]))
    return any(
        signs[0] == other_signs and all(_same_or_equal(*pair, tolerance) for pair in zip(sides[0], others, strict=True))
        for other_signs, others in ((signs[1], sides[1]), mirrored)
    )


def _same_equation(gold: str, prediction: str, tolerance: float | None) -> bool:
    sides = [[side.strip() for side in text.split("=")] for text in (gold, prediction)]
    if max(map(len, sides)) > 2:
        raise Unreadable("a chain of equations")
    is_named = [len(pair) == 2 and _NAME.fullmatch(pair[0]) is not None for pair in sides]
    if len(sides[0]) != len(sides[1]):
        if not any(is_named):
            raise Unreadable("an equation beside a value")
        return _same_or_equal(sides[0][-1], sides[1][-1], tolerance)
    if all(is_named) and _squeezed(sides[0][0]) == _squeezed(sides[1][0]):
        return _same_or_equal(sides[0][1], sides[1][1], tolerance)
    gold_difference, difference = (_expression(left) - _expression(right) for left, right in sides)
    letters = gold_difference.free_symbols
    if difference == 0 or letters != difference.free_symbols or not letters:
        return False
    ratios = [_at(gold_difference, point) / _at(difference, point) for point in _POINTS]
    return all(abs(a - b) <= 1e-12 * abs(a) for a, b in pairwise(ratios))


def _same_expression(gold: Any, prediction: Any, text: str, tolerance: float | None) -> bool:
    """Compare two expressions at fixed points; `text` is the prediction, which may be a rounded decimal."""
    if gold == prediction:
        return True
    if gold.free_symbols != prediction.free_symbols and symbolic().expand(gold - prediction).free_symbols:
        return False
    if gold.is_infinite or prediction.is_infinite:
        return False
    are_rational = gold.is_Rational and prediction.is_Rational
    if are_rational and tolerance is None and ("." not in text or _is_finite(int(gold.q))):
        return False
    allowed = RELATIVE_ERROR if re.search(r"\.\d", text) and not gold.free_symbols else _EXACT_ERROR
    for point in _POINTS if gold.free_symbols else _POINTS[:1]:
        value, other = _at(gold, point), _at(prediction, point)
        error = abs(value - other)
        is_within_tolerance = tolerance is not None and error <= tolerance
        if error > allowed * max(abs(value), abs(other), 1e-30) and not is_within_tolerance:
            return False
    return True


def _at(expression: Any, point: Fraction) -> complex:
    """Return the value with every letter set to a number of its own, or raise Unreadable where it is not finite."""
    sympy = symbolic()
    letters = sorted(expression.free_symbols, key=str)
    places = {s: sympy.Rational(point.numerator, point.denominator) * (i + 2) / 2 for i, s in enumerate(letters)}
    value = complex(expression.subs(places).evalf(30))
    if value != value or abs(value) == float("inf"):
        raise Unreadable("no finite value")
    return value


def _expression(text: str) -> Any:
    """Read an expression, if necessary without a unit at its end."""
    try:
        return read_expression(text)
    except Unreadable:
        head = _TRAILING_WORDS.sub("", text)
        if head == text or not head:
            raise
        return read_expression(head)


def _parts(text: str, separators: str) -> list[str]:
    """Split at separators outside brackets, and at the words `and` and `or`."""
    text = _AND.sub(" ; ", text)
    parts, current, depth = [], "", 0
    for character in text:
        depth += (character in _OPENERS) - (character in _CLOSERS)
        if character in separators and depth == 0:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part.strip() for part in (*parts, current) if part.strip()]


def _group(text: str) -> tuple[str, list[str]] | None:
    """Return brackets and elements where one pair encloses several elements, or one element of a set; else None."""
    if len(text) < 3 or text[0] not in "([⦃" or text[-1] not in ")]⦄":
        return None
    depth = 0
    for position, character in enumerate(text):
        depth += (character in _OPENERS) - (character in _CLOSERS)
        if depth == 0 and position < len(text) - 1:
            return None
    parts = _parts(text[1:-1], ",;")
    brackets = text[0] + text[-1]
    return (brackets, parts) if len(parts) > 1 or brackets == "⦃⦄" else None
