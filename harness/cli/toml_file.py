"""Read hand-written TOML files with one-line errors."""

from __future__ import annotations

import tomllib
from importlib.resources.abc import Traversable
from typing import Any


def read_toml(path: Traversable, label: str | None = None) -> dict[str, Any]:
    """Return the contents of a TOML file or package resource.

    label: prefix of error messages, such as `--config my.toml`; default: the path. Raises ValueError with a one-line
    message if the file is missing, a folder, not UTF-8 or not TOML.
    """
    label = str(path) if label is None else label
    try:
        return parse_toml(path.read_text(encoding="utf-8"), label)
    except FileNotFoundError as error:
        raise ValueError(f"{label}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{label}: not a readable TOML file: {error}") from error


def parse_toml(text: str, label: str) -> dict[str, Any]:
    """Parse a TOML document. Raises ValueError with a one-line message that starts with `label`."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, or Python's limit on the digits of an integer
        raise ValueError(f"{label}: not a readable TOML file: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{label}: not a readable TOML file: nested too deeply") from error
