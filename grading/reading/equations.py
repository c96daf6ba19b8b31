"""Compare expressions by their values, and equations and inequalities by value, definition or solutions.

Text that cannot be read as a formula is left to math-verify.
"""

from __future__ import annotations

import re

from grading.bounds import is_balanced
from grading.reading import Compare, Match, Pair, best_match
from grading.reading.evaluate import (
    UndefinedError,
    Value,
    constant_value,
    evaluate,
    inexact,
    is_same_expression,
    is_same_value,
    points,
)
from grading.reading.formula import Node, read_formula, symbols, with_symbol_renamed
from grading.reading.lists import compare_ordered, compare_unnamed, split_plus_minus
from grading.reading.notation import NAME, Relation, is_equation, read_relation, squeezed, without_name
from grading.reading.quantities import read_number, rounds_to_value, split_unit, units_differ, without_unit
from grading.reading.symbolic import compare_symbols

MAX_APPROXIMATIONS = 3
r"""How many of the last sides of an answer's `\approx` chain are compared."""
_NAME = re.compile(r"(?![ei])[A-Za-z]")


def compare_expressions(pair: Pair, compare: Compare) -> Match:
    """Compare two answers that are one value each."""
    if any(r"\approx" in text for text in pair.texts):
        return _compare_approximations(pair, compare)
    if pair.has_plus_minus:
        return compare_unnamed(split_plus_minus([pair.gold]), split_plus_minus([pair.prediction]), pair, compare)
    if not is_balanced(pair.prediction):
        return Match(None, "unbalanced braces")
    (gold, gold_unit), (prediction, unit) = (split_unit(text) for text in pair.texts)
    if units_differ(gold_unit, unit):
        return Match(False, "different units")
    readings = list(dict.fromkeys([pair, pair.with_texts(gold, prediction)]))  # unchanged first, so 90° is π/2
    for reading in readings:
        is_equal = _has_same_value(reading)
        if is_equal or (is_equal is False and reading == readings[-1]):
            return Match(is_equal, "values")
    return compare_symbols(pair.with_texts(without_unit(pair.gold), without_unit(pair.prediction)))


def _compare_approximations(pair: Pair, compare: Compare) -> Match:
    r"""Compare chains of `\approx`: in chains of equal length, each side with the side at the same position.

    In other chains, one side of the gold must equal one of the answer's last sides.
    """
    golds, sides = ([side.strip() for side in text.split(r"\approx") if side.strip()] for text in pair.texts)
    if not golds or not sides:
        return Match(None, "nothing on one side of the approximation sign")
    if len(golds) == len(sides):
        return compare_ordered(golds, sides, pair, compare)
    golds = [side for side in golds if not _NAME.fullmatch(side)] or golds
    return best_match([compare(pair.with_texts(gold, side)) for gold in golds for side in sides[-MAX_APPROXIMATIONS:]])


def _has_same_value(pair: Pair) -> bool | None:
    """Return whether gold and prediction have the same values, or None if one cannot be read or computed."""
    gold, prediction = read_formula(pair.gold), read_formula(pair.prediction)
    if gold is None or prediction is None:
        return None
    if not symbols(gold) and not symbols(prediction):
        gold_value, value = constant_value(gold), constant_value(prediction)
        if gold_value is None or value is None:
            return None
        if pair.tolerance is not None and abs(inexact(gold_value) - inexact(value)) <= pair.tolerance:
            return True
        for text, other in ((pair.prediction, gold_value), (pair.gold, value)):
            if (rounded := read_number(text)) is not None and rounds_to_value(other, rounded):
                return True
    return is_same_expression(gold, with_constant_of(gold, prediction))


def with_constant_of(gold: Node, prediction: Node) -> Node:
    """Return the prediction with its constant of integration renamed as in the gold (`C`, `C_1`)."""
    missing, extra = symbols(gold) - symbols(prediction), symbols(prediction) - symbols(gold)
    for name in extra:
        if re.fullmatch(r"[cCkK]_\d", name) and name.swapcase() in missing:
            prediction = with_symbol_renamed(prediction, name, name.swapcase())
    if gold.kind == "+" and missing == {"C"} and len(extra) == 1 and extra <= {"c", "K", "k"}:
        return with_symbol_renamed(prediction, next(iter(extra)), "C")
    return prediction


_FUNCTION = re.compile(r"(\\?[A-Za-z]{1,10}(?:_\{?\w\}?)?(?:'{1,3}|\^\s?\{-1\})?)\s?\(\s?([A-Za-z])\s?\)")
_INDEXED = re.compile(r"(\\?[A-Za-z]+) ?_ ?\{? ?(\w+) ?\}?")
_INDEX = re.compile(r"(?<=_)\{?\w+\}?|\d+")
_SUM_OF_NAMES = re.compile(
    r"(?:\\?[A-Za-z]{1,8}(?:_\{?\w{1,3}\}?)?|[A-Z]{2,3})(?:\s?[+\-]?\s?\\?[A-Za-z](?:_\{?\w{1,3}\}?)?)*"
)


def compare_equations(pair: Pair, compare: Compare) -> Match | None:
    """Compare two answers, at least one of them with a relation sign; None: undecided."""
    gold, prediction = read_relation(pair.gold), read_relation(pair.prediction)
    if (not gold.signs and not prediction.signs) or r"\approx" in pair.prediction:
        return None
    if gold.signs and prediction.signs:
        return _compare_two(pair, compare)
    if prediction.signs:
        if not is_equation(pair.prediction):
            return Match(False, "the answer has a relation sign, but the gold has none")
        value = value_of_equation(pair.prediction)
        if value is None:
            return Match(False, "the answer is an equation, but the gold is not")
        return compare(pair.with_texts(pair.gold, value))
    if not is_equation(pair.gold):
        return Match(False, "the gold is a relation")
    has_value = without_name(pair.gold) != pair.gold or len(gold.signs) > 1
    value = value_of_equation(pair.gold) if has_value else None
    if value is None:
        return Match(False, "the gold is an equation")
    return compare(pair.with_texts(value, pair.prediction))


