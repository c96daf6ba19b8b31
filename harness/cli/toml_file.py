"""Read TOML files, with one-line errors for people who wrote them by hand."""

from __future__ import annotations

import tomllib
from importlib.resources.abc import Traversable
from typing import Any


def read_toml(path: Traversable, label: str | None = None) -> dict[str, Any]:
    """Return the contents of a TOML file, which may be one of a package (importlib.resources).

    label: what the error message calls the file, for example `--config my.toml`; its path by default.
    Raises ValueError with one line where the file is missing or a folder, is not UTF-8 or is not TOML.
    """
    label = str(path) if label is None else label
    try:
        return parse_toml(path.read_text(encoding="utf-8"), label)
    except FileNotFoundError as error:
        raise ValueError(f"{label}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{label}: not a readable TOML file: {error}") from error


def parse_toml(text: str, label: str) -> dict[str, Any]:
    """Return the contents of a TOML document. Raises ValueError with one line that starts with `label`."""
    try:
        return tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and Python's limit on the digits of an integer
        raise ValueError(f"{label}: not a readable TOML file: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{label}: not a readable TOML file: nested too deeply") from error
