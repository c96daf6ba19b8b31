r"""Whether an answer means what the gold means: one ladder from exact strings to the symbolic libraries.

Strings, exact numbers, digits with a base, times, words, sets of numbers, lists and matrices part by part, equations,
expressions by their values; math-verify decides what none of these can read. No number is ever picked out of an answer
that cannot be read as a whole.

Policies, where the field's graders differ. A unit, a currency and a percent sign may be missing or extra (`5` and
`5\%`), but two known units must agree (`5 cm` is not `5 m`). `52` is wrong for `52_8`. A bare list has no order, a
tuple has; a tuple is no set. An inequality equals the interval that it describes. `x = 5` answers 5, and `y = 2x` and
`f(x) = 2x` answer `2x`. A decimal stands for a number without a finite decimal from six significant digits.
"""

from __future__ import annotations

import re
from functools import lru_cache

from grading.bounds import is_balanced, why_not_parsed
from grading.extract import find_boxes
from grading.reading.clean import clean, squeezed, without_text_commands
from grading.reading.evaluate import constant_value, inexact, same_expression, symbols
from grading.reading.formula import Node, read_formula
from grading.reading.numbers import read_number, rounds_to_value, same_number
from grading.reading.sets import looks_like_a_set, read_set, relations, same_set
from grading.reading.special import special_form
from grading.reading.structure import (
    MAX_PARTS,
    Shape,
    definition,
    is_equation,
    opened,
    renamed,
    same_equation,
    shape_of,
    value_of_equation,
    without_name,
)
from grading.reading.symbolic import Match, compare_symbols, load
from grading.reading.units import split_unit, units_differ, without_unit
from grading.reading.words import without_lead

__all__ = ["Match", "equivalent", "equivalent_list", "is_list", "load", "special_form"]


def equivalent(gold: str, prediction: str, tolerance: float | None = None, unit: str | None = None) -> Match:
    """Compare one answer with one gold, both as they stand in a text; not symmetric, the gold comes first."""
    gold, prediction = _prepared(gold), _prepared(prediction)
    if unit:
        prediction = _without_gold_unit(prediction, clean(unit))
    if gold and squeezed(gold) == squeezed(prediction):
        return Match(True, "same string")
    if not prediction:
        return Match(None, "nothing but punctuation")
    problem = why_not_parsed(prediction)
    if problem:
        return Match(None, problem)
    if why_not_parsed(gold):
        return Match(False, "the gold is compared as a string only")
    return _compare(gold, prediction, tolerance)


def _prepared(text: str) -> str:
    """Clean an answer and take it out of boxes and out of «The answer is …»."""
    text = text[:4_000]
    if "boxed" in text:
        boxes = [box for box in find_boxes(text)[0] if box.strip()]
        text = (boxes[-1] if len(set(boxes)) == 1 else ", ".join(boxes)) if boxes else text
    return without_lead(clean(text))


def is_list(gold: str) -> bool:
    """Whether a gold has several parts in any order."""
    shape = shape_of(_prepared(gold))
    return shape is not None and shape.kind in ("list", "set")


def equivalent_list(
    golds: list[str], predictions: list[str], tolerance: float | None = None, unit: str | None = None
) -> Match:
    """Compare as multisets: any order, every element once."""
    golds, predictions = opened([clean(part) for part in golds]), opened([clean(part) for part in predictions])
    if len(golds) != len(predictions):
        return Match(False, f"{len(predictions)} parts where {len(golds)} are asked for")
    golds, rest = _without_same_strings(golds, predictions)
    if len(rest) > MAX_PARTS:
        return Match(None, f"more than {MAX_PARTS} parts")
    is_readable = True
    for gold in golds:
        for index, prediction in enumerate(rest):
            match = equivalent(gold, prediction, tolerance, unit)
            is_readable = is_readable and match.is_equal is not None
            if match.is_equal:
                del rest[index]
                break
        else:
            return Match(False if is_readable else None, "a part is missing")
    return Match(True, "all parts")


def _without_same_strings(golds: list[str], predictions: list[str]) -> tuple[list[str], list[str]]:
    rest: dict[str, list[str]] = {}
    for prediction in predictions:
        rest.setdefault(squeezed(prediction), []).append(prediction)
    left = [gold for gold in golds if not (rest.get(squeezed(gold)) and rest[squeezed(gold)].pop())]
    return left, [prediction for same in rest.values() for prediction in same]


def _without_gold_unit(prediction: str, unit: str) -> str:
    plain = without_text_commands(prediction)
    for ending in (unit, unit + "s", unit.removesuffix("s")):
        if ending and plain.endswith(ending) and re.search(r"\d", plain.removesuffix(ending)):
            return plain.removesuffix(ending).strip()
    return prediction


def _compare(gold: str, prediction: str, tolerance: float | None) -> Match:
    """Compare two cleaned answers within bounds: the first rung that can read both decides."""
    for rung in (_numbers, _special, _sets, _shapes, _equations):
        match = rung(gold, prediction, tolerance)
        if match is not None:
            return match
    return _expressions(gold, prediction, tolerance)


