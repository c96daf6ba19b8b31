"""Every hostile text gets a verdict within the limit, and ordinary samples beside it keep their grades."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from grading import VERDICTS, Gold, Submission, grade_many, graded
from tests.grading.hostile import boxed, hostile_texts

TIME_LIMIT_SECONDS = 2
MEMORY_LIMIT_BYTES = 1024**3
SOAK_GRADES = int(os.environ.get("GRADER_SOAK", "2000"))
"""Number of grades in the soak test; a full run has 20000."""


def submission(text: str) -> Submission:
    return Submission(text, "answered", thinks=False)


def innocent(number: int) -> tuple[Submission, Gold]:
    """Return a correct answer in a text of its own, so that no grade is reused."""
    gold = Gold(str(number)) if number % 2 else Gold(rf"\frac{{{number}}}{{{number + 1}}}+\sqrt{{{number + 2}}}")
    answer = str(number) if number % 2 else rf"\sqrt{{{number + 2}}}+{number}/{number + 1}"
    return submission(f"case {number}: {boxed(answer)}"), gold


def test_hostile_answers_get_a_verdict_in_time_and_their_neighbours_stay_correct(tmp_path: Path) -> None:
    target = tmp_path / "written"
    texts = hostile_texts(str(target))
    items = []
    for number, text in enumerate(texts.values()):
        items += [(submission(text), Gold("42")), innocent(number)]
    started = time.monotonic()
    grades = graded(grade_many(items, 2, TIME_LIMIT_SECONDS, MEMORY_LIMIT_BYTES))
    assert time.monotonic() - started < 5 * TIME_LIMIT_SECONDS * len(texts)
    assert [grade.verdict for grade in grades[1::2]] == ["correct"] * len(texts)
    verdicts = dict(zip(texts, (grade.verdict for grade in grades[0::2]), strict=True))
    allowed = {"wrong", "unparsable", "no_answer", "grader_timeout"}
    assert {name: verdict for name, verdict in verdicts.items() if verdict not in allowed} == {}
    assert not target.exists()


@pytest.mark.parametrize(
    "name", ["nested roots", "large matrix", "tower of tens", "set of hundreds", "union of hundreds"]
)
def test_a_hostile_gold_ends_in_time_too(name: str, tmp_path: Path) -> None:
    text = hostile_texts(str(tmp_path / "written"))[name]
    gold = Gold(text.removeprefix(r"So \boxed{").removesuffix("}"))
    results = graded(grade_many([(submission(text), gold), innocent(1)], 1, TIME_LIMIT_SECONDS, MEMORY_LIMIT_BYTES))
    assert results[0].verdict in {"correct", "bad_gold", "grader_timeout", "unparsable"}
    assert results[1].verdict == "correct"


def test_a_long_run_in_which_every_hundredth_answer_is_hostile(tmp_path: Path) -> None:
    texts = [text for text in hostile_texts(str(tmp_path / "written")).values() if len(text) < 200_000]

    def items() -> Iterator[tuple[Submission, Gold]]:
        for number in range(SOAK_GRADES):
            if number % 100 == 99:
                yield submission(texts[number // 100 % len(texts)] + " " * (number // 100)), Gold("42")
            else:
                yield innocent(number)

    grades = graded(grade_many(items(), 2, TIME_LIMIT_SECONDS, MEMORY_LIMIT_BYTES))
    verdicts = [grade.verdict for grade in grades]
    assert len(verdicts) == SOAK_GRADES
    assert set(verdicts) <= set(VERDICTS)
    assert [n for n, verdict in enumerate(verdicts) if n % 100 != 99 and verdict != "correct"] == []
    assert [n for n, verdict in enumerate(verdicts) if n % 100 == 99 and verdict == "correct"] == []
