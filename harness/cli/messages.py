"""Small words of messages: a number with its noun, and a hint at what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number and what it counts: `1 sample`, `2 samples`; `plural` is `singular` with an s by default."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def did_you_mean(word: str, names: Iterable[str]) -> str:
    """Return a hint at the name that is most like a wrong one, for the end of a message; empty where none is."""
    close = difflib.get_close_matches(word, list(names), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
