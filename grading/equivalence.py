r"""Whether an answer means what the gold means. The only module that touches the symbolic libraries, and lazily.

First exact strings, then exact numbers, then symbols, with rules of its own where math-verify is known to err: digits
with a base (`52_8` is neither `52_9` nor `52`), words (compared as text: `post` is not `stop`), lists with
multiplicity, pairs against sets, a bare gold against an equation's right side, equations without real roots, free `i`
as the imaginary unit, absolute rounding to six decimals, and no number picked out of something that does not parse.

Left as they are: dropped units are not compared (`5 cm` equals `5 m`, `cm^2` equals `cm^3`); an inequality does not
equal the interval that is the gold; function names count (`f(x)` against `f(z)`); set-builder notation, `\ldots` and
prose are compared as strings only; angles are not converted; `52` is wrong for `52_8` even where a question fixed the
base; inverse trigonometric identities and intervals' unions in the hundreds may not be recognised.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from grading.bounds import is_balanced, why_not_parsed
from grading.clean import clean, depth_at_each, outer_brackets, squeezed, without_text_commands
from grading.numbers import read_number, same_number, without_unit

_BASE = re.compile(r"([0-9A-Z][0-9A-Z ,]*)_\{?\s?(?:\\text\{\s?)?(\d{1,2}|two|eight|ten|sixteen)\s?\}?\}?")
_BASE_WORDS = {"two": "2", "eight": "8", "ten": "10", "sixteen": "16"}
_PHRASE_WORDS = re.compile(r"[A-Za-z][A-Za-z'\-]*(?:[ ,]+[A-Za-z'\-]+)*")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{4,}")
_TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mbox)\s?\{([^{}]*)\}")
_FUNCTIONS = frozenset(
    ("sqrt", "frac", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "sech", "csch", "coth", "matrix", "pmatrix")
)
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-z*]*\}(?:\{[a-z|]*\})?|\\operatorname\*?\{[a-z]*\}")
_NAME = re.compile(
    r"[^0-9_+\-*/^=<>]*(?:[_^](?:\w|\{\w{1,3}\})[^0-9_+\-*/^=<>]*)*|\\?[A-Za-z]{1,20}(?:_\{?\w{1,3}\}?)?\([^()=]*\)"
)
_IMAGINARY = re.compile(r"(?<![\\A-Za-z])i(?![A-Za-z])|\\(?:mathrm|text)\{i\}|\\imath(?![A-Za-z])")
_UNDETERMINED = re.compile(r"\\[lcv]?dots|\.\.\.|…|:.*:|\\mid(?![a-z])")
RELATIVE_ERROR = 1e-6
"""Allowed where the answer is a rounded decimal and the gold is not a number that can be compared exactly."""
SYMBOLIC_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)
"""What the symbolic libraries raise on expressions that they cannot compare."""


@dataclass(frozen=True, slots=True)
class Match:
    """The outcome of one comparison."""

    is_equal: bool | None
    """None: the answer could not be read."""
    reason: str


def load() -> tuple[Any, Any, Any, Any]:
    """Import the symbolic libraries; return math-verify's `parse`, `verify` and LaTeX configuration, and sympy."""
    return _libraries()


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, Any, Any, Any]:
    import sympy
    from math_verify import LatexExtractionConfig, parse, verify

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own time limits are off
    logging.getLogger("latex2sympy2_extended").setLevel(logging.ERROR)
    config = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]
    parse(r"\boxed{\frac{1}{2}+x}", extraction_config=config, parsing_timeout=None)  # the first parse builds its tables
    return parse, verify, config, sympy


def equivalent(gold: str, prediction: str, tolerance: float | None = None, unit: str | None = None) -> Match:
    """Compare one answer with one gold, both as they stand in a text; not symmetric, the gold comes first."""
    gold, prediction = clean(gold[:4_000]), clean(prediction[:4_000])
    if unit:
        prediction = _without_gold_unit(prediction, clean(unit))
    if gold and squeezed(gold) == squeezed(prediction):
        return Match(True, "same string")
    reason = why_not_parsed(prediction)
    if reason:
        return Match(None, reason)
    cheap = _numbers(gold, prediction, tolerance) or special_form(gold, prediction)
    return cheap or _symbols(gold, prediction, tolerance)


