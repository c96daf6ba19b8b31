"""Which part of a text is the answer, and which rule found it.

Rules are tried from the most to the least explicit; the last occurrence of the first rule that applies is the answer.
All of them run in linear time over capped input. A text that was cut off only has explicit answers: its last number is
an intermediate result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_TEXT_CHARACTERS = 50_000
"""Only this many characters at the end of a text are searched."""
MAX_ANSWER_CHARACTERS = 2_000
"""A longer answer is cut, and never parsed."""

_BOX_TOKEN = re.compile(r"\\(?:boxed|fbox)\s{0,3}\{|\\[\\{}]|[{}]")
_HASHES = re.compile(r"^[ \t]{0,8}####[ \t]{0,8}", re.MULTILINE)
_FINAL = re.compile(r"(?i)final answer[*_]{0,3}\s{0,3}(?:is|:|=)[*_:]{0,4}\s{0,3}")
_PHRASE = re.compile(
    r"(?i)(?:\b(?:correct |right )?(?:answer|option|choice)\s{1,3}(?:is|=)|\banswer[*_]{0,3}\s{0,3}:)[*_:]{0,4}\s{0,3}"
)
_SENTENCE_END = re.compile(r"\.(?=\s|$)|,? (?:because|since|which|so|as) |\*\*")
_MATH = re.compile(
    r"\$\$?((?:[^$\\]|\\.){1,2000})\$|\\\(((?:(?!\\\)).){1,2000})\\\)|\\\[((?:(?!\\\]).){1,2000})\\\]", re.DOTALL
)
_NEXT_FORMULA = re.compile(r"\s{0,3}(?:,|and|or|, and|, or)\s{0,3}(?=\$|\\[(\[])")
_LAST_NUMBER = re.compile(r"(?<![\w.,/^_])[-−]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+(?![\w.]))?%?")
_BOLD_LETTER = re.compile(r"\*\*\s?\(?([A-Z])\)?[.):]?\s?\*\*|\*\*\s?\(?([A-Z])[.):]\s[^*\n]{0,300}\*\*")
_PAREN_LETTER = re.compile(r"\(([A-Z])\)")
_LETTER_LINE = re.compile(r"^\s{0,8}\(?([A-Z])[.):]?\s{0,8}$", re.MULTILINE)

CHOICE_GUESSES = (("bold_letter", _BOLD_LETTER), ("letter_line", _LETTER_LINE), ("paren_letter", _PAREN_LETTER))


@dataclass(frozen=True, slots=True)
class Extraction:
    """An answer as it stands in the text."""

    text: str
    rule: str
    """`boxed`, `hashes`, `final_answer`, `answer_is`, `bold_letter`, `letter_line`, `paren_letter` or `last_number`."""
    boxes: tuple[str, ...] = ()
    """All boxes of the text in order, where the rule is `boxed`: parts of an answer may stand in a box each."""


def final_part(text: str, thinks: bool) -> str | None:
    """Return what follows the chain of thought, or None where the chain never ends."""
    _, closed, rest = text.rpartition("</think>")
    rest = rest if closed else text
    opened = rest.find("<think>")
    if opened >= 0:
        return rest[:opened] if closed else None
    return None if thinks and not closed else rest


def extract(text: str, is_choice: bool, is_finished: bool) -> Extraction | None:
    """Return the answer in a text, or None. A text that is not finished has no guessed answers."""
    text = text[-MAX_TEXT_CHARACTERS:]
    boxes, unclosed = find_boxes(text)
    filled = tuple(box.strip()[: MAX_ANSWER_CHARACTERS + 1] for box in boxes if box.strip())
    if filled:
        return Extraction(filled[-1], "boxed", filled)
    if unclosed:
        return None  # it tried to box an answer: any other number in the text is a guess
    for rule, pattern in (("hashes", _HASHES), ("final_answer", _FINAL), ("answer_is", _PHRASE)):
        candidate = _phrase(_rest_of_line(pattern, text))
        if candidate:
            return Extraction(candidate[: MAX_ANSWER_CHARACTERS + 1], rule)
    return _guess(text, is_choice) if is_finished else None


def find_boxes(text: str) -> tuple[list[str], bool]:
    r"""Return the contents of all outermost balanced boxes, and whether the last box never closes."""
    openings: list[int | None] = []
    spans: list[tuple[int, int]] = []
    for token in _BOX_TOKEN.finditer(text):
        word = token.group()
        if word == "{":
            openings.append(None)
        elif word == "}":
            start = openings.pop() if openings else None
            if start is not None:
                while spans and spans[-1][0] > start:
                    spans.pop()
                spans.append((start, token.start()))
        elif word.endswith("{") and len(word) > 2:
            openings.append(token.end())
    last_closed = spans[-1][1] if spans else -1
    unclosed = any(start is not None and start > last_closed for start in openings)
    return [text[start:end] for start, end in spans], unclosed


def _last(pattern: re.Pattern[str], text: str) -> str | None:
    found = None
    for match in pattern.finditer(text):
        found = next((group for group in match.groups() if group), None)
    return found


def _rest_of_line(pattern: re.Pattern[str], text: str) -> str:
    end = None
    for match in pattern.finditer(text):
        end = match.end()
    return "" if end is None else text[end : end + 2 * MAX_ANSWER_CHARACTERS].partition("\n")[0]


def _phrase(line: str) -> str:
    """Cut the rest of a line down to the answer: the formulas it starts with, else up to the sentence's end."""
    line = line.strip().lstrip("*_: ").strip()
    formulas, position = [], 0
    while math := _MATH.match(line, position):
        formulas.append(next(group for group in math.groups() if group).strip())
        joint = _NEXT_FORMULA.match(line, math.end())
        position = joint.end() if joint else len(line)
    if formulas:
        return ", ".join(formulas)
    end = _SENTENCE_END.search(line, 1) if line else None
    return (line[: end.start()] if end else line).strip().strip("*_`\"' ")


def _guess(text: str, is_choice: bool) -> Extraction | None:
    if not is_choice:
        numbers = [match.group() for match in _LAST_NUMBER.finditer(text[-MAX_ANSWER_CHARACTERS:])]
        return Extraction(numbers[-1], "last_number") if numbers else None
    for rule, pattern in CHOICE_GUESSES:
        letter = _last(pattern, text)
        if letter:
            return Extraction(letter, rule)
    return None
