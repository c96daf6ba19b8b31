"""Every gold of the papers' datasets accepts itself in other notations and rejects other answers.

`GRADER_ROWS` sets how many rows of each dataset are tried (default 150; 0 for all). College Math is excluded: a tenth
of its golds are prose, and the grader is not tuned on it.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from grading import Gold, Submission
from grading.grade import grade
from tests.shared import DATA_DIR, shared_rows

DATASETS = ("gsm8k", "math500", "math", "gaokao2023en", "olympiadbench", "amc23", "aime24")
ROWS = int(os.environ.get("GRADER_ROWS", "150"))
EXCEPTIONS = {"olympiadbench/73"}
"""A sentence whose parts cannot be told apart."""


def rows_of(dataset: str) -> list[dict[str, Any]]:
    rows = shared_rows(dataset, DATA_DIR)
    step = max(1, len(rows) // ROWS) if ROWS else 1
    return [row for row in rows[::step] if row["id"] not in EXCEPTIONS]


def gold_of(row: dict[str, Any]) -> Gold:
    tolerance = row.get("tolerance")
    return Gold(
        row["answer"],
        answers=tuple(row.get("answers", ())),
        alternatives=tuple(row.get("alternatives", ())),
        unit=row.get("unit"),
        tolerance=None if tolerance is None else float(tolerance),
    )


def bare(row: dict[str, Any]) -> str:
    answer: str = row["answer"].strip().rstrip(".")
    return answer if r"\$" in answer else answer.replace("$", "")


def boxed(answer: str) -> str:
    return rf"So the answer is \boxed{{{answer}}}."


def rewritings(row: dict[str, Any]) -> Iterator[str]:
    """Yield texts with the gold in other notations."""
    answer = bare(row)
    yield boxed(row["answer"])
    yield row["answer"]
    yield boxed(answer)
    yield boxed(answer.replace(r"\frac", r"\dfrac"))
    yield boxed(answer.replace(r"\frac", r"\tfrac"))
    yield boxed(re.sub(r" *([+=]) *", r" \1 ", answer))
    if not re.search(r"[a-z]{3,} ", answer):
        yield boxed(re.sub(r" +(?=[^a-zA-Z])", "", answer))
    if unit := re.fullmatch(r"(.*\d)\s*(?:\\text\{.*\}|\\mbox\{.*\}|\^\\circ|\^\{\\circ\})(?:\^\d)?", answer):
        yield boxed(unit.group(1))
    if fraction := re.fullmatch(r"(-?)\\[dt]?frac\{(\d{1,4})\}\{(\d{1,3})\}", answer):
        sign, top, bottom = fraction.groups()
        yield boxed(f"{sign}{top}/{bottom}")
        yield boxed(f"{sign}{int(top) / int(bottom):.10f}")
    if re.fullmatch(r"-?\d+\.\d+", answer):
        value = Fraction(answer)
        yield boxed(rf"\frac{{{value.numerator}}}{{{value.denominator}}}")
    if re.fullmatch(r"-?\d{4,}", answer):
        yield boxed(f"{int(answer):,}")
        yield boxed(f"{answer}.0")
    if parts := [part.replace("$", "") for part in row.get("answers", ())]:
        yield boxed(", ".join(parts[::-1]))
        yield boxed(r" \text{ and } ".join(parts))
        yield " and ".join(rf"\boxed{{{part}}}" for part in parts)


def others(row: dict[str, Any], rows: list[dict[str, Any]], rng: random.Random) -> Iterator[str]:
    """Yield texts with other answers: a changed digit or sign, a missing part, the gold of another problem."""
    answer = bare(row)
    places = [match.start() for match in re.finditer(r"\d", answer)]
    if places and not row.get("alternatives"):
        place = rng.choice(places)
        digit = (int(answer[place]) + rng.randint(1, 8)) % 10
        yield boxed(f"{answer[:place]}{digit}{answer[place + 1 :]}")
        if re.match(r"[1-9]|\\frac|\\sqrt", answer) and "=" not in answer:
            yield boxed(f"-{answer}")
    if parts := [part.replace("$", "") for part in row.get("answers", ())]:
        yield boxed(", ".join(parts[:-1]))
    other = rng.choice(rows)
    values = [without_notation(either["answer"]) for either in (row, other)]
    if values[0] != values[1] and not row.get("alternatives"):
        yield boxed(bare(other))


def without_notation(answer: str) -> str:
    return re.sub(r"\\text\{.*?\}|\\[dt](?=frac)|\^\\circ|[\s$\\%{}]", "", answer)


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_gold_accepts_itself_in_other_notations(dataset: str) -> None:
    refused = [
        (row["id"], text)
        for row in rows_of(dataset)
        for text in rewritings(row)
        if grade(Submission(text, "answered", thinks=False), gold_of(row)).verdict != "correct"
    ]
    assert refused == []


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_gold_refuses_other_answers(dataset: str) -> None:
    rows = rows_of(dataset)
    rng = random.Random(dataset)
    accepted = [
        (row["id"], row["answer"], text)
        for row in rows
        for text in others(row, rows, rng)
        if grade(Submission(text, "answered", thinks=False), gold_of(row)).verdict == "correct"
    ]
    assert accepted == []
