"""Parts of messages: counts with nouns, did-you-mean hints, validation errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_LONGEST_KEY = 100


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 sample`, `2 samples`; `plural` defaults to `singular` with an s."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a hint at the closest valid name, to append to a message; empty if there is none."""
    close = difflib.get_close_matches(word, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def place_and_problem(error: ErrorDetails) -> str:
    """Return one of the errors in a ValidationError as `location: message`."""
    return ": ".join(filter(None, (".".join(map(str, error["loc"])), error["msg"])))


def first_error(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first validation error as one line: its location, and the problem or the valid keys."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))[:_LONGEST_KEY]
    if first["type"] == "extra_forbidden":
        for part in first["loc"][:-1]:
            model = cast("type[BaseModel]", model.model_fields[str(part)].annotation)
        return f"unknown key {place!r}; valid: {', '.join(model.model_fields)}"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"
