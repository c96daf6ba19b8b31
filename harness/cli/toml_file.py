"""Read hand-written TOML files with one-line errors."""

from __future__ import annotations

import re
import tomllib
from importlib.resources.abc import Traversable
from typing import Any

_MOST_CHARACTERS = 1_000_000


def read_toml(path: Traversable, label: str | None = None) -> dict[str, Any]:
    """Return the contents of a TOML file or package resource.

    label: prefix of error messages, such as `--config my.toml`; default: the path. Raises ValueError with a one-line
    message if the file is missing, not a regular file, larger than 1 MB, not UTF-8 or not TOML.
    """
    label = str(path) if label is None else label
    try:
        if not path.is_file():  # a pipe would block
            raise ValueError(f"{label}: no such file, or not a regular file")
        with path.open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{label}: not a readable TOML file: {error}") from error
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"{label}: not a readable TOML file: larger than 1 MB")
    return parse_toml(text, label)


def parse_toml(text: str, label: str) -> dict[str, Any]:
    """Parse a TOML document. Raises ValueError with a one-line message that starts with `label`."""
    if re.search(r"\\u0000|\\U00000000", text):
        raise ValueError(f"{label}: contains a NUL character, which is invalid in paths and arguments")
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or Python's limit on the digits of an integer
        raise ValueError(f"{label}: not a readable TOML file: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{label}: not a readable TOML file: nested too deeply") from error
