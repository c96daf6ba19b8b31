r"""Sets of real numbers in every notation: intervals, unions, inequalities, set-builders, `\mathbb{R}\setminus\{2\}`.

Two sets are the same where they contain the same of all their end points, of one point in every gap between them and of
one beyond each end. Only sets with numbers as end points are read; the rest is None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cmp_to_key, lru_cache
from itertools import pairwise

from grading.reading.clean import split_top
from grading.reading.evaluate import Value, constant_value, inexact, is_real, same_value
from grading.reading.formula import read_formula
from grading.reading.words import meaning

_RELATION = re.compile(
    r"\\(?:leqslant|geqslant|leq|geq|le|ge|neq|ne|lt|gt|notin|in)(?![a-zA-Z])|\\not\s?=|\\not\s?\\in(?![a-zA-Z])|"
    r"<=|>=|!=|=<|=>|<|>|="
)
_SIGNS = {"leqslant": "<=", "geqslant": ">=", "leq": "<=", "geq": ">=", "le": "<=", "ge": ">=", "lt": "<", "gt": ">",
          "neq": "!=", "ne": "!=", "not=": "!=", "not\\in": "notin", "=<": "<=", "=>": ">="}  # fmt: skip
_BUILDER = re.compile(r"\\\{(.*)\\\}", re.DOTALL)
_SUCH_THAT = re.compile(r"\\mid(?![a-zA-Z])|\\vert(?![a-zA-Z])|\||:|\\colon(?![a-zA-Z])")
_REALS = re.compile(r"\\math(?:bb|bf|rm)\s?\{?\s?R\s?\}?|\\R(?![a-z])|ℝ")
_IS_SET = re.compile(
    r"\\(?:cup|cap|setminus|backslash|infty|in|le|ge|leq|geq|leqslant|geqslant|ne|neq|lt|gt|notin|mathbb|bigcup)(?![a-zA-Z])"
    r"|[<>]|!=|\\emptyset|\\varnothing|\\not"
)
_SYMBOL = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([a-z]\))?'?")


@dataclass(slots=True)
class RealSet:
    """A set as a test of membership, with the numbers at which membership can change."""

    has: Callable[[Value], bool]
    ends: list[Value]
    variables: set[str] = field(default_factory=set)
    """Names of free variables that an inequality was written in."""


def looks_like_a_set(text: str) -> bool:
    """Whether a text has a mark of a set or an inequality."""
    return bool(_IS_SET.search(text))


def relations(text: str) -> tuple[list[str], list[str]]:
    """Split a chain at its top-level relation signs: its operands and, one fewer, its signs (`<=`, `=`, `in` …)."""
    operands, signs, start, depth, at = [], [], 0, 0, 0
    while at < len(text):
        character = text[at]
        if character == "\\" and text[at + 1 : at + 2] in ("{", "}"):
            at += 1
            character = text[at]
        depth += (character in "([{") - (character in ")]}")
        match = _RELATION.match(text, at) if depth == 0 and character in "\\<>=!" else None
        if match:
            operands.append(text[start:at].strip())
            sign = match.group().removeprefix("\\").replace(" ", "")
            signs.append(_SIGNS.get(sign, sign))
            at = start = match.end()
        else:
            at += 1 if character != "\\" or text[at + 1 : at + 2] in ("", "{", "}") else 2
    return [*operands, text[start:].strip()], signs


@lru_cache(maxsize=1024)
def read_set(text: str) -> RealSet | None:
    """Return the set of real numbers that a cleaned text denotes, or None."""
    text = text.strip()
    for word, combine in (("or", _union), ("and", _intersection)):
        parts = split_top(text, rf"\\(?:text|mbox|mathrm)\s?\{{\s*,?\s*{word}\s*\}}|(?<=[\s\d)])\s*{word}(?=[\s\\(])|"
                          + (r"\\(?:vee|lor)(?![a-z])" if word == "or" else r"\\(?:wedge|land)(?![a-z])"))  # fmt: skip
        if len(parts) > 1:
            return _combined([part.strip(" ,;") for part in parts], combine)
    united = split_top(text, r"\\cup(?![a-z])")
    if len(united) > 1 and all(relations(part)[1] for part in united):
        return _combined(united, _union)
    commas = split_top(text, r"[,;]")
    if len(commas) > 1 and any(relations(part)[1] for part in commas):
        return _listed_conditions(commas)
    return _of_relation(text)


def _listed_conditions(parts: list[str]) -> RealSet | None:
    """Conditions after each other: exclusions hold together, ranges are alternatives."""
    operands, signs = relations(parts[0])
    if signs == ["!="]:
        return _combined([p if relations(p)[1] else f"{operands[0]} \\ne {p}" for p in parts], _intersection)
    if signs and signs[-1] in ("in", "notin"):
        return None
    is_bounded_twice = len(parts) == 2 and all(len(relations(p)[1]) == 1 for p in parts)
    sets = [_of_relation(part) for part in parts]
    if any(found is None for found in sets):
        return None
    if is_bounded_twice:
        both = _combined(parts, _intersection)
        return both if both and any(both.has(x) for x in _probes(both.ends)) else _combined(parts, _union)
    return _combined(parts, _union)


def _combined(parts: list[str], combine: Callable[[RealSet, RealSet], RealSet]) -> RealSet | None:
    sets = [read_set(part) for part in parts]
    result: RealSet | None = None
    for found in sets:
        if found is None:
            return None
        result = found if result is None else combine(result, found)
    return result


def _union(left: RealSet, right: RealSet) -> RealSet:
    return RealSet(lambda x: left.has(x) or right.has(x), left.ends + right.ends, left.variables | right.variables)


def _intersection(left: RealSet, right: RealSet) -> RealSet:
    return RealSet(lambda x: left.has(x) and right.has(x), left.ends + right.ends, left.variables | right.variables)


def _difference(left: RealSet, right: RealSet) -> RealSet:
    return RealSet(lambda x: left.has(x) and not right.has(x), left.ends + right.ends, left.variables | right.variables)


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATIONS = (
    (r"\\(?:big)?cup(?![a-z])|(?<=[)\]}])\s?U\s?(?=[(\[\\{])", _union),
    (r"\\cap(?![a-z])", _intersection),
    (
        r"\\(?:setminus|backslash|smallsetminus)(?![a-z])|(?<=[R}])\s?-\s?(?=\\\{)|\\\\(?=\s?\\\{)",
        _difference,
    ),
)


def _of_relation(text: str) -> RealSet | None:
    operands, signs = relations(text)
    if not signs:
        return _of_set(text)
    if len(signs) == 1 and signs[0] in ("in", "notin") and _SYMBOL.fullmatch(operands[0]):
        inner = read_set(operands[1])
        if inner is None:
            return None
        found = inner if signs[0] == "in" else _difference(_everything(), inner)
        return RealSet(found.has, found.ends, {operands[0]})
    if len(signs) > 1 and signs[-1] == "in" and _REALS.fullmatch(operands[-1]):
        operands, signs = operands[:-1], signs[:-1]
    return _of_chain(operands, signs)


def _of_chain(operands: list[str], signs: list[str]) -> RealSet | None:
    """Read `a < x <= b` and `x != a`; all signs point one way."""
    names = [n for n, operand in enumerate(operands) if _SYMBOL.fullmatch(operand) and _bound(operand) is None]
    if len(names) != 1 or len(operands) > 3 or not set(signs) <= {"<", "<=", ">", ">=", "!=", "="}:
        return None
    variable = names[0]
    result = _everything()
    for n, sign in enumerate(signs):
        if variable not in (n, n + 1):
            return None
        bound = _bound(operands[n + 1 if variable == n else n])
        if bound is None:
            return None
        if variable == n + 1:
            result = _intersection(result, _ray(_TURNED.get(sign, sign), bound))
        else:
            result = _intersection(result, _ray(sign, bound))
    return RealSet(result.has, result.ends, {operands[variable]})


def _ray(sign: str, bound: Value | float) -> RealSet:
    tests: dict[str, Callable[[int], bool]] = {
        "<": lambda order: order < 0, "<=": lambda order: order <= 0, ">": lambda order: order > 0,
        ">=": lambda order: order >= 0, "!=": lambda order: order != 0, "=": lambda order: order == 0,
    }  # fmt: skip
    test = tests[sign]
    return RealSet(lambda x: test(_order(x, bound)), [] if isinstance(bound, float) else [bound])


def _order(left: Value, right: Value | float) -> int:
    if isinstance(right, float):
        return -1 if right > 0 else 1
    if same_value(left, right):
        return 0
    return -1 if inexact(left).real < inexact(right).real else 1


def _bound(text: str) -> Value | float | None:
    """Return an end point: a real number, or an infinite float."""
    node = read_formula(text.strip())
    if node is None:
        return None
    inner, sign = (node.operands[0], -1) if node.kind == "-" else (node, 1)
    if inner.kind == "symbol" and inner.name == "oo":
        return sign * float("inf")
    value: Value | None = constant_value(node)
    return value if value is not None and is_real(value) else None


def _everything() -> RealSet:
    return RealSet(lambda x: True, [])


def _of_set(text: str) -> RealSet | None:
    for pattern, combine in _OPERATIONS:
        parts = split_top(text, pattern)
        if len(parts) > 1:
            return _combined(parts, combine)
    if _REALS.fullmatch(text) or meaning(text) == "reals":
        return _everything()
    if meaning(text) == "none":
        return RealSet(lambda x: False, [])
    if builder := _BUILDER.fullmatch(text):
        return _of_builder(builder.group(1))
    return _of_interval(text)


def _of_builder(inner: str) -> RealSet | None:
    bar = _SUCH_THAT.search(inner)
    if bar:
        head, condition = inner[: bar.start()].strip(), inner[bar.end() :].strip()
        _, signs = relations(head)
        if signs not in ([], ["in"]) or (signs and not _REALS.fullmatch(relations(head)[0][1])):
            return None
        parts = split_top(condition, r"[,;]|\\(?:text|mbox)\s?\{\s*,?\s*and\s*\}")
        kept = [part for part in parts if not _says_real(part)]
        found = read_set(", ".join(kept)) if len(kept) != 2 else _combined(kept, _intersection)
        return RealSet(found.has, found.ends) if found and len(found.variables) <= 1 else None
    values = [_bound(part) for part in split_top(inner, r"[,;]")]
    if any(value is None or isinstance(value, float) for value in values):
        return None
    return RealSet(lambda x: any(_order(x, value) == 0 for value in values), values)


def _says_real(condition: str) -> bool:
    operands, signs = relations(condition)
    return signs == ["in"] and bool(_REALS.fullmatch(operands[1]))


def _of_interval(text: str) -> RealSet | None:
    if len(text) < 5 or text[0] not in "([" or text[-1] not in ")]":
        return None
    ends = [_bound(part) for part in split_top(text[1:-1], r"[,;]")]
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        return None
    low, high = ends
    low_is_infinite, high_is_infinite = isinstance(low, float), isinstance(high, float)
    if not (low_is_infinite or high_is_infinite) and _order(low, high) > 0:
        return None
    left = _ray(">=" if text[0] == "[" and not low_is_infinite else ">", low)
    return _intersection(left, _ray("<=" if text[-1] == "]" and not high_is_infinite else "<", high))


def _probes(ends: list[Value]) -> list[Value]:
    """Return every end point once, a point between each two, and one beyond each end."""
    ordered: list[Value] = []
    for end in sorted(ends, key=cmp_to_key(_order)):
        if not ordered or _order(ordered[-1], end) != 0:
            ordered.append(end)
    if not ordered:
        return [Fraction(0)]
    between = [(inexact(a) + inexact(b)) / 2 for a, b in pairwise(ordered)]
    return [*ordered, *between, ordered[0] - 1, ordered[-1] + 1]


def same_set(gold: RealSet, prediction: RealSet) -> bool:
    """Whether both contain the same numbers, and inequalities are in the same variable."""
    if gold.variables and prediction.variables and gold.variables != prediction.variables:
        return False
    return all(gold.has(x) == prediction.has(x) for x in _probes(gold.ends + prediction.ends))
