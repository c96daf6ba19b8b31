r"""Answers of several parts: bare lists and sets in any order, tuples in order, and `a \pm b` as two values."""

from __future__ import annotations

import re

from grading.reading.clean import clean, squeezed
from grading.reading.pair import PLUS_MINUS, Compare, Match, Pair
from grading.reading.relations import is_equation, name_of, named_values, without_name
from grading.reading.units import split_unit

MAX_PARTS = 400
"""Longer lists are not compared, except for parts that are equal as strings."""
_ARGUMENT = re.compile(r"\\?[A-Za-z]{1,8}'{0,2}\s?\(\s?([a-z])\s?\)\s?=")
_MINUS_PLUS = re.compile(r"\\mp(?![a-z])")


def split_plus_minus(parts: list[str]) -> list[str]:
    r"""Replace every `a \pm b` by its two values."""
    values: list[str] = []
    for part in parts:
        if PLUS_MINUS.search(part):
            for upper, lower in (("+", "-"), ("-", "+")):
                values.append(_MINUS_PLUS.sub(lower, PLUS_MINUS.sub(upper, part)))
        else:
            values.append(part)
    return values


def compare_unordered(golds: list[str], predictions: list[str], pair: Pair, compare: Compare) -> Match:
    """Compare two lists as multisets: in any order, every element as often as in the gold.

    `pair` is the pair that the parts come from; its tolerance and unit hold for each part.
    """
    golds = split_plus_minus([clean(part) for part in golds])
    predictions = split_plus_minus([clean(part) for part in predictions])
    if len(golds) != len(predictions):
        return _other_length(golds, predictions)
    golds, predictions = _without_equal_strings(golds, predictions)
    if len(predictions) > MAX_PARTS:
        return Match(None, f"more than {MAX_PARTS} parts")
    is_readable = True
    units = {split_unit(gold)[1] for gold in golds} - {""}
    for gold in golds:
        for index, prediction in enumerate(predictions):
            unit = split_unit(prediction)[1]
            if unit in units and unit != split_unit(gold)[1]:
                continue  # the words after a number tell the parts apart: `3 boys, 5 girls`
            match = compare(pair.with_texts(gold, prediction))
            is_readable = is_readable and match.is_equal is not None
            if match.is_equal:
                del predictions[index]
                break
        else:
            return Match(False if is_readable else None, "a part is missing")
    return Match(True, "all parts")


def compare_unnamed(golds: list[str], predictions: list[str], pair: Pair, compare: Compare) -> Match:
    """Compare two lists of values that may have names: by name where each gold has its own, else as multisets."""
    golds, predictions = _one_name_each(golds), _one_name_each(predictions)
    predictions = _with_argument_of(golds, predictions)
    names, other = ([name_of(part) for part in parts] for parts in (golds, predictions))
    has_names = all(names) and (all(other) or not any(is_equation(part) for part in predictions))
    if has_names or not all(any(without_name(part) != part for part in parts) for parts in (golds, predictions)):
        golds, predictions = [without_name(gold) for gold in golds], [without_name(part) for part in predictions]
    if has_names and len(golds) == len(predictions) and len(set(names)) == len(names) > 1:
        if sorted(names) == sorted(other):
            predictions = [predictions[other.index(name)] for name in names]
        elif set(names) & set(other) or (any("(" in name for name in names) and all(other)):
            return Match(False, "other names")
        if not any(other) or len(set(other)) == len(other):
            return compare_ordered(golds, predictions, pair, compare)
    return compare_unordered(golds, predictions, pair, compare)


def _with_argument_of(golds: list[str], predictions: list[str]) -> list[str]:
    """Write `f(t) = 2t` as `f(x) = 2x` where all functions of the golds have the argument x, and x is nothing else."""
    letters = [{match.group(1) for part in parts if (match := _ARGUMENT.match(part))} for parts in (golds, predictions)]
    if any(len(found) != 1 for found in letters) or letters[0] == letters[1]:
        return predictions
    (new,), (old,) = letters
    alone = r"(?<![A-Za-z\\]){}(?![A-Za-z])"
    if any(re.search(alone.format(new), part) for part in predictions):
        return predictions
    return [re.sub(alone.format(old), new, part) for part in predictions]


def in_order_of_names(parts: list[str]) -> list[str]:
    """Return the values of `y = 2, x = 1` in the order of coordinates, other parts as they stand, all without names."""
    is_point = sorted(name_of(part) for part in parts) in (["x", "y"], ["x", "y", "z"])
    return [without_name(part) for part in (sorted(parts, key=name_of) if is_point else parts)]


def _one_name_each(parts: list[str]) -> list[str]:
    """Write `x = y = 4` as `x = 4` and `y = 4`."""
    return [f"{name} = {value}" if name else value for part in parts for name, value in named_values(part)]


def compare_ordered(golds: list[str], predictions: list[str], pair: Pair, compare: Compare) -> Match:
    """Compare two lists part by part, in order."""
    if len(golds) != len(predictions):
        return _other_length(golds, predictions)
    matches = [compare(pair.with_texts(*texts)) for texts in zip(golds, predictions, strict=True)]
    if any(match.is_equal is False for match in matches):
        return Match(False, "a part differs")
    return Match(None if any(match.is_equal is None for match in matches) else True, "part by part")


def _other_length(golds: list[str], predictions: list[str]) -> Match:
    return Match(False, f"{len(predictions)} parts where {len(golds)} are asked for")


def _without_equal_strings(golds: list[str], predictions: list[str]) -> tuple[list[str], list[str]]:
    """Return the golds and predictions that have no counterpart with the same characters."""
    by_string: dict[str, list[str]] = {}
    for prediction in predictions:
        by_string.setdefault(squeezed(prediction), []).append(prediction)
    unmatched = [gold for gold in golds if not (by_string.get(squeezed(gold)) and by_string[squeezed(gold)].pop())]
    return unmatched, [prediction for same in by_string.values() for prediction in same]
