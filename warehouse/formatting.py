"""Numbers, intervals and errors as the text of table cells and messages, in one format everywhere."""

from __future__ import annotations

import itertools
import re

from harness.cli import permissions

NOTHING = "–"
"""Cell without a value."""
MINUS = "−"


def percent(share: float | None) -> str:
    """Return a fraction in percent with one decimal."""
    return NOTHING if share is None else f"{100 * share:.1f} %"


def floored_percent(share: float) -> int:
    """Return a fraction in whole percent, never rounded up: 99.9 % of the samples are not all of them."""
    return int(100 * share + 1e-9)


def number(value: float | None) -> str:
    """Return a value with three or more significant digits and its thousands grouped."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def fixed(value: float | None, digits: int, factor: float = 1.0) -> str:
    """Return factor × value with a fixed number of decimals."""
    return NOTHING if value is None else f"{factor * value:.{digits}f}".replace("-", MINUS)


def signed(value: float, digits: int) -> str:
    """Return a value with its sign and a fixed number of decimals."""
    return f"{value:+.{digits}f}".replace("-", MINUS)


def span(low: float | None, high: float | None, digits: int, factor: float = 1.0) -> str:
    """Return both ends of an interval, each times `factor`, with a fixed number of decimals."""
    if low is None or high is None:
        return NOTHING
    return f"{fixed(low, digits, factor)} to {fixed(high, digits, factor)}"


def p_value(p: float) -> str:
    """Return a p-value with three decimals, four below 0.01."""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


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
