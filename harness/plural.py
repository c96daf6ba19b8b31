"""A number with its noun in the singular or the plural, for messages."""

from __future__ import annotations


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number and what it counts: `1 sample`, `2 samples`; `plural` is `singular` with an s by default."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"
