"""Multiple choice: the option that an extracted answer names."""

from __future__ import annotations

import re
import string

from grading.reading.clean import clean, squeezed, without_text_commands

_LETTER = re.compile(r"(?:(?i:option|choice|answer)\s{0,3}:?\s{0,3})?[\[(]?\s?([A-Za-z])\s?[\])]?\s?[.:,]?")
_LETTER_AND_TEXT = re.compile(
    r"(?:(?i:option|choice|answer)\s{0,3}:?\s{0,3})?(?:\(([A-Za-z])\)|([A-Za-z])[.):,])\s*(\S.*)", re.DOTALL
)
_LETTER_IS_TEXT = re.compile(
    r"([A-Z])(?: is (?:the )?(?:correct|right|answer|best)\b.*| \(.*|, not\b.*)|[^\n]*\boption \(?([A-Z])\)?[.]?"
    r"|(?:(?i:option|choice)\s{1,3})\(?([A-Z])\)?\b.*|([A-Z])\s+[-–—=]\s+\S.*",
    re.DOTALL,
)


def letters(choices: tuple[str, ...]) -> str:
    """Return the letters of the options, or the whole alphabet where the options are unknown."""
    return string.ascii_uppercase[: len(choices)] if choices else string.ascii_uppercase


def chosen_letter(answer: str, choices: tuple[str, ...]) -> str | None:
    """Return the letter of the option that an answer names, or None where it names none or more than one.

    An answer may be a letter, a letter with text, or the text of exactly one option. Where letter and text disagree,
    the letter counts, because the prompt asks for it.
    """
    plain = without_text_commands(answer.strip().strip("$*` ")).strip("*` ")
    plain = plain.removeprefix(r"\(").removesuffix(r"\)").strip().rstrip("\\ ")
    match = _LETTER.fullmatch(plain) or _LETTER_AND_TEXT.fullmatch(plain) or _LETTER_IS_TEXT.fullmatch(plain)
    if match:
        letter = next((group for group in match.groups() if group), "").upper()
        if letter in letters(choices):
            return letter
    text = _comparable(plain)
    matching = [
        letter for letter, choice in zip(letters(choices), choices, strict=False) if _comparable(choice) == text
    ]
    return matching[0] if len(matching) == 1 and text else None


def _comparable(text: str) -> str:
    return squeezed(without_text_commands(clean(text))).casefold()
