"""Multiple choice: which option an extracted answer names."""

from __future__ import annotations

import re
import string

from grading.reading.clean import clean, squeezed, without_text_commands

_LETTER = re.compile(r"(?:(?i:option|choice|answer)\s{0,3}:?\s{0,3})?[\[(]?\s?([A-Za-z])\s?[\])]?\s?[.:,]?")
_LETTER_AND_TEXT = re.compile(
    r"(?:(?i:option|choice|answer)\s{0,3}:?\s{0,3})?(?:\(([A-Za-z])\)|([A-Za-z])[.):,])\s*(\S.*)", re.DOTALL
)
_LETTER_IS_TEXT = re.compile(r"(?:(?i:option|choice)\s{1,3})\(?([A-Z])\)?\b.*|([A-Z])\s+[-–—=]\s+\S.*", re.DOTALL)


def letters(choices: tuple[str, ...]) -> str:
    """Return the letters in use; all of them where the options are not known."""
    return string.ascii_uppercase[: len(choices)] if choices else string.ascii_uppercase


def chosen_letter(answer: str, choices: tuple[str, ...]) -> str | None:
    """Return the option's letter: a letter, a letter with text, or a text that is exactly one option's; else None.

    Where letter and text disagree the letter counts: it is what the prompt asks for.
    """
    plain = without_text_commands(answer.strip().strip("$*` ")).strip("*` ")
    plain = plain.removeprefix(r"\(").removesuffix(r"\)").strip().rstrip("\\ ")
    match = _LETTER.fullmatch(plain) or _LETTER_AND_TEXT.fullmatch(plain) or _LETTER_IS_TEXT.fullmatch(plain)
    if match:
        letter = next((group for group in match.groups() if group), "").upper()
        if letter in letters(choices):
            return letter
    wanted = _comparable(plain)
    same = [letter for letter, choice in zip(letters(choices), choices, strict=False) if _comparable(choice) == wanted]
    return same[0] if len(same) == 1 and wanted else None


def _comparable(text: str) -> str:
    return squeezed(without_text_commands(clean(text))).casefold()
