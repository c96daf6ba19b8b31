"""Properties of generated expressions: each equals itself and its rewritings, and no perturbed expression."""

from __future__ import annotations

import random
from typing import Any

import pytest
import sympy

from grading.equivalence import equivalent

SEEDS = range(60)
x, y, n = sympy.symbols("x y n", positive=True)


def expression(seed: int) -> Any:
    """Return a small expression in up to two variables, of a family that is common among answers."""
    rng = random.Random(seed)
    a, b, c = (rng.choice([-1, 1]) * rng.randint(2, 9) for _ in range(3))
    families = [
        sympy.Rational(a, abs(b) + 7),
        a + b * sympy.sqrt(abs(c) + 10),
        sympy.Rational(a, 3) * sympy.pi + b,
        (x + a) * (b * x + c),
        (x + a) * (x + b) / (x + 13),
        a / (x + 1) + b / (x + 2),
        a * x**2 * y + b * x * y**2,
        sympy.sqrt(x + abs(a)) * b + c,
        a * sympy.exp(b * x) + c,
        sympy.log(x + abs(a)) + b * x,
        a * sympy.sin(x) + b * sympy.cos(y) + c,
        2**n * a + b,
        a + b * sympy.I,
        (x**2 + abs(a)) / (abs(b) * x),
    ]
    return families[seed % len(families)]


def rewritings(value: Any) -> list[str]:
    """Return the expression in other forms and notations."""
    forms = [value, sympy.expand(value), sympy.factor(value), sympy.together(value), sympy.nsimplify(value)]
    if value.free_symbols == {x} and value.is_rational_function(x):
        forms.append(sympy.apart(value, x))
    texts = [sympy.latex(form) for form in forms] + [str(form).replace("I", "i") for form in forms]
    first = sympy.latex(value)
    texts += [first.replace(r"\frac", r"\dfrac"), first.replace(r"\left", "").replace(r"\right", ""), f"${first}$"]
    return list(dict.fromkeys(texts))


def perturbed(value: Any) -> list[Any]:
    """Return other expressions that are close to this one."""
    others = [
        value + 1,
        value - sympy.Rational(1, 1000),
        -value,
        value * 2,
        value + x,
        value * (1 + sympy.Rational(1, 10**9)),
    ]
    return [other for other in others if sympy.expand(other - value) != 0]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_expression_equals_itself_and_its_rewritings(seed: int) -> None:
    gold = sympy.latex(expression(seed))
    unequal = [text for text in rewritings(expression(seed)) if not equivalent(gold, text).is_equal]
    assert unequal == []


@pytest.mark.parametrize("seed", SEEDS)
def test_an_expression_differs_from_perturbed_ones(seed: int) -> None:
    gold = sympy.latex(expression(seed))
    equal = [
        sympy.latex(other) for other in perturbed(expression(seed)) if equivalent(gold, sympy.latex(other)).is_equal
    ]
    assert equal == []