def equivalent_list(
    golds: list[str], predictions: list[str], tolerance: float | None = None, unit: str | None = None
) -> Match:
    """Compare as multisets: any order, every element once."""
    golds, predictions = _opened(golds), _opened(predictions)
    if len(golds) != len(predictions):
        return Match(False, f"{len(predictions)} parts where {len(golds)} are asked for")
    rest, is_readable = list(predictions), True
    for gold in golds:
        for index, prediction in enumerate(rest):
            match = equivalent(gold, _without_name(gold, prediction), tolerance, unit)
            is_readable = is_readable and match.is_equal is not None
            if match.is_equal:
                del rest[index]
                break
        else:
            return Match(False if is_readable else None, "a part is missing")
    return Match(True, "all parts")


def _opened(parts: list[str]) -> list[str]:
    r"""Replace `a \pm b` by its two values."""
    opened: list[str] = []
    for part in parts:
        if part.count(r"\pm") == 1:
            opened += [part.replace(r"\pm", sign) for sign in ("+", "-")]
        else:
            opened.append(part)
    return opened


def _without_name(gold: str, prediction: str) -> str:
    head, equals, value = prediction.rpartition("=")
    return value if equals and "=" not in gold and _NAME.fullmatch(head.strip()) else prediction


def _without_gold_unit(prediction: str, unit: str) -> str:
    plain = without_text_commands(prediction)
    for ending in (unit, unit + "s", unit.removesuffix("s")):
        if ending and plain.endswith(ending) and re.search(r"\d", plain.removesuffix(ending)):
            return plain.removesuffix(ending).strip()
    return prediction


def _numbers(gold: str, prediction: str, tolerance: float | None) -> Match | None:
    wanted, given = read_number(gold), read_number(_right_side(gold, prediction))
    if wanted is None or given is None:
        return None
    return Match(same_number(wanted, given, tolerance), "exact numbers")


def special_form(gold: str, prediction: str) -> Match | None:
    """Settle the forms that math-verify is known to misjudge; None leaves it to the symbols."""
    bases = _BASE.fullmatch(gold), _BASE.fullmatch(prediction)
    if bases[0] or bases[1]:
        return Match(_digits_and_base(gold) == _digits_and_base(prediction), "digits and base")
    if _is_text(gold) or _is_text(prediction):
        return Match(_words(gold) == _words(prediction), "words")
    brackets = outer_brackets(gold), outer_brackets(prediction)
    if all(brackets) and ("{}" in brackets) and brackets[0] != brackets[1]:
        return Match(False, "a pair or interval is not a set")
    if _UNDETERMINED.search(gold) or _UNDETERMINED.search(prediction):
        return Match(False if _UNDETERMINED.search(gold) else None, "compared as a string only")
    if not _is_comparable_equation(gold, prediction):
        return Match(False, "an equation where none is asked for")
    return None


def _digits_and_base(text: str) -> tuple[str, str]:
    match = _BASE.fullmatch(text)
    digits, base = match.groups() if match else (text, "10")
    return re.sub("[ ,]", "", digits), _BASE_WORDS.get(base, base)


def _is_text(text: str) -> bool:
    """Whether an answer is prose or a name and no formula."""
    has_text = bool(_TEXT.search(text))
    plain = without_text_commands(_ENVIRONMENT.sub(" ", text)).strip("\"'` ")
    if re.fullmatch(r"\(?[A-Za-z]\)?", plain):
        return has_text or plain.startswith("(")
    if _PHRASE_WORDS.fullmatch(plain) and (has_text or _looks_like_a_word(plain)):
        return True
    body = without_text_commands(_ENVIRONMENT.sub(" ", without_unit(text)))
    return any(word not in _FUNCTIONS for word in _WORD.findall(body))


def _words(text: str) -> str:
    return re.sub(r"[^a-z0-9.+\-*/^=<>]+", " ", without_text_commands(text).casefold()).strip()


def _looks_like_a_word(text: str) -> bool:
    """Tell `no` and `even` from products such as `xy` and `pq`: words have vowels and consonants."""
    lower = text.lower()
    return len(text) > 1 and bool(re.search("[aeiou]", lower)) and bool(re.search("[b-df-hj-np-tv-z]", lower))


def _is_equation(text: str) -> bool:
    return any(
        character == "=" and depth == 0 and text[index - 1 : index] not in ("<", ">", "!", "\\")
        for index, (character, depth) in enumerate(depth_at_each(text))
    )


def _right_side(gold: str, prediction: str) -> str:
    """Drop `x =` from an answer where the gold is a bare value."""
    if _is_equation(gold) or not _is_equation(prediction) or "," in prediction:
        return prediction
    return prediction.rpartition("=")[2].strip() if _is_comparable_equation(gold, prediction) else prediction