def _numbers(gold: str, prediction: str, tolerance: float | None) -> Match | None:
    wanted = read_number(gold)
    given = read_number(prediction) if wanted is not None else None
    if wanted is None or given is None:
        return None
    if units_differ(split_unit(gold)[1], split_unit(prediction)[1]):
        return Match(False, "another unit")
    return Match(same_number(wanted, given, tolerance), "exact numbers")


def _special(gold: str, prediction: str, tolerance: float | None) -> Match | None:
    return special_form(gold, prediction)


def _sets(gold: str, prediction: str, tolerance: float | None) -> Match | None:
    if not (looks_like_a_set(gold) or looks_like_a_set(prediction)):
        return None
    if is_equation(gold) or is_equation(prediction):
        return None
    wanted = read_set(gold)
    given = read_set(prediction) if wanted else None
    if wanted is None or given is None:
        return None
    return Match(same_set(wanted, given), "sets of real numbers")


def _shapes(gold: str, prediction: str, tolerance: float | None) -> Match | None:
    prediction = _unnamed(gold, prediction)
    gold_shape, shape = shape_of(gold), shape_of(prediction)
    if gold_shape is None and (bare := without_name(gold)) != gold:
        gold_shape = shape_of(bare)
    if gold_shape is None and shape is None:
        return None
    if gold_shape is None or shape is None:
        return _part_or_value(gold, prediction, gold_shape, shape, tolerance)
    return _same_shape(gold_shape, shape, tolerance)


def _unnamed(gold: str, prediction: str) -> str:
    shape = shape_of(prediction)
    is_asked = is_equation(gold) and not shape_of(gold) and not shape_of(without_name(gold))
    if (shape and shape.kind == "list") or is_asked:
        return prediction
    return without_name(prediction)


def _part_or_value(
    gold: str, prediction: str, gold_shape: Shape | None, shape: Shape | None, tolerance: float | None
) -> Match | None:
    r"""One side is one value: `\pm` opens to two, and a set of one element is its element."""
    if r"\pm" in gold or r"\pm" in prediction or "+-" in gold + prediction:
        golds = list(gold_shape.parts) if gold_shape and gold_shape.kind in ("list", "set") else [gold]
        predictions = list(shape.parts) if shape and shape.kind in ("list", "set") else [prediction]
        if len(opened(golds)) > 1 and len(opened(predictions)) > 1:
            return _lists(golds, predictions, tolerance)
    one = shape or gold_shape
    assert one is not None
    if one.kind == "set" and len(one.parts) == 1:
        sides = (one.parts[0], prediction) if gold_shape else (gold, one.parts[0])
        return equivalent(*sides, tolerance)
    if "matrix" in prediction or "matrix" in gold or "array" in prediction + gold:
        return None
    return Match(False, "one value against several")


def _lists(golds: list[str], predictions: list[str], tolerance: float | None) -> Match:
    if not all(is_equation(gold) for gold in golds):
        golds = [without_name(gold) for gold in golds]
        predictions = [without_name(prediction) for prediction in predictions]
    return equivalent_list(golds, predictions, tolerance)


def _same_shape(gold: Shape, shape: Shape, tolerance: float | None) -> Match:
    golds, parts = list(gold.parts), list(shape.parts)
    kinds = {gold.kind, shape.kind}
    if kinds <= {"list", "set"}:
        return _lists(golds, parts, tolerance)
    if "set" in kinds and "[]" in (gold.brackets, shape.brackets) and len(parts) > 2:
        return _lists(golds, parts, tolerance)  # a list in a programmer's brackets
    if "set" in kinds:
        return Match(False, "a pair or matrix is not a set")
    if kinds == {"matrix"} and gold.brackets != shape.brackets:
        return Match(False, "another size of matrix")
    if kinds == {"tuple"} and gold.brackets != shape.brackets:
        return Match(False, "other brackets")
    if (
        kinds == {"matrix", "tuple"}
        and "1" not in (gold.brackets + shape.brackets).split("×")[-1][:1] + gold.brackets[:1]
    ):
        return Match(False, "a matrix is not a tuple")
    if "list" in kinds and "tuple" in kinds:
        if (gold.brackets + shape.brackets) not in ("()", "[]"):
            return Match(False, "other brackets")
        golds, parts = [without_name(part) for part in golds], [without_name(part) for part in parts]
    if len(golds) != len(parts):
        return Match(False, f"{len(parts)} parts where {len(golds)} are asked for")
    matches = [equivalent(*pair, tolerance) for pair in zip(golds, parts, strict=True)]
    if any(match.is_equal is False for match in matches):
        return Match(False, "a part differs")
    return Match(None if any(match.is_equal is None for match in matches) else True, "part by part")


