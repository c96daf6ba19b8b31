"""Small words of messages: a number with its noun, a hint at what was meant, and what is wrong in a table."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

_LONGEST_KEY = 100


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number and what it counts: `1 sample`, `2 samples`; `plural` is `singular` with an s by default."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a hint at the name that is most like a wrong one, for the end of a message; empty where none is."""
    close = difflib.get_close_matches(word, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def place_and_problem(error: ErrorDetails) -> str:
    """Return one of the errors of a ValidationError as `place: what is wrong`."""
    return ": ".join(filter(None, (".".join(map(str, error["loc"])), error["msg"])))


def first_error(error: ValidationError, model: type[BaseModel]) -> str:
    """Return the first error in what a model was made of, in one line: its place, and what is wrong or valid there."""
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"]))[:_LONGEST_KEY]
    if first["type"] == "extra_forbidden":
        for part in first["loc"][:-1]:
            model = cast("type[BaseModel]", model.model_fields[str(part)].annotation)
        return f"unknown key {place!r}; valid: {', '.join(model.model_fields)}"
    return f"{place}: {first['msg'].removeprefix('Value error, ')}"
