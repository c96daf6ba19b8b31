"""Text of models and of others is hostile: on a terminal it must not move the cursor, change colors or hide anything.

`printable` is the one place that escapes it. Tables and files call it where they are written (harness.cli.screen,
warehouse.tables); whatever else a command prints goes through it on its way to the terminal.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import IO, Any

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
"""Unicode categories shown as escapes: control, format (such as text direction), surrogate, private use, line and
paragraph separators."""
_NO_CHARACTERS = {"\ufffe", "\uffff"}
"""Code points that no document may hold, such as one of XML."""
_PLAIN = re.compile(r"[\t\n -~]*")
_ENDS = "\r\n"
"""What csv ends lines with."""


def printable(text: str, keep: str = "") -> str:
    """Return a text with visible escapes for all characters that could act on a terminal, except those in `keep`."""
    return "".join(c if c in keep or not _is_hidden(c) else c.encode("unicode_escape").decode("ascii") for c in text)


def _is_hidden(character: str) -> bool:
    return unicodedata.category(character) in _HIDDEN or character in _NO_CHARACTERS


class Escaping:
    """A stream for text, every line and tab of which is kept."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self.rich_proxied_file = stream
        """What rich writes to, whose colors are its own: harness.cli.screen.Console escapes what they are of."""

    def write(self, text: str) -> int:
        """Write a text, escaped."""
        if not _PLAIN.fullmatch(text):
            text = _ENDS.join(printable(part, "\t\n") for part in text.split(_ENDS))
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def escaped_output() -> Iterator[None]:
    """Escape what is printed."""
    with redirect_stdout(Escaping(sys.stdout)), redirect_stderr(Escaping(sys.stderr)):
        yield
