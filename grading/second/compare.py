"""Whether two answers are the same in the eyes of the second grader: True, False, or None where it cannot tell."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from grading.second.formula import MAX_CHARACTERS, Unreadable, read_expression, symbolic

RELATIVE_ERROR = 1e-6
"""Between an irrational gold and a decimal."""
_EXACT_ERROR = 1e-15
_POINTS = (Fraction(731, 1000), Fraction(1913, 1000), Fraction(3307, 1000))
"""Positive places where expressions with letters are compared; each letter gets its own multiple."""

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
_OPENERS, _CLOSERS = "([{⦃", ")]}⦄"
_FAILURES = (ArithmeticError, AttributeError, LookupError, NotImplementedError, RecursionError, TypeError, ValueError)
"""What reading or comparing raises on values that make no sense together; Unreadable is a ValueError."""


@dataclass(frozen=True, slots=True)
class Decision:
    """True, False, or None for «cannot tell», and why."""

    is_equal: bool | None
    reason: str


def compare(gold: str, answer: str, tolerance: float | None = None) -> Decision:
    """Compare an answer with the gold."""
    if len(answer) > MAX_CHARACTERS or len(gold) > MAX_CHARACTERS:
        return Decision(None, f"longer than {MAX_CHARACTERS} characters")
    wanted, given = normal_form(gold), normal_form(answer)
    if _squeezed(wanted) == _squeezed(given):
        return Decision(True, "same normal form")
    exact = _rationals(wanted, given, tolerance)
    if exact is not None:
        return exact
    if _is_words(wanted) or _is_words(given):
        return Decision(wanted.casefold().split() == given.casefold().split(), "other words")
    try:
        return Decision(_same(wanted, given, tolerance), "compared as formulas")
    except _FAILURES as error:
        return Decision(None, f"not read: {str(error)[:80] or type(error).__name__}")


def normal_form(text: str) -> str:
    """One notation for one thing: ASCII mathematics, no sizing, spacing commands or text commands."""
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


def _rationals(wanted: str, given: str, tolerance: float | None) -> Decision | None:
    """Decide exactly where both are plain numbers; a percent sign is read as a unit or as hundredths."""
    numbers = [_RATIONAL.fullmatch(re.sub(r"^[a-zA-Z] ?= ?|\s|\^\\circ", "", text)) for text in (wanted, given)]
    if numbers[0] is None or numbers[1] is None:
        return None
    if any(len(match.group()) > 60 for match in numbers if match) or any(
        m and m[3] and int(m[3]) == 0 for m in numbers
    ):
        return None
    values = [Fraction(m[1] + m[2]) / Fraction(m[3] or 1) for m in numbers if m]
    error = abs(values[0] - values[1])
    is_close = error == 0 or (tolerance is not None and error <= Fraction(str(tolerance)))
    is_share = bool(numbers[1][4]) and not numbers[0][4] and values[1] == 100 * values[0] and abs(values[0]) <= 1
    is_share = is_share or (bool(numbers[0][4]) and not numbers[1][4] and values[0] == 100 * values[1])
    if is_close or is_share:
        return Decision(True, "same number")
    if "." in given and not _is_finite(values[0].denominator) and error <= abs(values[0]) * Fraction(1, 10**6):
        return Decision(True, "a rounded number")
    return Decision(False, f"{values[1]} is not {values[0]}")


def _is_finite(denominator: int) -> bool:
    """Whether a fraction with this denominator has a finite decimal, which is then not to be rounded."""
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1


def _same(wanted: str, given: str, tolerance: float | None) -> bool:
    """Compare structures, then expressions. Raises Unreadable and what sympy raises."""
    ours, theirs = _parts(wanted, ",;"), _parts(given, ",;")
    if len(ours) > 1 or len(theirs) > 1:
        return _same_unordered(_opened(ours), _opened(theirs), tolerance)
    if r"\pm" in wanted or r"\pm" in given:
        return _same_unordered(_opened([wanted]), _opened([given]), tolerance)
    unions = wanted.split(r"\cup"), given.split(r"\cup")
    if len(unions[0]) > 1 or len(unions[1]) > 1:
        return _same_unordered(*unions, tolerance)
    if _RELATION.search(wanted) or _RELATION.search(given):
        return _same_relation(wanted, given, tolerance)
    if "=" in wanted or "=" in given:
        return _same_equation(wanted, given, tolerance)
    groups = _group(wanted), _group(given)
    if groups[0] or groups[1]:
        return _same_group(groups, wanted, given, tolerance)
    return _same_expression(_expression(wanted), _expression(given), given, tolerance)


def _same_unordered(ours: list[str], theirs: list[str], tolerance: float | None) -> bool:
    if len(ours) != len(theirs):
        return False
    rest = list(theirs)
    for one in ours:
        match = next((i for i, other in enumerate(rest) if _same_or_equal(one.strip(), other.strip(), tolerance)), None)
        if match is None:
            return False
        del rest[match]
    return True


def _same_or_equal(wanted: str, given: str, tolerance: float | None) -> bool:
    if _squeezed(wanted) == _squeezed(given):
        return True
    exact = _rationals(wanted, given, tolerance)
    if exact is not None and exact.is_equal is not None:
        return exact.is_equal
    return _same(wanted, given, tolerance)


def _opened(parts: list[str]) -> list[str]:
    r"""Replace each `a \pm b` by its two values, and a set by its elements where it stands alone."""
    if len(parts) == 1 and (group := _group(parts[0].strip())) and group[0] == "⦃⦄":
        parts = group[1]
    return [part.replace(r"\pm", sign) for part in parts for sign in (("+", "-") if r"\pm" in part else ("+",))]


def _same_group(
    groups: tuple[tuple[str, list[str]] | None, ...], wanted: str, given: str, tolerance: float | None
) -> bool:
    ours, theirs = groups
    if ours is None or theirs is None or ours[0] != theirs[0] or len(ours[1]) != len(theirs[1]):
        if ours is not None and theirs is not None:
            return False
        raise Unreadable(f"{wanted[:30]} beside {given[:30]}")
    if ours[0] == "⦃⦄":
        return _same_unordered(_opened(ours[1]), _opened(theirs[1]), tolerance)
    pairs = zip(ours[1], theirs[1], strict=True)
    return all(_same_or_equal(one.strip(), other.strip(), tolerance) for one, other in pairs)


def _same_relation(wanted: str, given: str, tolerance: float | None) -> bool:
    chains = [_RELATION.split(text) for text in (wanted, given)]
    if len(chains[0]) != len(chains[1]):
        raise Unreadable("an inequality beside another form")
    signs = [[_RELATIONS.get(sign, sign) for sign in chain[1::2]] for chain in chains]
    sides = [[side.strip() for side in chain[0::2]] for chain in chains]
    turned = [_MIRRORED[sign] for sign in reversed(signs[1])], list(reversed(sides[1]))
    return any(
        signs[0] == order and all(_same_or_equal(a, b, tolerance) for a, b in zip(sides[0], places, strict=True))
        for order, places in ((signs[1], sides[1]), turned)
    )


def _same_equation(wanted: str, given: str, tolerance: float | None) -> bool:
    sides = [[side.strip() for side in text.split("=")] for text in (wanted, given)]
    if max(map(len, sides)) > 2:
        raise Unreadable("a chain of equations")
    named = [len(pair) == 2 and re.fullmatch(r"\\?[a-zA-Z]+(?:_\w)?(?:\(\w\))?", pair[0]) is not None for pair in sides]
    if len(sides[0]) != len(sides[1]):
        if not (named[0] or named[1]):
            raise Unreadable("an equation beside a value")
        return _same_or_equal(sides[0][-1], sides[1][-1], tolerance)
    if all(named) and _squeezed(sides[0][0]) == _squeezed(sides[1][0]):
        return _same_or_equal(sides[0][1], sides[1][1], tolerance)
    ours, theirs = (_expression(left) - _expression(right) for left, right in sides)
    if theirs == 0 or ours.free_symbols != theirs.free_symbols or not ours.free_symbols:
        return False
    ratios = [_at(ours, point) / _at(theirs, point) for point in _POINTS]
    return all(abs(a - b) <= 1e-12 * abs(a) for a, b in pairwise(ratios))


def _same_expression(ours: Any, theirs: Any, given: str, tolerance: float | None) -> bool:
    if ours == theirs:
        return True
    if ours.free_symbols != theirs.free_symbols and symbolic().expand(ours - theirs).free_symbols:
        return False
    if ours.is_infinite or theirs.is_infinite:
        return False
    if ours.is_Rational and theirs.is_Rational and tolerance is None and ("." not in given or _is_finite(int(ours.q))):
        return False
    allowed = RELATIVE_ERROR if re.search(r"\.\d", given) and not ours.free_symbols else _EXACT_ERROR
    for point in _POINTS:
        one, other = _at(ours, point), _at(theirs, point)
        error = abs(one - other)
        if error > allowed * max(abs(one), abs(other), 1e-30) and not (tolerance is not None and error <= tolerance):
            return False
        if not ours.free_symbols:
            break
    return True


def _at(expression: Any, point: Fraction) -> complex:
    """The value with every letter set to its own number. Raises Unreadable where there is none."""
    sympy = symbolic()
    letters = sorted(expression.free_symbols, key=str)
    places = {s: sympy.Rational(point.numerator, point.denominator) * (i + 2) / 2 for i, s in enumerate(letters)}
    value = complex(expression.subs(places).evalf(30))
    if value != value or abs(value) == float("inf"):
        raise Unreadable("no finite value")
    return value


def _expression(text: str) -> Any:
    """An expression, read again without a unit at its end where it is not read with it."""
    try:
        return read_expression(text)
    except Unreadable:
        head = _TRAILING_WORDS.sub("", text)
        if head == text or not head:
            raise
        return read_expression(head)


def _parts(text: str, separators: str) -> list[str]:
    """Split at separators outside of brackets, and at «and» and «or»."""
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
    """Brackets and elements where one pair encloses the whole text and separates elements; a set may have one."""
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
