"""Where the second grader looks for the answer in a text, and which option an answer names."""

from __future__ import annotations

import re
import string
from dataclasses import dataclass

READ_CHARACTERS = 100_000
"""Of the end of a text; nothing before is looked at."""
MAX_BOXES = 50

_OPENING = re.compile(r"\\f?boxed\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_SAID = re.compile(r"(?i:answer|result)(?i:\s+is)?\s*[:=]?\s*(?:\*\*)?\s*([^\n]{1,300})")
_HASHES = re.compile(r"####\s*([^\n]{1,300})")
_NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\w])")
_LETTER_SAID = re.compile(r"(?i:answer|option|choice)(?i:\s+is)?\s*:?\s*\**\(?([A-J])\b")
_LETTER_ALONE = re.compile(r"\(([A-J])\)|^\s*\**([A-J])\**[.)]?\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Found:
    """The answer as it stands in the text."""

    text: str
    rule: str
    boxes: tuple[str, ...] = ()
    """All boxes in the text, first to last; empty for other rules."""


def find_answer(text: str, thinks: bool, is_choice: bool, is_cut_off: bool) -> Found | None:
    """The last box; else what is said to be the answer; else, where the text came to its end, the last number.

    A chain of thought that is open at the end holds no answer.
    """
    head, end, rest = text.rpartition("</think>")
    if (thinks or "<think>" in head + rest) and not end:
        return None
    rest = rest[-READ_CHARACTERS:]
    boxes = _boxes(rest)
    if boxes:
        return Found(boxes[-1], "box", tuple(boxes))
    if is_choice:
        return _letter(rest)
    if is_cut_off:
        return None
    for pattern, rule in ((_HASHES, "hashes"), (_SAID, "said")):
        said = pattern.findall(rest)
        if said and (answer := _sentence_end(said[-1])):
            return Found(answer, rule)
    numbers = _NUMBER.findall(rest)
    return Found(numbers[-1], "last number") if numbers else None


def _boxes(text: str) -> list[str]:
    """Contents of the complete boxes that stand in no other box; linear in the text."""
    found: list[str] = []
    position = 0
    for opening in list(_OPENING.finditer(text))[-MAX_BOXES:]:
        if opening.start() < position:
            continue
        depth = 1
        for brace in _BRACE.finditer(text, opening.end()):
            depth += {"{": 1, "}": -1}.get(brace.group(), 0)
            if depth == 0:
                found.append(text[opening.end() : brace.start()].strip())
                position = brace.end()
                break
        else:
            break
    return [box for box in found if box]


def _sentence_end(said: str) -> str:
    """Up to the end of the sentence; a formula between dollar signs alone where there is one."""
    formula = re.search(r"\$([^$]+)\$|\\\((.+?)\\\)", said)
    if formula:
        return (formula.group(1) or formula.group(2)).strip()
    return re.split(r"\.(?:\s|$)|\s+(?:because|since|which)\s", said)[0].strip(" *:")


def _letter(text: str) -> Found | None:
    said = _LETTER_SAID.findall(text)
    if said:
        return Found(said[-1], "said")
    alone = [first or second for first, second in _LETTER_ALONE.findall(text)]
    return Found(alone[-1], "letter") if alone else None


def named_option(answer: str, choices: tuple[str, ...]) -> str | None:
    """The letter that an answer is or begins with, or of the one option whose text it is."""
    letters = string.ascii_uppercase[: len(choices) or 10]
    plain = re.sub(r"\\(?:text|mathrm|mathbf|textbf)\s*\{([^{}]*)\}", r"\1", answer).strip(" $*.")
    match = re.match(r"(?i:option|choice)?\s*\(?([A-Za-z])(?:\)|[.:,]|$)", plain)
    if match and match.group(1).upper() in letters:
        return match.group(1).upper()
    same = [i for i, choice in enumerate(choices) if _folded(choice) == _folded(plain)]
    return letters[same[0]] if len(same) == 1 else None


def _folded(text: str) -> str:
    return re.sub(r"[\s$*.{}\\]+", "", text).casefold()


def is_of_unit(answer: str, unit: str) -> str | None:
    """The answer without the unit that its problem allows at the end; None where it does not end in that unit."""
    plain = re.sub(r"\\(?:text|mathrm)\s*\{([^{}]*)\}", r" \1", answer).strip(" .$")
    for ending in (unit, f"{unit}s", unit.removesuffix("s")):
        if ending and plain.casefold().endswith(ending.casefold()):
            return plain[: -len(ending)].strip() or None
    return None
