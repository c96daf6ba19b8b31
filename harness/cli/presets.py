"""The papers' settings by name, from harness/papers/presets.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the papers' settings by name; keys are flag names with underscores."""
    text = resources.files("harness.papers").joinpath("presets.toml").read_text(encoding="utf-8")
    return {
        name: {key.replace("-", "_"): value for key, value in values.items()}
        for name, values in tomllib.loads(text).items()
    }
