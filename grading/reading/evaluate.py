"""Evaluate expressions at fixed points, and compare two expressions by their values.

Rational arithmetic is exact; everything else is computed with forty digits. Two expressions are equal if they agree at
every point. Variables take fixed rational values, so results are reproducible. Numbers are the special case without
variables. This module limits sizes; the grader process limits time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

from grading.bounds import MAX_FACTORIAL
from grading.reading.formula import Node, contains, symbols

DIGITS = 40
ROUNDING_TOLERANCE = 1e-25
"""Relative tolerance for equal inexact values, far above rounding errors and far below real differences."""
DECIMAL_RELATIVE_ERROR = 1e-6
"""Relative tolerance if an expression contains a decimal of six or more digits, which may be rounded."""
ENOUGH_DIGITS = 6
MAX_BITS = 40_000
"""Maximum size of an exact number's numerator and denominator."""

POSITIVE = (
    (Fraction(3, 7), Fraction(5, 11), Fraction(7, 13), Fraction(11, 17), Fraction(13, 31), Fraction(2, 19)),
    (Fraction(17, 7), Fraction(41, 29), Fraction(37, 11), Fraction(53, 23), Fraction(19, 5), Fraction(61, 9)),
    (Fraction(23, 3), Fraction(9, 8), Fraction(1, 6), Fraction(47, 9), Fraction(12, 35), Fraction(29, 4)),
    (Fraction(5, 23), Fraction(8, 3), Fraction(83, 12), Fraction(3, 16), Fraction(15, 4), Fraction(7, 9)),
)
WITH_NEGATIVES = (
    (Fraction(-13, 6), Fraction(4, 9), Fraction(-3, 8), Fraction(31, 7), Fraction(-25, 3), Fraction(6, 5)),
    (Fraction(9, 14), Fraction(-27, 8), Fraction(-14, 3), Fraction(-5, 6), Fraction(2, 7), Fraction(-33, 10)),
)


INTEGERS = frozenset("ijklmn")
"""Variables that take only integer values in an expression that has a floor or ceiling and no other variables."""


class UndefinedError(ValueError):
    """The expression has no value at this point, or one too large to compute."""


Value = Any
"""A Fraction if exact, otherwise an mpmath number (mpf or mpc)."""


@lru_cache(maxsize=1)
def arithmetic() -> Any:
    """Return a separate mpmath context, so the global precision does not change."""
    import mpmath

    context = mpmath.mp.clone()
    context.dps = DIGITS
    return context


def evaluate(node: Node, point: dict[str, Fraction], log_base: int = 0) -> Value:
    """Return the value at a point. `log` without a base is natural unless `log_base` is 10. Raises UndefinedError."""
    try:
        return _value(node, point, log_base)
    except (ZeroDivisionError, OverflowError, TypeError, ValueError, NotImplementedError) as error:
        raise UndefinedError(str(error)) from error


def constant_value(node: Node) -> Value | None:
    """Return the value of an expression without variables, or None."""
    if symbols(node):
        return None
    try:
        return evaluate(node, {})
    except UndefinedError:
        return None


def _value(node: Node, point: dict[str, Fraction], log_base: int) -> Value:
    if node.kind == "number":
        return node.value
    if node.kind == "symbol":
        return point[node.name]
    if node.kind == "constant":
        context = arithmetic()
        return {"e": context.e, "pi": context.pi, "i": context.mpc(0, 1)}[node.name] * 1
    operands = [_value(operand, point, log_base) for operand in node.operands]
    if node.kind == "function":
        return _function(node.name, operands, log_base)
    if node.kind not in "^!" and not all(isinstance(operand, Fraction) for operand in operands):
        operands = [inexact(operand) for operand in operands]
    value = _OPERATIONS[node.kind](*operands)
    if isinstance(value, Fraction) and max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise UndefinedError("too large")
    return value


