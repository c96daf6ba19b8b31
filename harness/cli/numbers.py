"""What the value of a numeric option may be, in plain words."""

from __future__ import annotations

import math
from typing import Any

import click


def in_plain_words(error: click.BadParameter) -> click.BadParameter:
    """Return the error of a number's option with what is valid for it; another error as it is.

    click says "is not a valid integer range" and "is not in the range x>=1".
    """
    wanted = None if error.param is None else expected(error.param.type)
    value, is_not, _ = error.message.rpartition(" is not ")
    if wanted is None or not is_not:
        return error
    return click.BadParameter(f"{value} is not {wanted}", error.ctx, error.param, error.param_hint)


def check(context: click.Context) -> None:
    """Raise BadParameter for an option that is "nan", which click takes for a number within every range."""
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if isinstance(value, float) and math.isnan(value):
            raise click.BadParameter("'nan' is not a number", context, parameter)


def expected(kind: click.ParamType[Any]) -> str | None:
    """Return what values a type of number takes, such as "a whole number from 1 to 1000"; None: it is of no number."""
    if isinstance(kind, click.types.IntParamType):
        words = "a whole number"
    elif isinstance(kind, click.types.FloatParamType):
        words = "a number"
    else:
        return None
    return f"{words}{_range(kind)}" if isinstance(kind, click.IntRange | click.FloatRange) else words


def _range(kind: click.IntRange | click.FloatRange) -> str:
    if kind.min is None or kind.max is None:
        low = "" if kind.min is None else f" above {kind.min:g}" if kind.min_open else f" of {_plain(kind.min)} or more"
        high = (
            "" if kind.max is None else f" below {kind.max:g}" if kind.max_open else f" of {_plain(kind.max)} or less"
        )
        return low or high
    if not kind.min_open and not kind.max_open:
        return f" from {_plain(kind.min)} to {_plain(kind.max)}"
    low = f" above {_plain(kind.min)}" if kind.min_open else f" of {_plain(kind.min)} or more"
    return f"{low} and {'below' if kind.max_open else 'up to'} {_plain(kind.max)}"


def _plain(bound: float) -> str:
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
