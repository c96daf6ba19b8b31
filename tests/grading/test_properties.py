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


@pytest.mark.parametrize("seed", range(40))
def test_order_and_notation_of_a_list_do_not_count_but_its_elements_do(seed: int) -> None:
    rng = random.Random(seed)
    numbers = rng.sample(range(-50, 50), rng.randint(2, 6))
    shuffled = rng.sample(numbers, len(numbers))
    gold = ", ".join(map(str, numbers))
    assert equivalent(gold, r"\{" + ",".join(map(str, shuffled)) + r"\}").is_equal
    assert equivalent(gold, r" \text{ and } ".join(f"x = {number}" for number in shuffled)).is_equal
    changed = [shuffled[0] + 100, *shuffled[1:]]
    assert not equivalent(gold, ", ".join(map(str, changed))).is_equal
    assert not equivalent(gold, ", ".join(map(str, shuffled[1:]))).is_equal


@pytest.mark.parametrize("seed", range(40))
def test_an_interval_equals_its_inequality_and_no_other(seed: int) -> None:
    rng = random.Random(seed)
    low, high = sorted(rng.sample(range(-20, 20), 2))
    left, right = rng.choice("(["), rng.choice(")]")
    interval = f"{left}{low}, {high}{right}"
    signs = [r"\le" if bracket in "[]" else "<" for bracket in (left, right)]
    inequality = f"{low} {signs[0]} x {signs[1]} {high}"
    assert equivalent(interval, inequality).is_equal
    assert equivalent(inequality, interval).is_equal
    assert equivalent(rf"\{{x \mid {inequality}\}}", interval).is_equal
    assert not equivalent(f"{left}{low}, {high + 1}{right}", inequality).is_equal
    other = "(" if left == "[" else "["
    assert not equivalent(f"{other}{low}, {high}{right}", inequality).is_equal