def inexact(value: Value) -> Value:
    """Return a Fraction as an mpmath number."""
    if not isinstance(value, Fraction):
        return value
    context = arithmetic()
    return context.mpf(value.numerator) / value.denominator


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction):
        if exponent.denominator == 1:
            bits = max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(exponent.numerator)
            if base in (0, 1, -1):
                return base ** max(-1, min(2 + exponent.numerator % 2, exponent.numerator)) if base else base**exponent
            if bits <= MAX_BITS:
                return base ** int(exponent)
        elif (root := _root(base, exponent.denominator)) is not None:
            return _power(root, Fraction(exponent.numerator))
    context = arithmetic()
    if isinstance(exponent, Fraction) and exponent.denominator % 2 and not isinstance(exponent.numerator, float):
        real = inexact(base)
        if exponent.denominator > 1 and not isinstance(real, context.mpc) and real < 0:
            sign = -1 if exponent.numerator % 2 else 1
            return sign * context.power(-real, inexact(exponent))  # the real root of a negative number
    base, exponent = inexact(base), inexact(exponent)
    if abs(exponent) > 10**6 or (abs(exponent) > 1 and abs(context.log(abs(base) + 1)) * abs(exponent) > 10**6):
        raise UndefinedError("too large")
    return context.power(base, exponent)


def _root(value: Fraction, degree: int) -> Fraction | None:
    """Return the exact real root, or None if there is none."""
    if (value < 0 and degree % 2 == 0) or degree > 64:
        return None
    parts = []
    for part in (abs(value.numerator), value.denominator):
        if part.bit_length() > 2000:
            return None
        guess = math.isqrt(part) if degree == 2 else round(part ** (1 / degree)) if part.bit_length() < 1000 else 0
        if guess**degree != part:
            return None
        parts.append(guess)
    root = Fraction(parts[0], parts[1])
    return -root if value < 0 else root


def _factorial(value: Value) -> Value:
    if abs(value) > MAX_FACTORIAL:
        raise UndefinedError("too large")
    if isinstance(value, Fraction) and value.denominator == 1 and value >= 0:
        return Fraction(math.factorial(int(value)))
    return arithmetic().gamma(inexact(value) + 1)


_OPERATIONS: dict[str, Callable[..., Value]] = {
    "+": lambda *terms: sum(terms[1:], terms[0]),
    "-": lambda value: -value,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "^": _power,
    "!": _factorial,
}
_NAMES = {
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arccot": "acot", "arcsec": "asec", "arccsc": "acsc",
    "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "arsinh": "asinh", "arcosh": "acosh",
    "artanh": "atanh", "ln": "log",
}  # fmt: skip


def _function(name: str, operands: list[Value], log_base: int) -> Value:
    value = operands[0]
    if name == "abs":
        return abs(value)
    if name == "root":
        if not isinstance(operands[1], Fraction) or operands[1] == 0:
            raise UndefinedError("invalid degree of a root")
        return _power(value, 1 / operands[1])
    if name in ("floor", "ceil"):
        # log 8 / log 2 is 3, not 2.99…
        near = 0 if isinstance(value, Fraction) else arithmetic().mpf(10) ** (10 - DIGITS)
        return Fraction(math.floor(value + near) if name == "floor" else math.ceil(value - near))
    if name == "binom":
        return _binomial(*operands)
    if name in ("log", "lg", "ln"):
        return _logarithm(name, operands, log_base)
    context = arithmetic()
    if name in ("exp", "cis"):
        return _power(context.e * 1, value) if name == "exp" else context.expj(inexact(value))
    if abs(value) > 10**9:
        raise UndefinedError("argument too large")
    return getattr(context, _NAMES.get(name, name))(inexact(value))


def _binomial(top: Value, bottom: Value) -> Value:
    if isinstance(top, Fraction) and isinstance(bottom, Fraction) and top.denominator == bottom.denominator == 1:
        if not 0 <= bottom <= MAX_FACTORIAL or not 0 <= top <= MAX_FACTORIAL:
            raise UndefinedError("too large")
        return Fraction(math.comb(int(top), int(bottom)))
    return arithmetic().binomial(inexact(top), inexact(bottom))


