"""What a server's reply means, after checks: a server is another program, and its replies are not trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.engine import EngineError, Finish

LEAST_LOGPROB = -9000.0
"""vLLM writes -9999 for a log-probability of minus infinity, which JSON cannot hold."""
_MOST_CHARACTERS_SHOWN = 200


class BadReply(EngineError):
    """A reply that is not what the server's interface promises; the message is one line."""


class NotFinite(BadReply):
    """A reply with a log-probability that is not finite."""


@dataclass(frozen=True, slots=True)
class Written:
    """One completion, as a server reports it."""

    token_ids: tuple[int, ...]
    """The generated tokens, the end-of-sequence token included."""
    finish: Finish
    logprobs: tuple[float, ...] | None = None
    """Log-probabilities of the generated tokens (nats), of the first ones where the server leaves out the last; None
    where they were not asked for."""
    cached_tokens: int | None = None
    """Prompt tokens from the prefix cache; None where the server does not report them."""
    ranked: tuple[tuple[float, ...], ...] | None = None
    """Those of the most probable tokens at each of the same positions; None where they were not asked for."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The log-probabilities of named tokens as the next one, as a server reports them."""

    logprobs: Mapping[int, float]
    """By token id, in nats; only finite ones."""
    cached_tokens: int | None = None


def shown(text: object) -> str:
    """Return text of a server in one short line without control characters."""
    words = " ".join("".join(c if c.isprintable() else " " for c in str(text)[: 4 * _MOST_CHARACTERS_SHOWN]).split())
    return words if len(words) <= _MOST_CHARACTERS_SHOWN else f"{words[:_MOST_CHARACTERS_SHOWN]}…"


def field(record: Any, *path: str | int) -> Any:
    """Return what lies at a path of keys and positions in a reply; None where nothing does."""
    for key in path:
        if isinstance(key, str) and isinstance(record, dict):
            record = record.get(key)
        elif isinstance(key, int) and isinstance(record, list) and len(record) > key:
            record = record[key]
        else:
            return None
    return record


def token_ids(values: Any, vocabulary: int, most: int) -> tuple[int, ...]:
    """Return ids, at most so many and each below `vocabulary`. Raises BadReply."""
    if not isinstance(values, list) or len(values) > most:
        what = f"{len(values)} token ids instead of at most {most}" if isinstance(values, list) else "no token ids"
        raise BadReply(f"the server sent {what}")
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocabulary:
            raise BadReply(f"the server sent {shown(value)!r} as a token id, of {vocabulary} tokens")
    return tuple(values)


def count(value: Any, most: int) -> int | None:
    """Return a number of tokens between 0 and `most`; None where the server sent none."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return min(value, most) if is_count else None


def logprob(value: Any) -> float | None:
    """Return a log-probability in nats; None where it is missing or stands for minus infinity.

    Raises BadReply where it is no number, or above 0 by more than a rounding error.
    """
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value) or value > 1e-3:
        raise BadReply(f"the server sent {shown(value)!r} as a log-probability")
    return None if value <= LEAST_LOGPROB else min(0.0, float(value))


def token_logprobs(values: Any, most: int) -> tuple[float, ...] | None:
    """Return the log-probabilities of the first tokens, at most so many; None where the server did not send them.

    Raises BadReply where one of them is no log-probability, and NotFinite where it is not finite.
    """
    if not isinstance(values, list):
        return None
    numbers = [logprob(value) for value in values[:most]]
    finite = tuple(x for x in numbers if x is not None)
    if len(finite) != len(numbers):
        raise NotFinite("the server sent no finite log-probability for a token")
    return finite


def ranked_logprobs(values: Any, most: int) -> tuple[tuple[float, ...], ...] | None:
    """Return the log-probabilities of the most probable tokens at the first positions; None where none were sent.

    Raises BadReply where one of them is no log-probability.
    """
    if not isinstance(values, list):
        return None
    lists = (value if isinstance(value, list) else [] for value in values[:most])
    return tuple(tuple(x for x in map(logprob, of_token) if x is not None) for of_token in lists)
