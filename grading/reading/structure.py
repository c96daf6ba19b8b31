r"""The shape of an answer: one value, a bare list, a tuple, a set, a matrix; and equations with what they are worth.

Only brackets, commas and relation signs are read here. The parts are compared by `grading.equivalence`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from grading.reading.clean import is_enclosed, split_list, split_top, squeezed
from grading.reading.evaluate import UndefinedError, Value, evaluate, points, same_value, symbols
from grading.reading.formula import Node, read_formula
from grading.reading.numbers import read_number
from grading.reading.sets import relations
from grading.reading.units import without_unit

_MATRIX = re.compile(
    r"\\?[\[({|]?\s?\\begin\{(?:[pbvBV]|small)?(?:matrix|array)\}(?:\{[lcr| ]*\})?"
    r"(.*?)\\end\{[a-zA-Z]*\}\s?\\?[\])}|]?",
    re.DOTALL,
)
_CASES = re.compile(r"\\begin\{(?:cases|array|aligned)\}(?:\{[lcr]\})?(.*?)\\end\{(?:cases|array|aligned)\}", re.DOTALL)
_ANGLE = re.compile(r"(?:\\langle|<)\s?(.*?)\s?(?:\\rangle|>)", re.DOTALL)
_TRANSPOSED = re.compile(r"(.*[)\]])\s?\^\s?\{?\s?(?:T|\\top|\\mathrm\s?\{T\}|\\intercal|\\prime)\s?\}?", re.DOTALL)
_POINT_NAME = re.compile(r"[A-Z](?:_\{?\w\}?)?'?\s?(?==?\s?\([^()]*,)=?\s?")
_NAME = re.compile(
    r"[^0-9_+\-*/^=<>]*(?:[_^](?:\w|\{\w{1,3}\})[^0-9_+\-*/^=<>]*)*"
    r"|\\?[A-Za-z]{1,20}(?:_\{?\w{1,3}\}?)?'{0,3}\s?\([^()=]*\)|[A-Za-z]_\{[^{}=]{1,40}\}"
)
_FUNCTION = re.compile(r"(\\?[A-Za-z]{1,10}(?:_\{?\w\}?)?(?:'{1,3}|\^\s?\{-1\})?)\s?\(\s?([A-Za-z])\s?\)")
_SUM_OF_NAMES = re.compile(
    r"(?:\\?[A-Za-z]{1,8}(?:_\{?\w{1,3}\}?)?|[A-Z]{2,3})(?:\s?[+\-]?\s?\\?[A-Za-z](?:_\{?\w{1,3}\}?)?)*"
)
MAX_PARTS = 400


@dataclass(frozen=True, slots=True)
class Shape:
    """A composite answer."""

    kind: str
    """`list`, `tuple`, `set` or `matrix`."""
    parts: tuple[str, ...]
    brackets: str = ""
    """`()`, `[]`, `(]` or `[)` of a tuple; `rows×columns` of a matrix."""


def shape_of(text: str) -> Shape | None:
    """Return the shape of a cleaned answer, or None where it is one value."""
    if (
        "," not in text
        and ";" not in text
        and "matrix" not in text
        and "array" not in text
        and " " not in text
        and "{" not in text
    ):
        return None
    if text[:1].isdigit() and read_number(text):
        return None
    if matrix := _MATRIX.fullmatch(text.strip()):
        lines: list[str] = re.split(r"\\\\|\\cr", matrix.group(1))
        rows = [line.split("&") for line in lines if line.strip()]
        if rows and len({len(row) for row in rows}) == 1:
            cells = tuple(cell.strip() for row in rows for cell in row)
            return Shape("matrix", cells, f"{len(rows)}×{len(rows[0])}")
    if cases := _CASES.fullmatch(text.strip()):
        parts = [line.strip(" ,.") for line in re.split(r"\\\\", cases.group(1)) if line.strip()]
        return Shape("list", tuple(parts)) if len(parts) > 1 and "&" not in text else None
    if transposed := _TRANSPOSED.fullmatch(text):
        inner = shape_of(transposed.group(1))
        return inner if inner and inner.kind == "tuple" else None
    if (angle := _ANGLE.fullmatch(text)) and "," in angle.group(1):
        return Shape("tuple", tuple(split_top(angle.group(1), ",")), "()")
    text = _POINT_NAME.sub("", text, count=1) if _POINT_NAME.match(text) else text
    if is_enclosed(text):
        if text.startswith(r"\{") and text.endswith(r"\}"):
            return Shape("set", tuple(part for part in split_list(text) if part))
        if text[0] in "([" and text[-1] in ")]":
            parts = split_top(text[1:-1], "[,;]")
            return Shape("tuple", tuple(parts), text[0] + text[-1]) if len(parts) > 1 else None
        if text[0] == "{" and text[-1] == "}":
            parts = split_list(text[1:-1])
            return Shape("set", tuple(parts)) if len(parts) > 1 else None
    parts = split_list(text)
    return Shape("list", tuple(parts)) if len(parts) > 1 else None


def opened(parts: list[str]) -> list[str]:
    r"""Replace `a \pm b` by its two values."""
    result: list[str] = []
    for part in parts:
        if re.search(r"\\pm(?![a-z])|\+/?-", part):
            for upper, lower in (("+", "-"), ("-", "+")):
                one = re.sub(r"\\pm(?![a-z])|\+/?-", upper, part)
                result.append(re.sub(r"\\mp(?![a-z])", lower, one))
        else:
            result.append(part)
    return result


def is_equation(text: str) -> bool:
    """Whether a top-level `=` stands in a text, and no other relation."""
    return "=" in text and set(relations(text)[1]) == {"="}


def without_name(text: str) -> str:
    r"""Drop `x =`, `f(x) =`, `x \in` in front of a value, and the left sides of a chain of equalities."""
    operands, signs = relations(text)
    if not signs or not set(signs) <= {"=", "in"} or (signs[0] == "in" and len(signs) > 1):
        return text
    return operands[-1] if _NAME.fullmatch(operands[0].strip()) and operands[-1] else text


def value_of_equation(text: str) -> str | None:
    """Return the right side of an equation that can answer a bare gold, else None.

    `x = 5`, `m+n = 5`, `P(A) = 5` and `2+3 = 5` can; `3x+4y = 0` states something else, and `5 = 5` nothing.
    """
    operands, _ = relations(text)
    head, value = operands[0], operands[-1]
    if squeezed(head) == squeezed(value) or not value:
        return None
    if len(operands) == 2 and re.fullmatch(r"-?\d[\d.,]*|-?\\frac\{\d+\}\{\d+\}", head) and _NAME.fullmatch(value):
        return head
    if _NAME.fullmatch(head):
        return value
    if not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", head)):
        node = read_formula(head)
        return value if node is not None and not symbols(node) else None
    if squeezed(value) in ("0", "-0") or len(operands) > 2:
        return value if len(operands) > 2 else None
    return value if _SUM_OF_NAMES.fullmatch(head) else None


def definition(text: str) -> tuple[str, str] | None:
    """Return the right side of `f(x) = …` or `y = …`, and the argument's name or an empty text; else None."""
    operands, signs = relations(text)
    if signs != ["="] or not operands[1]:
        return None
    if function := _FUNCTION.fullmatch(operands[0]):
        return operands[1], function.group(2)
    is_name = re.fullmatch(r"\\?[A-Za-z]{1,10}(?:_\{?\w\}?)?'{0,2}", operands[0])
    node = read_formula(operands[1]) if is_name else None
    if node is None or operands[0].lstrip("\\") in symbols(node):
        return None
    return operands[1], ""


