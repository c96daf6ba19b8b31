"""Checks of hyper-parameters, so that a wrong value is named before any model loads."""

from __future__ import annotations


def within(name: str, value: float, low: float, high: float | None) -> None:
    """Raise ValueError, naming the flag and what would be right, where a value is out of its range."""
    if value < low or (high is not None and value > high):
        wanted = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"--{name.replace('_', '-')} must be {wanted}, not {value}")
