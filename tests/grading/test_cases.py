"""Tables of cases: a gold, a text and the verdict of a person. `cases/` has one file per form of answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from grading import Gold, Submission
from grading.grade import grade

ROWS: dict[str, dict[str, Any]] = {
    f"{path.stem}:{number}": json.loads(line)
    for path in sorted((Path(__file__).parent / "cases").glob("*.jsonl"))
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1)
    if line
}


def gold_of(row: dict[str, Any]) -> Gold:
    return Gold(
        row["gold"],
        kind=row.get("kind", "math"),
        answers=tuple(row.get("answers", ())),
        alternatives=tuple(row.get("alternatives", ())),
        choices=tuple(row.get("choices", ())),
        unit=row.get("unit"),
        tolerance=row.get("tolerance"),
    )


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_verdict_is_the_one_a_person_gives(row: dict[str, Any]) -> None:
    submission = Submission(row["text"], row.get("stop_reason", "answered"), row.get("thinks", False))
    result = grade(submission, gold_of(row))
    assert result.verdict == row["verdict"], result