def renamed(node: Node, old: str, new: str) -> Node:
    """Return the expression with one variable renamed."""
    if node.kind == "symbol" and node.name == old:
        return Node("symbol", name=new)
    if not node.operands:
        return node
    operands = tuple(renamed(operand, old, new) for operand in node.operands)
    return Node(node.kind, operands, node.value, node.name, node.digits)


def same_equation(gold: str, prediction: str) -> bool | None:
    """Whether two equations or inequalities say the same: their difference of sides by a constant factor."""
    chains = relations(gold), relations(prediction)
    if any(len(signs) != 1 for _, signs in chains):
        return _same_chain(chains[0], chains[1])
    sides = [_difference(*chain) for chain in chains]
    if sides[0] is None or sides[1] is None:
        return None
    (left, wanted), (right, given) = sides[0], sides[1]
    if wanted != given or symbols(left) != symbols(right):
        return False
    if not symbols(left):
        return None
    return _ratio_is_constant(left, right, must_be_positive=wanted not in ("=", "!="))


def _difference(operands: list[str], signs: list[str]) -> tuple[Node, str] | None:
    nodes = [read_formula(without_unit(operand)) for operand in operands]
    if nodes[0] is None or nodes[1] is None:
        return None
    sign = signs[0]
    first, second = (nodes[1], nodes[0]) if sign in (">", ">=") else (nodes[0], nodes[1])
    return Node("+", (first, Node("-", (second,)))), {">": "<", ">=": "<="}.get(sign, sign)


def _same_chain(gold: tuple[list[str], list[str]], prediction: tuple[list[str], list[str]]) -> bool | None:
    wanted, given = _ascending(*gold), _ascending(*prediction)
    if wanted[1] != given[1]:
        return False
    return all(squeezed(a) == squeezed(b) for a, b in zip(wanted[0], given[0], strict=True)) or None


def _ascending(operands: list[str], signs: list[str]) -> tuple[list[str], list[str]]:
    if signs and set(signs) <= {">", ">="}:
        return operands[::-1], [sign.replace(">", "<") for sign in signs[::-1]]
    return operands, signs


def _ratio_is_constant(left: Node, right: Node, must_be_positive: bool) -> bool | None:
    first: Value = None
    used = 0
    for point in points(symbols(left), with_negatives=True):
        try:
            over, under = evaluate(left, point), evaluate(right, point)
            ratio = over / under
        except (UndefinedError, ZeroDivisionError):
            continue
        if over == 0 or (must_be_positive and not (hasattr(ratio, "real") and ratio.real > 0)):
            return False
        if first is not None and not same_value(first, ratio):
            return False
        first, used = ratio, used + 1
    return True if used >= 2 else None
