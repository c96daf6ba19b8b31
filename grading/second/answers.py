"""Extraction of answers and of chosen options, as the second grader does it."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

READ_CHARACTERS = 100_000
"""Characters at the end of a text that are searched."""
MAX_BOXES = 50

_OPENING = re.compile(r"\\f?boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_STATED = re.compile(r"(?i:answer|result)(?i:\s+is)?\s*[:=]?\s*(?:\*\*)?\s*([^\n]{1,300})")
_HASHES = re.compile(r"####\s*([^\n]{1,300})")
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w])")
_STATED_LETTER = re.compile(r"(?i:answer|option|choice)(?i:\s+is)?\s*:?\s*\**\(?([A-J])\b")
_SINGLE_LETTER = re.compile(r"\(([A-J])\)|^\s*\**([A-J])\**[.)]?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer as it stands in the text."""

    text: str
    rule: str
    boxes: tuple[str, ...] = ()
    """All boxes in the text, first to last; empty for other rules."""


def find_answer(text: str, thinks: bool, is_choice: bool, is_cut_off: bool) -> Answer | None:
    """Return the last box, else what the text states as the answer, else the last number of a finished text.

    A chain of thought that never ends holds no answer. Without a box, the answer to a choice is the last letter stated.
    """
    head, end, rest = text.rpartition("</think>")
    if (thinks or "<think>" in head + rest) and not end:
        return None
    rest = rest[-READ_CHARACTERS:]
    boxes = _boxes(rest)
    if boxes:
        return Answer(boxes[-1], "box", tuple(boxes))
    if is_choice:
        return _letter(rest)
    if is_cut_off:
        return None
    for pattern, rule in ((_HASHES, "hashes"), (_STATED, "said")):
        stated = pattern.findall(rest)
        if stated and (answer := _first_sentence(stated[-1])):
            return Answer(answer, rule)
    numbers = _NUMBER.findall(rest)
    return Answer(numbers[-1], "last number") if numbers else None


def _boxes(text: str) -> list[str]:
    """Return the contents of the complete outermost boxes, in time linear in the text."""
    contents: list[str] = []
    position = 0
    for opening in list(_OPENING.finditer(text))[-MAX_BOXES:]:
        if opening.start() < position:
            continue
        depth = 1
        for brace in _BRACE.finditer(text, opening.end()):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                contents.append(text[opening.end() : brace.start()].strip())
                position = brace.end()
                break
        else:
            break
    return [box for box in contents if box]


def _first_sentence(line: str) -> str:
    """Return the first formula of a line where there is one, else the text up to the end of the sentence."""
    formula = re.search(r"\$([^$]+)\$|\\\((.+?)\\\)", line)
    if formula:
        return (formula.group(1) or formula.group(2)).strip()
    return re.split(r"\.(?:\s|$)|\s+(?:because|since|which)\s", line)[0].strip(" *:")


def _letter(text: str) -> Answer | None:
    stated = _STATED_LETTER.findall(text)
    if stated:
        return Answer(stated[-1], "said")
    letters = [in_brackets or on_line for in_brackets, on_line in _SINGLE_LETTER.findall(text)]
    return Answer(letters[-1], "letter") if letters else None


def named_option(answer: str, choices: tuple[str, ...]) -> str | None:
    """Return the letter that an answer is or begins with, or of the only option with its text; else None."""
    letters = string.ascii_uppercase[: len(choices) or 10]
    plain = re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}", r"\1", answer).strip(" $*.")
    match = re.match(r"(?i:option|choice)?\s*\(?([A-Za-z])(?:\)|[.:,]|$)", plain)
    if match and match.group(1).upper() in letters:
        return match.group(1).upper()
    matching = [i for i, choice in enumerate(choices) if _folded(choice) == _folded(plain)]
    return letters[matching[0]] if len(matching) == 1 else None


def _folded(text: str) -> str:
    return re.sub(r"[\s$*.{}\\]+", "", text).casefold()


def without_unit(answer: str, unit: str) -> str | None:
    """Return the answer without the unit that its problem allows at the end; None where it does not end in it."""
    plain = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r" \1", answer).strip(" .$")
    for ending in (unit, f"{unit}s", unit.removesuffix("s")):
        if ending and plain.casefold().endswith(ending.casefold()):
            return plain[: -len(ending)].strip() or None
    return None
