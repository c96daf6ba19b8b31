"""How a model is talked to where it is not as its chat template says by itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_LIMIT = 16 << 20
"""Bytes of the largest tokenizer configuration that is read."""
_SET_HERE = ("messages", "add_generation_prompt", "tools", "documents", "bos_token", "eos_token", "raise_exception",
             "strftime_now", "range", "namespace")  # fmt: skip
"""Names in a template that are not for a user to set."""
_GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")
"""Marks of the assistant's text, a statement that transformers adds to Jinja."""


@dataclass(frozen=True)
class Conventions:
    """What was asked for a model."""

    variables: tuple[tuple[str, str], ...] = ()
    """Variables of the chat template by name, as JSON."""
    thinking_tags: str | None = None
    """`OPEN,CLOSE`, or `none` for a plain model; None: what the chat template has."""
    date: str = "2024-07-26"
    """The day that chat templates take for today, as in ISO 8601: a run keeps that of its first launch."""

    @classmethod
    def of(cls, variables: Mapping[str, Any] | None, thinking_tags: str | None, date: str | None = None) -> Conventions:
        """Return the conventions for variables by name."""
        pairs = sorted((variables or {}).items())
        asked = cls(tuple((name, json.dumps(value, sort_keys=True)) for name, value in pairs), thinking_tags)
        return asked if date is None else replace(asked, date=date)

    @property
    def values(self) -> dict[str, Any]:
        """The variables' values by name."""
        return {name: json.loads(value) for name, value in self.variables}


DEFAULT = Conventions()


def read_by(template: str) -> set[str]:
    """Return the names of the variables that a chat template reads and a user may set. Raises ValueError."""
    from jinja2 import Environment, TemplateError, meta

    environment = Environment(extensions=["jinja2.ext.loopcontrols"], autoescape=False)
    try:
        tree = environment.parse(_GENERATION.sub("", template))
    except TemplateError as error:
        raise ValueError(f"its chat template cannot be read: {error}") from error
    return meta.find_undeclared_variables(tree) - set(_SET_HERE)


def has_chat_template(folder: Path) -> bool | None:
    """Return whether a model's folder has a chat template, without loading its tokenizer; None where it cannot tell."""
    if any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json")):
        return True
    file = folder / "tokenizer_config.json"
    try:
        if not file.is_file() or file.stat().st_size > _LIMIT:
            return None
        return bool(json.loads(file.read_bytes()).get("chat_template"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
