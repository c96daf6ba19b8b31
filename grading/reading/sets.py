r"""Sets of real numbers in every notation: intervals, unions, inequalities, set-builders, `\mathbb{R}\setminus\{2\}`.

Membership is tested at all end points of both sets, at one point between neighboring end points, and at one point
beyond the outermost end point on each side. Sets that agree at all these points are equal. Only sets with numbers as
end points are read; for other sets, the result is None.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cmp_to_key, lru_cache, reduce
from itertools import pairwise

from grading.reading import Match, Pair
from grading.reading.evaluate import Value, constant_value, inexact, is_real, is_same_value
from grading.reading.formula import read_formula
from grading.reading.notation import Relation, is_equation, read_relation, split_top
from grading.reading.phrases import meaning

_BUILDER = re.compile(r"\\\{(.*)\\\}", re.DOTALL)
_SUCH_THAT = re.compile(r"\\mid(?![a-zA-Z])|\\vert(?![a-zA-Z])|\||:|\\colon(?![a-zA-Z])")
_REALS = re.compile(r"\\math(?:bb|bf|rm)\s?\{?\s?R\s?\}?|\\R(?![a-z])|ℝ")
_IS_SET = re.compile(
    r"\\(?:cup|cap|setminus|backslash|infty|in|le|ge|leq|geq|leqslant|geqslant|ne|neq|lt|gt|notin|mathbb|bigcup)(?![a-zA-Z])"
    r"|[<>]|!=|\\emptyset|\\varnothing|\\not"
)
_MODULUS = re.compile(r"\|\s?([a-z])\s?([+-][^|]+)?\|")
_SYMBOL = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?(?:\([a-z]\))?'?")


@dataclass(slots=True)
class RealSet:
    """A set of real numbers: a membership test, and the numbers at which membership can change."""

    has: Callable[[Value], bool]
    ends: list[Value]
    variables: set[str] = field(default_factory=set)
    """Names of free variables in an inequality."""


_EVERYTHING = RealSet(lambda x: True, [])


def looks_like_a_set(text: str) -> bool:
    """Return whether a text contains set or inequality notation."""
    return bool(_IS_SET.search(text))


def compare_sets(pair: Pair) -> Match | None:
    """Compare two answers that are sets of real numbers, at least one in set notation; otherwise None."""
    if not any(looks_like_a_set(text) for text in pair.texts) or any(is_equation(text) for text in pair.texts):
        return None
    gold = read_set(pair.gold)
    prediction = read_set(pair.prediction)
    if gold is None or prediction is None:
        others = [text for text, known in zip(pair.texts, (gold, prediction), strict=True) if known is None]
        is_union = len(others) == 1 and any(r"\cup" in text for text in pair.texts)
        return Match(False, "a set vs. a value") if is_union and read_formula(others[0]) else None
    return Match(is_same_set(gold, prediction), "sets of real numbers")


def first_spelling(text: str) -> str:
    r"""Return `x<2` if a set is written twice, `x<2 : (-\infty,2)`; any other text unchanged."""
    spellings = split_top(text, ":") if ":" in text else []
    sets = [read_set(spelling) for spelling in spellings]
    if len(sets) == 2 and sets[0] and sets[1] and is_same_set(sets[0], sets[1]):
        return spellings[0].strip()
    return text


@lru_cache(maxsize=1024)
def read_set(text: str) -> RealSet | None:
    """Return the set of real numbers in a cleaned text, or None."""
    text = text.strip()
    for word, combine in (("or", _union), ("and", _intersection)):
        parts = split_top(text, rf"\\(?:text|mbox|mathrm)\s?\{{\s*,?\s*{word}\s*\}}|(?<=[\s\d)])\s*{word}(?=[\s\\(])|"
                          + (r"\\(?:vee|lor)(?![a-z])" if word == "or" else r"\\(?:wedge|land)(?![a-z])"))  # fmt: skip
        if len(parts) > 1:
            return _combined([part.strip(" ,;") for part in parts], combine)
    united = split_top(text, r"\\cup(?![a-z])")
    if len(united) > 1 and all(read_relation(part).signs for part in united):
        return _combined(united, _union)
    commas = split_top(text, r"[,;]")
    if len(commas) > 1 and any(read_relation(part).signs for part in commas):
        return _listed_conditions(commas)
    return _read_condition(text)


def _listed_conditions(parts: list[str]) -> RealSet | None:
    """Read conditions separated by commas.

    All exclusions (`!=`) apply. Two inequalities are a range unless that range is empty. Other conditions are
    alternatives.
    """
    relations = [read_relation(part) for part in parts]
    first = relations[0]
    if first.signs == ("!=",):
        conditions = [
            part if relation.signs else f"{first.operands[0]} \\ne {part}"
            for part, relation in zip(parts, relations, strict=True)
        ]
        return _combined(conditions, _intersection)
    if first.signs and first.signs[-1] in ("in", "notin"):
        return None
    if any(_read_condition(part) is None for part in parts):
        return None
    if len(parts) == 2 and all(len(relation.signs) == 1 for relation in relations):
        range_between = _combined(parts, _intersection)
        is_empty = range_between is None or not any(range_between.has(x) for x in _probes(range_between.ends))
        return _combined(parts, _union) if is_empty else range_between
    return _combined(parts, _union)


def _combined(parts: list[str], combine: Callable[[RealSet, RealSet], RealSet]) -> RealSet | None:
    sets = [members for part in parts if (members := read_set(part)) is not None]
    return reduce(combine, sets) if len(sets) == len(parts) else None


def _union(left: RealSet, right: RealSet) -> RealSet:
    return RealSet(lambda x: left.has(x) or right.has(x), left.ends + right.ends, left.variables | right.variables)


def _intersection(left: RealSet, right: RealSet) -> RealSet:
    return RealSet(lambda x: left.has(x) and right.has(x), left.ends + right.ends, left.variables | right.variables)


def _difference(left: RealSet, right: RealSet) -> RealSet:
    return RealSet(lambda x: left.has(x) and not right.has(x), left.ends + right.ends, left.variables | right.variables)


_TESTS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "!=": operator.ne, "=": operator.eq}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPERATIONS = (
    (r"\\(?:big)?cup(?![a-z])|(?<=[)\]}])\s?U\s?(?=[(\[\\{])", _union),
    (r"\\cap(?![a-z])", _intersection),
    (r"\\(?:setminus|backslash|smallsetminus)(?![a-z])|(?<=[R}])\s?-\s?(?=\\\{)|\\\\(?=\s?\\\{)", _difference),
)


def _read_condition(text: str) -> RealSet | None:
    relation = read_relation(text)
    operands, signs = relation.operands, relation.signs
    if not signs:
        return _read_plain_set(text)
    if len(signs) == 1 and signs[0] in ("in", "notin") and _SYMBOL.fullmatch(operands[0]):
        inner = read_set(operands[1])
        if inner is None:
            return None
        members = inner if signs[0] == "in" else _difference(_EVERYTHING, inner)
        return RealSet(members.has, members.ends, {operands[0]})
    if len(signs) == 1 and (inequality := _without_modulus(operands[0], operands[1], signs[0])):
        return read_set(inequality)
    if len(signs) > 1 and signs[-1] == "in" and _REALS.fullmatch(operands[-1]):
        relation = Relation(operands[:-1], signs[:-1])
    return _read_inequality(relation)


def _without_modulus(left: str, right: str, sign: str) -> str | None:
    r"""Return `|x - a| < b` as `a - b < x < a + b`, and `|x - a| > b` as two rays; otherwise None."""
    if "|" in right:
        left, right, sign = right, left, _MIRRORED.get(sign, "")
    modulus = _MODULUS.fullmatch(left)
    if modulus is None or sign not in _MIRRORED:
        return None
    name, shift = modulus.group(1), modulus.group(2) or "0"
    low, high = f"-({right})-({shift})", f"{right}-({shift})"
    if sign.startswith("<"):
        return f"{low}{sign}{name}{sign}{high}"
    return rf"{name}{_MIRRORED[sign]}{low} \text{{ or }} {name}{sign}{high}"


def _read_inequality(relation: Relation) -> RealSet | None:
    """Read `a < x <= b` and `x != a`."""
    operands, signs = relation.operands, relation.signs
    names = [n for n, operand in enumerate(operands) if _SYMBOL.fullmatch(operand) and _bound(operand) is None]
    if len(names) != 1 or len(operands) > 3 or not set(signs) <= {"<", "<=", ">", ">=", "!=", "="}:
        return None
    variable = names[0]
    result = _EVERYTHING
    for n, sign in enumerate(signs):
        if variable not in (n, n + 1):
            return None
        bound = _bound(operands[n + 1 if variable == n else n])
        if bound is None:
            return None
        result = _intersection(result, _ray(_MIRRORED.get(sign, sign) if variable == n + 1 else sign, bound))
    return RealSet(result.has, result.ends, {operands[variable]})


def _ray(sign: str, bound: Value | float) -> RealSet:
    test = _TESTS[sign]
    return RealSet(lambda x: test(_order(x, bound), 0), [] if isinstance(bound, float) else [bound])


def _order(left: Value, right: Value | float) -> int:
    if isinstance(right, float):
        return -1 if right > 0 else 1
    if is_same_value(left, right):
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


def _read_plain_set(text: str) -> RealSet | None:
    for pattern, combine in _OPERATIONS:
        parts = split_top(text, pattern)
        if len(parts) > 1:
            return _combined(parts, combine)
    if _REALS.fullmatch(text) or meaning(text) == "reals":
        return _EVERYTHING
    if meaning(text) == "none":
        return RealSet(lambda x: False, [])
    if builder := _BUILDER.fullmatch(text):
        return _read_builder(builder.group(1))
    return _read_interval(text)


def _read_builder(inner: str) -> RealSet | None:
    bar = _SUCH_THAT.search(inner)
    if bar:
        head, condition = inner[: bar.start()].strip(), inner[bar.end() :].strip()
        domain = read_relation(head)
        if domain.signs not in ((), ("in",)) or (domain.signs and not _REALS.fullmatch(domain.operands[1])):
            return None
        parts = split_top(condition, r"[,;]|\\(?:text|mbox)\s?\{\s*,?\s*and\s*\}")
        conditions = [part for part in parts if not _is_in_reals(part)]
        if not conditions:
            return _EVERYTHING
        are_whole = all(read_relation(part).signs for part in conditions)  # `x \ne 1, 2` also excludes 2
        members = _combined(conditions, _intersection) if are_whole else read_set(", ".join(conditions))
        return RealSet(members.has, members.ends) if members and len(members.variables) <= 1 else None
    values = [_bound(part) for part in split_top(inner, r"[,;]")]
    if any(value is None or isinstance(value, float) for value in values):
        return None
    return RealSet(lambda x: any(_order(x, value) == 0 for value in values), values)


def _is_in_reals(condition: str) -> bool:
    relation = read_relation(condition)
    return relation.signs == ("in",) and bool(_REALS.fullmatch(relation.operands[1]))


def _read_interval(text: str) -> RealSet | None:
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
    """Return every end point once, a point between any two neighbors, and one beyond the outermost on each side."""
    ordered: list[Value] = []
    for end in sorted(ends, key=cmp_to_key(_order)):
        if not ordered or _order(ordered[-1], end) != 0:
            ordered.append(end)
    if not ordered:
        return [Fraction(0)]
    between = [(inexact(a) + inexact(b)) / 2 for a, b in pairwise(ordered)]
    return [*ordered, *between, ordered[0] - 1, ordered[-1] + 1]


def is_same_set(gold: RealSet, prediction: RealSet) -> bool:
    """Return whether both sets contain the same numbers, and inequalities use the same variable."""
    if gold.variables and prediction.variables and gold.variables != prediction.variables:
        return False
    return all(gold.has(x) == prediction.has(x) for x in _probes(gold.ends + prediction.ends))
