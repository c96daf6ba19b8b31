"""The texts of a wording: what each must hold, and how its placeholders are filled."""

from __future__ import annotations

import re
import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field

MAX_TEXT_CHARACTERS = 8000
_LONE_WORD = re.compile(r"(?<![\\\w}])\{([a-z]+(?:_[a-z]+)*)\}")
"""A lower-case word in braces that is no argument of a LaTeX command, and so meant as a placeholder."""


def render(template: str, **values: str) -> str:
    """Return the template with its placeholders replaced, in one pass, so that inserted text is never read again."""
    pattern = "|".join(map(re.escape, values))
    return re.sub(rf"\{{({pattern})\}}", lambda found: values[found[1]], template)


def printable(text: str) -> str:
    """Return the text. Raises ValueError where it holds a control character that no prompt needs."""
    if any(unicodedata.category(character) == "Cc" and character not in "\n\t\r" for character in text):
        raise ValueError("holds a control character")
    return text


def _needed(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty; this text is needed")
    return text


def _reply(text: str) -> str:
    if text != text.rstrip():
        raise ValueError("ends with white space; a space follows by itself where the tokenizer has one there")
    return text


def placeholders(*required: str, optional: tuple[str, ...] = ()) -> AfterValidator:
    """Return the check of a template: it holds what is required and no unknown placeholder."""
    known = (*required, *optional)

    def check(template: str) -> str:
        for name in required:
            if f"{{{name}}}" not in template:
                raise ValueError(f"lacks {{{name}}}")
        for name in _LONE_WORD.findall(template):
            if name not in known:
                valid = ", ".join(f"{{{word}}}" for word in known) or "none"
                raise ValueError(f"unknown placeholder {{{name}}}; valid here: {valid}")
        return template

    return AfterValidator(check)


AnyText = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS), AfterValidator(printable)]
"""A text that may be empty."""
NeededText = Annotated[AnyText, AfterValidator(_needed)]
"""A text that may not be empty."""
ReplyText = Annotated[NeededText, placeholders(), AfterValidator(_reply)]
"""The beginning of a reply, which the model goes on with."""
ItemText = Annotated[AnyText, placeholders("label", "text")]
"""How one of several candidates or options is shown."""
