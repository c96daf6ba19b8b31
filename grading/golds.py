r"""Golds that no right answer meets, or that are no answers but sentences: found by grading each gold as an answer.

A gold may accept itself and still be one that nobody ever writes: the whole solution in GSM8K's form, a sentence,
several lines. So what it concludes with (behind `####`, in its last `\boxed`, at its end) is graded against it too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from grading.extract import extract, find_boxes
from grading.grade import Gold, Submission
from grading.grader_pool import Item, grade_many, graded
from grading.reading.notation import depth_at_each

_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?")
_ENVIRONMENT = re.compile(r"\\begin\{(\w{1,20}\*?)\}.*?\\end\{\1\}", re.DOTALL)
_HASHES = "####"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a gold that holds more than an answer concludes with."""

    answer: str
    rule: Literal["hashes", "boxed"] | None
    """The rule of a dataset's answers that reads it; None: none does."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with a gold."""

    rejected: str
    """Why it does not accept itself, so that no answer is correct; empty where it does."""
    conclusion: Conclusion | None = None
    """What it concludes with, where it holds more than an answer."""
    is_met: bool = False
    """Whether that is graded correct against it, so that the gold can be met although it is more than an answer."""


def to_grade(golds: Sequence[Gold]) -> list[int]:
    """Return the positions of the golds that may be at fault: neither plain numbers nor letters of options."""
    return [
        index
        for index, gold in enumerate(golds)
        if gold.kind == "math" and (gold.answers or gold.alternatives or not _NUMBER.fullmatch(gold.answer))
    ]


def findings(golds: Sequence[Gold], positions: Sequence[int], workers: int | None = None) -> dict[int, Finding]:
    """Grade the golds at these positions as answers, and return what is wrong, by position. Raises GraderFailed."""
    items: list[Item] = []
    ends: list[tuple[int, Conclusion | None]] = []
    for index in positions:
        gold = golds[index]
        for boxed in written(gold):
            items.append((boxed_answer(boxed), gold))
            ends.append((index, None))
        for part in gold.answers or gold.alternatives or (gold.answer,):
            if (end := conclusion(part)) is not None:
                items.append((boxed_answer(end.answer), replace(gold, answer=part, answers=(), alternatives=())))
                ends.append((index, end))
    found: dict[int, Finding] = {}
    for (index, end), grade in zip(ends, graded(grade_many(items, workers=workers)), strict=True):
        is_correct, earlier = grade.verdict == "correct", found.get(index)
        if end is None and not is_correct:
            found[index] = Finding(grade.detail)
        elif end is not None and (earlier is None or earlier.is_met):
            found[index] = Finding("", end, is_met=is_correct)
    return found


def written(gold: Gold) -> Sequence[str]:
    """Return the answers that a gold says are right, as they are put in a box."""
    if gold.answers:
        return [", ".join(gold.answers)]
    return gold.alternatives or [gold.answer]


def boxed_answer(boxed: str) -> Submission:
    """Return the reply of a model that gives this answer."""
    return Submission(rf"So the answer is $\boxed{{{boxed}}}$.", "answered", thinks=False)


def conclusion(gold: str) -> Conclusion | None:
    """Return what a gold concludes with; None: it is an answer and nothing else."""
    text = gold.strip()
    _, hashes, behind = text.rpartition(_HASHES)
    if hashes and behind.strip():
        return Conclusion(behind.strip(), "hashes")
    boxes = [box.strip() for box in find_boxes(text)[0] if box.strip()]
    if boxes:
        return None if text.strip("$. ") == rf"\boxed{{{boxes[-1]}}}" else Conclusion(boxes[-1], "boxed")
    extraction = extract(text if _has_lines(text) else " ".join(text.split()), is_choice=False, is_finished=True)
    if extraction is not None and extraction.rule == "whole":
        return None
    return Conclusion(text if extraction is None else extraction.text, None)


def _has_lines(text: str) -> bool:
    """Return whether a text has several lines, those inside brackets and environments of LaTeX not counted."""
    return any(character == "\n" and not depth for character, depth in depth_at_each(_ENVIRONMENT.sub("", text)))
