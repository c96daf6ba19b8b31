"""GPQA's choices: shuffled letters that name the right option, from a file as from the hub."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from harness.problems.benchmarks import (
    DATASETS,
    from_hub_rows,
    load,
    shuffled_choices,
)
from harness.problems.problem import Problem
from tests.harness.problems.test_benchmarks import RIGHT, gpqa_row, write


@pytest.fixture(autouse=True)
def _no_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_DATA_DIR", raising=False)


def right_option(problem: Problem) -> str:
    return problem.choices["ABCD".index(problem.answer)]


def test_gpqa_letters_vary_and_always_name_the_right_option() -> None:
    rows = [gpqa_row(i) for i in range(198)]
    first, second = from_hub_rows(DATASETS["gpqa"], rows), from_hub_rows(DATASETS["gpqa"], rows, seed=1)
    for problems in (first, second):
        assert {right_option(p) for p in problems} == {RIGHT}
        assert all(sorted(p.choices) == sorted([RIGHT, "wrong 1", "wrong 2", "wrong 3"]) for p in problems)
        assert all(30 < count < 70 for count in Counter(p.answer for p in problems).values())
    assert 100 < sum(a.answer != b.answer for a, b in zip(first, second, strict=True)) < 198
    assert first == from_hub_rows(DATASETS["gpqa"], rows)
    assert first[0].kind == "choice"


def test_a_local_gpqa_file_gives_the_same_problems_as_the_hub(tmp_path: Path) -> None:
    rows = [gpqa_row(i) for i in range(198)]
    hub = from_hub_rows(DATASETS["gpqa"], rows, seed=3)
    # As the hub's rows come out under another seed: other letters, another order of the options, other rows first.
    local = [
        {"id": p.id, "problem": p.text, "choices": list(p.choices), "answer": p.answer, "subject": p.subject}
        for p in from_hub_rows(DATASETS["gpqa"], rows, seed=8)
    ]
    write(tmp_path / "gpqa.jsonl", local[::-1])
    assert load("gpqa", tmp_path, seed=3) == hub[::-1]


@pytest.mark.parametrize(
    ("choices", "answer"), [((), "A"), (("x", "y"), "C"), (("x", "y"), ""), (("x", "y"), "AB"), (("x", "y"), "x")]
)
def test_an_answer_that_names_no_option_is_refused(choices: tuple[str, ...], answer: str) -> None:
    with pytest.raises(ValueError, match=r"choices|is not one of the letters"):
        shuffled_choices(choices, answer, "key")