def _compare_two(pair: Pair, compare: Compare) -> Match | None:
    if units_differ(*(split_unit(read_relation(text).operands[-1])[1] for text in pair.texts)):
        return Match(False, "different units")
    heads = [squeezed(read_relation(text).operands[0]) for text in pair.texts]
    is_name = all(_INDEXED.fullmatch(head) or read_formula(head) is None for head in heads)
    if is_name and heads[0] != heads[1] and len({_INDEX.sub("", head) for head in heads}) == 1:
        return Match(False, "different indices")
    if _is_same_definition(pair, compare):
        return Match(True, "the same definition")
    is_same = is_same_relation(*pair.texts)
    if is_same is not None:
        return Match(is_same, "equations")
    if all(is_equation(text) for text in pair.texts):
        gold, prediction = (value_of_equation(text) for text in pair.texts)
        if gold and prediction and heads[0] == heads[1]:
            return compare(pair.with_texts(gold, prediction))
    return None


def _is_same_definition(pair: Pair, compare: Compare) -> bool:
    gold, prediction = (definition(text) for text in pair.texts)
    if gold is None or prediction is None:
        return False
    gold_body, gold_argument = gold
    prediction_body, argument = prediction
    gold_node, node = read_formula(gold_body), read_formula(prediction_body)
    if gold_node is None or node is None:
        return False
    if not symbols(gold_node) | symbols(node):
        return compare(pair.with_texts(gold_body, prediction_body)).is_equal is True
    if argument and gold_argument and gold_argument != argument:
        node = with_symbol_renamed(node, argument, gold_argument)
    return bool(is_same_expression(gold_node, with_constant_of(gold_node, node)))


def value_of_equation(text: str) -> str | None:
    """Return the value in an equation that can answer a bare gold, or None.

    The value is 5 in `x = 5`, `5 = x`, `m+n = 5`, `P(A) = 5` and `2+3 = 5`; `3x+4y = 0` and `5 = 5` have none.
    """
    operands = read_relation(text).operands
    head, value = operands[0], operands[-1]
    if squeezed(head) == squeezed(value) or not value:
        return None
    if len(operands) == 2 and re.fullmatch(r"-?\d[\d.,]*|-?\\frac\{\d+\}\{\d+\}", head) and NAME.fullmatch(value):
        return head
    if NAME.fullmatch(head):
        return value
    if not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", head)):
        node = read_formula(head)
        return value if node is not None and not symbols(node) else None
    if squeezed(value) in ("0", "-0") or len(operands) > 2:
        return value if len(operands) > 2 else None
    return value if _SUM_OF_NAMES.fullmatch(head) else None


def definition(text: str) -> tuple[str, str] | None:
    """Return the right side of `f(x) = …` or `y = …`, and the argument's name or an empty string; otherwise None."""
    relation = read_relation(text)
    if relation.signs != ("=",) or not relation.operands[1]:
        return None
    name, body = relation.operands
    if function := _FUNCTION.fullmatch(name):
        return body, function.group(2)
    is_name = re.fullmatch(r"\\?[A-Za-z]{1,10}(?:_\{?\w\}?)?'{0,2}", name)
    node = read_formula(body) if is_name else None
    if node is None or name.lstrip("\\") in symbols(node):
        return None
    return body, ""


def is_same_relation(gold: str, prediction: str) -> bool | None:
    """Return whether two equations or inequalities have the same solutions, or None if unknown.

    The differences between the left and the right side must be equal up to a constant factor, which must be positive
    for inequalities. Longer chains are compared as strings.
    """
    relations = read_relation(gold), read_relation(prediction)
    if any(len(relation.signs) != 1 for relation in relations):
        return _is_same_chain(*relations)
    differences = [_difference_of_sides(relation) for relation in relations]
    if differences[0] is None or differences[1] is None:
        return None
    (left, gold_sign), (right, sign) = differences[0], differences[1]
    if gold_sign != sign or symbols(left) != symbols(right):
        return False
    if not symbols(left):
        return None
    return _is_ratio_constant(left, right, must_be_positive=sign not in ("=", "!="))


def _difference_of_sides(relation: Relation) -> tuple[Node, str] | None:
    left, right = (read_formula(without_unit(operand)) for operand in relation.operands)
    if left is None or right is None:
        return None
    sign = relation.signs[0]
    if sign in (">", ">="):
        left, right = right, left
    return Node("+", (left, Node("-", (right,)))), {">": "<", ">=": "<="}.get(sign, sign)


def _is_same_chain(gold: Relation, prediction: Relation) -> bool | None:
    gold, prediction = gold.ascending(), prediction.ascending()
    if gold.signs != prediction.signs:
        return False
    pairs = zip(gold.operands, prediction.operands, strict=True)
    return all(squeezed(operand) == squeezed(other) for operand, other in pairs) or None


def _is_ratio_constant(left: Node, right: Node, must_be_positive: bool) -> bool | None:
    """Return whether left / right is a nonzero constant, positive if required; None if defined at too few points."""
    first: Value = None
    num_points = 0
    for point in points(symbols(left), with_negatives=True):
        try:
            ratio = evaluate(Node("/", (left, right)), point)
        except UndefinedError:
            continue
        if ratio == 0 or (must_be_positive and ratio.real <= 0):
            return False
        if first is not None and not is_same_value(first, ratio):
            return False
        first, num_points = ratio, num_points + 1
    return True if num_points >= 2 else None