def _is_comparable_equation(gold: str, prediction: str) -> bool:
    """Whether an equation may answer a bare gold: `x = 5` and `m+n = 5` may, `3x+4y = 0` states something else."""
    if _is_equation(gold) or not _is_equation(prediction) or "," in prediction:
        return True
    head, _, value = prediction.partition("=")
    if _NAME.fullmatch(head.strip()) or not re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+", "", head)):
        return True
    has_coefficient = re.search(r"(?<![\^_{\d])\d", head)
    return not has_coefficient and squeezed(value) != "0"


def _symbols(gold: str, prediction: str, tolerance: float | None) -> Match:
    parse, verify, config, _ = _libraries()
    options = {"extraction_config": config, "fallback_mode": "no_fallback", "extraction_mode": "first_match"}
    if not is_balanced(prediction):
        return Match(None, "unbalanced braces")
    if why_not_parsed(gold) or not is_balanced(gold):
        return Match(False, "the gold is compared as a string only")
    wanted = _parsed_gold(gold)
    given = parse(rf"\boxed{{{_for_parser(gold, prediction)}}}", parsing_timeout=None, **options)
    if not given:
        return Match(None, "does not parse")
    if not wanted:
        return Match(False, "the gold is compared as a string only")
    try:
        if _IMAGINARY.search(gold) or _IMAGINARY.search(prediction):
            complex_match = _complex(wanted[0], given[0])
            if complex_match is not None:
                return Match(complex_match, "complex numbers")
        if tolerance is not None and _is_number(wanted[0]) and _is_number(given[0]):
            return Match(bool(abs((wanted[0] - given[0]).evalf(30)) <= tolerance), "within the tolerance")
        is_equal = verify(wanted, given, timeout_seconds=None) and _is_confirmed(wanted[0], given[0])
    except SYMBOLIC_ERRORS as error:
        return Match(False, f"not comparable: {type(error).__name__}")
    return Match(bool(is_equal), "symbols")


@lru_cache(maxsize=512)
def _parsed_gold(gold: str) -> list[Any]:
    parse, _, config, _ = _libraries()
    options = {"extraction_config": config, "fallback_mode": "no_fallback", "extraction_mode": "first_match"}
    parsed: list[Any] = parse(rf"\boxed{{{_for_parser(gold, gold)}}}", parsing_timeout=None, **options)
    return parsed


def _for_parser(gold: str, text: str) -> str:
    return without_unit(_right_side(gold, text))


def _complex(gold: Any, prediction: Any) -> bool | None:
    """Compare with every free `i` as the imaginary unit; None where one side is no plain expression."""
    sympy = _libraries()[3]
    if not (isinstance(gold, sympy.Expr) and isinstance(prediction, sympy.Expr)):
        return None
    sides = [side.subs({s: sympy.I for s in side.free_symbols if s.name == "i"}) for side in (gold, prediction)]
    difference = sympy.expand(sides[0] - sides[1])
    return bool(difference == 0 or sympy.simplify(difference) == 0)


def _is_number(value: Any) -> bool:
    return bool(getattr(value, "is_number", False))


def _is_confirmed(gold: Any, prediction: Any) -> bool:
    """Check again what math-verify calls equal: numbers by relative error, equations by a constant ratio."""
    sympy = _libraries()[3]
    if isinstance(gold, sympy.Eq) and isinstance(prediction, sympy.Eq):
        return _is_same_equation(gold, prediction)
    if not (_is_number(gold) and _is_number(prediction)):
        return True
    error = abs((gold - prediction).evalf(30))
    if error == 0 or sympy.simplify(gold - prediction) == 0:
        return True
    allowed = RELATIVE_ERROR if prediction.has(sympy.Float) or gold.has(sympy.Float) else 1e-12
    return bool(error <= allowed * abs(gold.evalf(30)))


def _is_same_equation(gold: Any, prediction: Any) -> bool:
    sympy = _libraries()[3]
    if gold == prediction:
        return True
    if gold.free_symbols != prediction.free_symbols or not gold.free_symbols:
        return False
    sides = [sympy.together(sympy.expand(eq.lhs - eq.rhs)) for eq in (gold, prediction)]
    if sides[1] == 0:
        return False
    ratio = sympy.simplify(sides[0] / sides[1])
    return bool(ratio.is_number and ratio != 0)
