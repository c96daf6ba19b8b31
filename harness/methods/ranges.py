"""Range checks of hyper-parameters, so that a wrong value is reported before any model loads."""

from __future__ import annotations

from harness.settings.declaration import flag as flag


def check_range(name: str, value: float, low: float, high: float | None) -> None:
    """Raise ValueError, naming the flag and the valid range, where a value is outside [low, high]. None: no limit."""
    if value < low or (high is not None and value > high):
        valid = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{flag(name)} must be {valid}, not {value}")
