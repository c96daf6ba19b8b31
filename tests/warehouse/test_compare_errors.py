"""`python -m warehouse.compare` with samples that ended in an error, ungraded samples, and what completes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.warehouse import cells
from tests.warehouse.test_compare import compare, load, records

RIGHT = (3, 2, 3, 1, 2, 3, 0, 2, 1, 3, 2, 3)
VANILLA, SPECCOT = (replace(spec, samples=3) for spec in (cells.VANILLA, cells.SPEC))


def last(problem: int, sample: int) -> bool:
    return sample == 2


def others(problem: int, sample: int) -> bool:
    return sample < 2


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a warehouse, and the runs in it by name; the last sample of every problem of some is an error."""
    where = tmp_path_factory.mktemp("errors")
    made = {
        "complete": cells.finished(where, VANILLA, RIGHT),
        "without a grade": cells.finished(
            where, SPECCOT, RIGHT, has_failed=last, has_grade=lambda problem, sample: False
        ),
        "graded in part": cells.finished(
            where, replace(SPECCOT, seed=1), RIGHT, has_failed=last, has_grade=lambda problem, sample: sample < 1
        ),
        "graded": cells.finished(where, replace(SPECCOT, seed=2), RIGHT, has_failed=last, has_grade=others),
        "errors graded": cells.finished(
            where, replace(SPECCOT, seed=3), RIGHT, has_failed=last, has_grade=lambda problem, sample: sample != 1
        ),
        "by version 2": cells.finished(where, replace(SPECCOT, seed=4), RIGHT, has_failed=last, grader="2"),
        "nothing but errors": cells.finished(
            where, replace(SPECCOT, seed=5), RIGHT, has_failed=lambda *_: True, has_grade=lambda *_: False
        ),
    }
    return where, dict(zip(made, load(where, *made.values()), strict=True))


@pytest.mark.parametrize(
    ("name", "missing", "errors"),
    [("graded in part", 24, 12), ("graded", 0, 0), ("errors graded", 12, 0), ("nothing but errors", 0, 0)],
)
def test_an_error_without_a_grade_is_missing_while_other_samples_are_to_be_graded(
    warehouse: tuple[Path, dict[str, str]], name: str, missing: int, errors: int
) -> None:
    where, runs = warehouse
    _, row = records(compare(where, runs["complete"], runs[name], "--format", "json"))
    assert row["num_missing_samples"] == missing
    text = compare(where, runs["complete"], runs[name]).stdout
    assert (f"NOT GRADED: {missing - errors} of 36 samples are finished but have no grade" in text) is (missing > 0)


@pytest.mark.parametrize(("name", "arguments"), [("without a grade", ()), ("by version 2", ("--grader", "1"))])
def test_a_run_without_a_grade_is_not_compared_on_its_errors_alone(
    warehouse: tuple[Path, dict[str, str]], name: str, arguments: tuple[str, ...]
) -> None:
    where, runs = warehouse
    names = [runs["complete"], runs[name], runs["graded"]]
    result = compare(where, *names, *arguments, "--format", "json")
    assert [row["run_id"] for row in records(result)] == [names[0], names[2]]
    assert f"NOT COMPARED: {names[1]}: none of its 36 samples is finished and graded" in result.stdout
