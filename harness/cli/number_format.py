"""Format numbers, intervals and durations for tables and messages."""

from __future__ import annotations

from decimal import Decimal

NOTHING = "–"
"""Text of a cell without a value."""
MINUS = "−"


def percent(share: float | None) -> str:
    """Return a fraction in percent with one decimal."""
    return NOTHING if share is None else f"{100 * share:z.1f} %"


def floored_percent(share: float) -> int:
    """Return a fraction in whole percent, rounded down so that 100 means all."""
    return int(100 * share + 1e-9)


def number(value: float | None) -> str:
    """Return a value with at least three significant digits and grouped thousands."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 100 else _plain(value, 3)


def fixed(value: float | None, digits: int, factor: float = 1.0) -> str:
    """Return factor × value with a fixed number of decimals."""
    return NOTHING if value is None else f"{factor * value:z.{digits}f}".replace("-", MINUS)


def signed(value: float, digits: int) -> str:
    """Return a value with its sign and a fixed number of decimals."""
    return f"{value:+z.{digits}f}".replace("-", MINUS)


def span(low: float | None, high: float | None, digits: int, factor: float = 1.0) -> str:
    """Return an interval `low to high`, scaled by `factor`, with a fixed number of decimals."""
    if low is None or high is None:
        return NOTHING
    return f"{fixed(low, digits, factor)} to {fixed(high, digits, factor)}"


def p_value(p: float) -> str:
    """Return a p-value with three decimals, four below 0.01."""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def duration(seconds: float) -> str:
    """Return seconds as `45 s`, `12 min` or `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def hours(value: float) -> str:
    """Return hours with one decimal, or with two significant digits below 1."""
    return f"{value:,.1f}" if value >= 1 else _plain(value, 2)


def sides(cards: tuple[int | None, int | None], runs: tuple[int, int] = (1, 1)) -> str:
    """Return a label for a ratio of times: the GPUs and runs on both sides, e.g. `2 GPUs : 1, 3 runs : 1`.

    Equal or unknown GPU counts are omitted, as are single runs. Equal numbers of runs are shown once, as `3 runs`.
    """
    own, base = cards
    told = [] if own is None or base is None or own == base else [f"{own} {'GPU' if own == 1 else 'GPUs'} : {base}"]
    if max(runs) > 1:
        told.append(f"{runs[0]} {'run' if runs[0] == 1 else 'runs'}" + (f" : {runs[1]}" if runs[0] != runs[1] else ""))
    return ", ".join(told)


def _plain(value: float, digits: int) -> str:
    """Return a value with this many significant digits and no exponent: 0.000095."""
    text = f"{value:.{digits}g}"
    return f"{Decimal(text):f}" if "e" in text else text
