"""Where a text in tokens ends inside a character: tokens may hold some of the bytes of one."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

LOOKED_AT = 8
"""Last tokens of a text that decide: more than a character has bytes."""


def num_unfinished(last_tokens: Sequence[bytes]) -> int:
    """Return how many of the last tokens of a text, given as UTF-8, have to go so that it ends with a whole character.

    Bytes that can no longer become a character count as one: they are the author's own.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for count in range(len(last_tokens)):
        decoder.reset()
        decoder.decode(b"".join(last_tokens[: len(last_tokens) - count]))
        begun, _ = decoder.getstate()
        if not begun:
            return count
    return len(last_tokens)
