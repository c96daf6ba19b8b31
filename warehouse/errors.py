"""Errors of DuckDB, of files and of settings as one line."""

from __future__ import annotations

import itertools
import re

from harness.cli import permissions

_NOT_THE_MESSAGE = re.compile(r"LINE \d+:|Stack Trace:")
"""Beginning of what follows the message of DuckDB's errors: the line of the SQL, or a trace of calls."""


def one_line(error: Exception) -> str:
    """Return an error's message as one line, with DuckDB's hints but without its quotation of the SQL."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        return "; ".join(": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors())
    if isinstance(error, OSError) and permissions.is_forbidden(error):
        return permissions.explained(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    lines = (line.strip() for line in str(error).splitlines())
    message = itertools.takewhile(lambda line: not _NOT_THE_MESSAGE.match(line), lines)
    return " ".join(filter(None, message)) or type(error).__name__
