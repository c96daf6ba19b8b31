"""Lazy access to math-verify and sympy, for answers that no other module of this package can read.

math-verify decides, with two exceptions. Where it is known to be unreliable, its positive answers are checked again:
numbers by their relative error, equations by whether their differences (left minus right side) have a constant ratio.
Expressions with a free `i` are compared here, with `i` as the imaginary unit. No number is extracted from a text that
does not parse.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from grading.bounds import is_balanced, unhurried, why_not_parsed
from grading.reading import Match, Pair

Parsed = Any
"""Result of math-verify: a sympy expression, set, relation or matrix, or the text itself."""
_IMAGINARY = re.compile(r"(?<![\\A-Za-z])i(?![A-Za-z])|\\(?:mathrm|text)\{i\}|\\imath(?![A-Za-z])")
_NUMBERS_SIDE_BY_SIDE = re.compile(r"(?<![\^_\d.])\d+ \d")
RELATIVE_ERROR = 1e-6
"""Relative tolerance if the gold or the prediction contains a decimal."""
SYMBOLIC_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions of the symbolic libraries on expressions that they cannot compare."""


class Libraries(NamedTuple):
    """The symbolic libraries, which have no type annotations."""

    parse: Callable[..., list[Parsed]]
    verify: Callable[..., bool]
    config: list[Parsed]
    """How math-verify finds LaTeX in a text."""
    sympy: ModuleType


@lru_cache(maxsize=1)
def load() -> Libraries:
    with unhurried():
        import sympy
        from math_verify import LatexExtractionConfig, parse, verify

        logging.getLogger("math_verify").setLevel(logging.ERROR)  # silences the warning about disabled time limits
        logging.getLogger("latex2sympy2_extended").setLevel(logging.ERROR)
        config = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]
        parse(r"\boxed{\frac{1}{2}+x}", extraction_config=config, parsing_timeout=None)  # builds the parser's tables
    return Libraries(parse, verify, config, sympy)


def compare_symbols(pair: Pair) -> Match:
    """Compare two cleaned answers with math-verify."""
    if not is_balanced(pair.prediction):
        return Match(None, "unbalanced braces")
    if why_not_parsed(pair.gold) or not is_balanced(pair.gold):
        return Match(False, "the gold is only compared as a string")
    if _NUMBERS_SIDE_BY_SIDE.search(pair.prediction):
        return Match(False, "two adjacent numbers")
    golds, predictions = _parsed_gold(pair.gold), _parsed(pair.prediction)
    is_gold_text = not golds or isinstance(golds[0], str)
    if not predictions or (isinstance(predictions[0], str) and not is_gold_text):
        return Match(None, "does not parse")
    if is_gold_text:
        return Match(False, "the gold is only compared as a string")
    try:
        return _compare_parsed(golds, predictions, pair)
    except SYMBOLIC_ERRORS as error:
        return Match(False, f"not comparable: {type(error).__name__}")


def _compare_parsed(golds: list[Parsed], predictions: list[Parsed], pair: Pair) -> Match:
    gold, prediction = golds[0], predictions[0]
    if any(_IMAGINARY.search(text) for text in pair.texts):
        is_equal = _is_same_complex(gold, prediction)
        if is_equal is not None:
            return Match(is_equal, "complex numbers")
    if pair.tolerance is not None and _is_number(gold) and _is_number(prediction):
        return Match(bool(abs((gold - prediction).evalf(30)) <= pair.tolerance), "within the tolerance")
    is_equal = load().verify(golds, predictions, timeout_seconds=None) and _is_confirmed(gold, prediction)
    return Match(bool(is_equal), "symbols")


def _parsed(text: str) -> list[Parsed]:
    options = {"extraction_config": load().config, "fallback_mode": "no_fallback", "extraction_mode": "first_match"}
    return load().parse(rf"\boxed{{{text}}}", parsing_timeout=None, **options)


@lru_cache(maxsize=512)
def _parsed_gold(gold: str) -> list[Parsed]:
    return _parsed(gold)


def _is_same_complex(gold: Parsed, prediction: Parsed) -> bool | None:
    """Return whether the answers are equal with free `i` as the imaginary unit; None unless both are expressions."""
    sympy = load().sympy
    if not (isinstance(gold, sympy.Expr) and isinstance(prediction, sympy.Expr)):
        return None
    sides = [side.subs({s: sympy.I for s in side.free_symbols if s.name == "i"}) for side in (gold, prediction)]
    difference = sympy.expand(sides[0] - sides[1])
    return bool(difference == 0 or sympy.simplify(difference) == 0)


def _is_number(value: Parsed) -> bool:
    return bool(getattr(value, "is_number", False))


def _is_confirmed(gold: Parsed, prediction: Parsed) -> bool:
    """Check answers that math-verify calls equal: numbers by their relative error, equations by a constant ratio."""
    sympy = load().sympy
    if isinstance(prediction, sympy.Eq):
        return isinstance(gold, sympy.Eq) and _is_same_equation(gold, prediction)
    if not (_is_number(gold) and _is_number(prediction)):
        return True
    error = abs((gold - prediction).evalf(30))
    if error == 0 or sympy.simplify(gold - prediction) == 0:
        return True
    allowed = RELATIVE_ERROR if prediction.has(sympy.Float) or gold.has(sympy.Float) else 1e-12
    return bool(error <= allowed * abs(gold.evalf(30)))


def _is_same_equation(gold: Parsed, prediction: Parsed) -> bool:
    sympy = load().sympy
    if gold == prediction:
        return True
    if gold.free_symbols != prediction.free_symbols or not gold.free_symbols:
        return False
    sides = [sympy.together(sympy.expand(eq.lhs - eq.rhs)) for eq in (gold, prediction)]
    if sides[1] == 0:
        return False
    ratio = sympy.simplify(sides[0] / sides[1])
    return bool(ratio.is_number and ratio != 0)