def _logarithm(name: str, operands: list[Value], log_base: int) -> Value:
    context = arithmetic()
    if operands[0] == 0:
        raise UndefinedError("the logarithm of zero")
    logarithm = context.log(inexact(operands[0]))
    if len(operands) > 1:
        return logarithm / context.log(inexact(operands[1]))
    is_decimal = name == "lg" or (name == "log" and log_base == 10)
    return logarithm / context.log(10) if is_decimal else logarithm


def is_same_value(left: Value, right: Value, relative_error: float = ROUNDING_TOLERANCE) -> bool:
    """Return whether two values are equal within the tolerance; with the default one, exact values must be equal."""
    if isinstance(left, Fraction) and isinstance(right, Fraction) and relative_error == ROUNDING_TOLERANCE:
        return left == right
    left, right = inexact(left), inexact(right)
    scale = max(abs(left), abs(right))
    return bool(abs(left - right) <= relative_error * max(scale, 1e-10 if relative_error == ROUNDING_TOLERANCE else 0))


def is_real(value: Value) -> bool:
    """Return whether the imaginary part of a value is zero up to rounding errors."""
    return isinstance(value, Fraction) or not hasattr(value, "imag") or abs(value.imag) <= 1e-25 * (1 + abs(value.real))


def points(names: frozenset[str], with_negatives: bool, steps: bool = False) -> list[dict[str, Fraction]]:
    """Return the points for comparing expressions in these variables.

    `steps`: whether the expressions contain a floor or ceiling; if so, integer points are included.
    """
    ordered = sorted(names)
    if steps:
        numbered = list(enumerate(ordered))
        whole = [{n: Fraction(1 + (row * (2 * k + 1) + 3 * k) % 26) for k, n in numbered} for row in range(26)]
        return whole if names <= INTEGERS else whole + points(names, with_negatives)
    rows = POSITIVE + WITH_NEGATIVES if with_negatives else POSITIVE
    return [{n: row[k % 6] + Fraction(k // 6, 7) for k, n in enumerate(ordered)} for row in rows]


def _is_branched(node: Node) -> bool:
    """Return whether the operation may leave the real numbers, or its usual branch, for negative variables."""
    if node.kind == "function":
        return node.name in ("root", "ln", "log", "lg")
    exponent = node.operands[1] if node.kind == "^" else None
    return exponent is not None and (exponent.kind != "number" or exponent.value.denominator != 1)


def is_same_expression(gold: Node, prediction: Node) -> bool | None:
    """Return whether two expressions agree wherever both are defined; None if there are too few such points."""
    names = symbols(gold) | symbols(prediction)
    is_rounded = any(contains(node, lambda n: (n.digits or 0) >= ENOUGH_DIGITS) for node in (gold, prediction))
    error = DECIMAL_RELATIVE_ERROR if is_rounded else ROUNDING_TOLERANCE
    has_log = any(contains(node, lambda n: n.name == "log" and len(n.operands) == 1) for node in (gold, prediction))
    is_same = _agree(gold, prediction, names, error, 0)
    return _agree(gold, prediction, names, error, 10) if has_log and is_same is False else is_same


def _agree(gold: Node, prediction: Node, names: frozenset[str], error: float, log_base: int) -> bool | None:
    if not names:
        try:
            return is_same_value(evaluate(gold, {}, log_base), evaluate(prediction, {}, log_base), error)
        except UndefinedError:
            return None
    is_branched = contains(gold, _is_branched) or contains(prediction, _is_branched)
    num_real = num_complex = 0
    do_complex_agree = True
    has_steps = any(contains(node, lambda n: n.name in ("floor", "ceil")) for node in (gold, prediction))
    for point in points(names, with_negatives=not is_branched, steps=has_steps):
        try:
            left, right = evaluate(gold, point, log_base), evaluate(prediction, point, log_base)
        except UndefinedError:
            continue
        if is_real(left) and is_real(right):
            num_real += 1
            if not is_same_value(left, right, error):
                return False
        else:
            num_complex += 1
            do_complex_agree = do_complex_agree and is_same_value(left, right, error)
    if num_real >= 2:
        return True
    return do_complex_agree if num_real + num_complex >= 2 else None