def _equations(gold: str, prediction: str, tolerance: float | None) -> Match | None:
    gold_signs, signs = relations(gold)[1], relations(prediction)[1]
    if not gold_signs and not signs:
        return None
    if r"\approx" in prediction:
        return None
    if gold_signs and signs:
        return _two_equations(gold, prediction, tolerance)
    if signs:
        if set(signs) != {"="}:
            return Match(False, "a relation where none is asked for")
        value = value_of_equation(prediction)
        if value is None:
            return Match(False, "an equation where none is asked for")
        return equivalent(gold, value, tolerance)
    if set(gold_signs) != {"="}:
        return Match(False, "a relation is asked for")
    value = value_of_equation(gold) if without_name(gold) != gold or len(gold_signs) > 1 else None
    if value is None:
        return Match(False, "an equation is asked for")
    return equivalent(value, prediction, tolerance)


def _two_equations(gold: str, prediction: str, tolerance: float | None) -> Match | None:
    definitions = definition(gold), definition(prediction)
    if definitions[0] and definitions[1]:
        (wanted, old), (given, new) = definitions[0], definitions[1]
        nodes = read_formula(wanted), read_formula(given)
        if nodes[0] and nodes[1]:
            second = renamed(nodes[1], new, old) if old and new and old != new else nodes[1]
            if same_expression(nodes[0], _constant_renamed(nodes[0], second)):
                return Match(True, "the same definition")
    same = same_equation(gold, prediction)
    if same is not None:
        return Match(same, "equations")
    if is_equation(gold) and is_equation(prediction):
        values = value_of_equation(gold), value_of_equation(prediction)
        heads = [squeezed(relations(text)[0][0]) for text in (gold, prediction)]
        if values[0] and values[1] and heads[0] == heads[1]:
            return equivalent(values[0], values[1], tolerance)
    return None


def _expressions(gold: str, prediction: str, tolerance: float | None) -> Match:
    if r"\approx" in prediction:
        return _either_side(gold, prediction, tolerance)
    if r"\pm" in gold + prediction or "+-" in gold + prediction:
        golds, predictions = opened([gold]), opened([prediction])
        return _lists(golds, predictions, tolerance)
    if not is_balanced(prediction):
        return Match(None, "unbalanced braces")
    pairs = _readings(gold, prediction)
    for wanted, given in pairs:
        outcome = _values(wanted, given, tolerance)
        if outcome is not None:
            if outcome:
                return Match(True, "values")
            last = (wanted, given) == pairs[-1]
            if last:
                return Match(False, "values")
    if units_differ(split_unit(gold)[1], split_unit(prediction)[1]):
        return Match(False, "another unit")
    return compare_symbols(without_unit(gold), without_unit(prediction), tolerance)


def _readings(gold: str, prediction: str) -> list[tuple[str, str]]:
    """Return the texts to compare: as they stand (so that 90° is π/2), then without units."""
    (wanted, gold_unit), (given, unit) = split_unit(gold), split_unit(prediction)
    if units_differ(gold_unit, unit):
        return []
    return list(dict.fromkeys([(gold, prediction), (wanted, given)]))


def _values(gold: str, prediction: str, tolerance: float | None) -> bool | None:
    wanted, given = _read(gold), _read(prediction)
    if wanted is None or given is None:
        return None
    number, gold_number = read_number(prediction), read_number(gold)
    if not symbols(wanted) and not symbols(given):
        value, other = constant_value(wanted), constant_value(given)
        if value is None or other is None:
            return None
        if tolerance is not None and abs(inexact(value) - inexact(other)) <= tolerance:
            return True
        if number is not None and rounds_to_value(value, number):
            return True
        if gold_number is not None and rounds_to_value(other, gold_number):
            return True
    return same_expression(wanted, _constant_renamed(wanted, given))


def _constant_renamed(gold: Node, prediction: Node) -> Node:
    """An integral's constant may have another letter."""
    missing, extra = symbols(gold) - symbols(prediction), symbols(prediction) - symbols(gold)
    for name in extra:
        if re.fullmatch(r"[cCkK]_\d", name) and name.swapcase() in missing:
            prediction = renamed(prediction, name, name.swapcase())
    if gold.kind == "+" and missing == {"C"} and len(extra) == 1 and extra <= {"c", "K", "k"}:
        return renamed(prediction, next(iter(extra)), "C")
    return prediction


@lru_cache(maxsize=2048)
def _read(text: str) -> Node | None:
    return read_formula(text)


def _either_side(gold: str, prediction: str, tolerance: float | None) -> Match:
    sides = [side.strip() for side in prediction.split(r"\approx") if side.strip()]
    if not sides or len(sides) == len(prediction.split(r"\approx")) - 1 == 0:
        return Match(None, "nothing beside an approximation sign")
    matches = [equivalent(gold.replace(r"\approx", "").strip(), side, tolerance) for side in sides[-3:]]
    return max(matches, key=lambda match: (match.is_equal is True, match.is_equal is not None))
