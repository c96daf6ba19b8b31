"""`python -m warehouse.compare` where samples are missing: they are excluded, and non-inferiority is not claimed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.warehouse import cells
from tests.warehouse.test_compare import compare, load, records

RIGHT = (3, 2, 3, 1, 2, 3, 0, 2, 1, 3, 2, 3)
VANILLA, SPECCOT = (replace(spec, samples=3) for spec in (cells.VANILLA, cells.SPEC))
AT_RANDOM = frozenset(np.random.default_rng(0).permutation(36)[:12].tolist())
Has = Callable[[int, int], bool]
"""Whether the run has something, by problem and sample index."""
HAS: dict[str, Has] = {
    "last samples": lambda problem, sample: sample < 2,
    "whole problems": lambda problem, sample: problem < 8,
    "at random": lambda problem, sample: 3 * problem + sample not in AT_RANDOM,
}
"""What a run has that lacks a third: 24 of 36 samples."""


def every_one(problem: int, sample: int) -> bool:
    return True


def none(problem: int, sample: int) -> bool:
    return False


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a warehouse, and the runs in it by name: copies of one run that lack a third in several ways."""
    where = tmp_path_factory.mktemp("unfinished runs")
    run_ids: dict[str, str] = {}
    folders: list[RunFolder] = []

    def add(
        name: str, spec: RunSpec, has_run: Has = every_one, has_grade: Has = every_one, has_failed: Has = none
    ) -> None:
        spec = replace(spec, seed=len(run_ids))
        folders.append(cells.finished(where, spec, RIGHT, has_run=has_run, has_grade=has_grade, has_failed=has_failed))
        run_ids[name] = folders[-1].path.name

    add("complete", VANILLA)
    add("complete speccot", SPECCOT)
    for name, has in HAS.items():
        add(name, VANILLA, has_run=has)
    add("at random, ungraded", VANILLA, has_grade=HAS["at random"])
    add("first samples only", VANILLA, has_run=lambda problem, sample: sample < 1)
    add("without first samples", VANILLA, has_run=lambda problem, sample: sample > 0)
    add("nothing", VANILLA, has_run=none)

    def last(problem: int, sample: int) -> bool:
        return sample == 2

    add("no grade", VANILLA, has_failed=last, has_grade=none)
    add("failed", VANILLA, has_failed=last, has_grade=HAS["last samples"])
    other = replace(SPECCOT, params={"drafts": 3, "guidance_tokens": 8})  # no repeats of the complete run
    add("errors, graded in part", other, has_failed=last, has_grade=lambda problem, sample: sample < 1)
    add("errors, others ungraded", other, has_failed=last, has_grade=lambda problem, sample: sample != 1)
    add("nothing but errors", other, has_failed=every_one, has_grade=none)
    add("five samples", replace(SPECCOT, samples=5))
    add("five samples, last missing", replace(SPECCOT, samples=5), has_run=lambda problem, sample: sample < 4)
    load(where, *folders)
    return where, run_ids


@pytest.mark.parametrize(
    ("kept", "other", "is_baseline"),
    [
        ("last samples", "complete", True),
        ("whole problems", "complete speccot", False),
        ("at random, ungraded", "complete", False),
    ],
)
def test_a_copy_that_lacks_a_third_does_not_differ(
    warehouse: tuple[Path, dict[str, str]], kept: str, other: str, is_baseline: bool
) -> None:
    where, runs = warehouse
    pair = [runs[kept], runs[other]]
    _, row = records(compare(where, *(pair if is_baseline else pair[::-1]), "--margin", "90", "--format", "json"))
    assert row["difference"] == 0
    assert row["p"] == pytest.approx(1)
    assert (row["num_common_samples"], row["num_missing_samples"]) == (24, 12)
    assert row["difference_low_95"] < 0 < row["difference_high_95"]
    assert (row["is_unfinished"], row["p_non_inferior"], row["is_non_inferior"]) == (True, None, None)
    # Of the finished repeats of the complete run one has failed samples, which have no time.
    assert row["speed_up"] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    ("kept", "other", "scores", "common", "missing", "is_non_inferior"),
    [
        ("complete", "failed", np.minimum(RIGHT, 2) / 3, 36, 0, True),
        # The other four of five samples, two of which only the run has planned.
        ("last samples", "five samples", np.minimum(RIGHT, 2) / 4, 48, 12, None),
        ("complete", "five samples, last missing", np.array(RIGHT) / 4, 48, 12, None),
    ],
)
def test_the_difference_is_over_the_samples_that_both_have_or_only_one_planned(
    warehouse: tuple[Path, dict[str, str]],
    kept: str,
    other: str,
    scores: np.ndarray[tuple[int], np.dtype[np.float64]],
    common: int,
    missing: int,
    is_non_inferior: bool | None,
) -> None:
    where, runs = warehouse
    _, row = records(compare(where, runs[kept], runs[other], "--margin", "90", "--format", "json"))
    of_baseline = np.minimum(RIGHT, 2) / 2 if kept == "last samples" else np.array(RIGHT) / 3
    assert row["difference"] == pytest.approx(np.mean(scores - of_baseline))
    assert (row["num_common_samples"], row["num_missing_samples"]) == (common, missing)
    assert (row["is_non_inferior"], row["is_unfinished"]) == (is_non_inferior, is_non_inferior is None)


@pytest.mark.parametrize(
    ("name", "missing"), [("errors, graded in part", 24), ("errors, others ungraded", 12), ("nothing but errors", 0)]
)
def test_an_error_without_a_grade_is_missing_while_other_samples_are_to_be_graded(
    warehouse: tuple[Path, dict[str, str]], name: str, missing: int
) -> None:
    where, runs = warehouse
    _, row = records(compare(where, runs["complete"], runs[name], "--format", "json"))
    assert row["num_missing_samples"] == missing


def test_pass_at_k_and_majority_are_over_problems_with_k_common_samples(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, runs = warehouse
    names = runs["complete speccot"], runs["at random"]
    enough = sum(sum(HAS["at random"](i, sample) for sample in range(3)) >= 2 for i in range(12))
    assert 0 < enough < 12
    found = records(compare(where, *names, "--baseline", names[0], "--k", "2", "--maj", "--format", "json"))
    assert [row["metric"].partition("[")[0] for row in found[4:]] == ["pass@2", "maj@2"]
    for row in found[4:]:
        assert (row["difference"], row["p"], row["is_non_inferior"]) == (0, 1, None)
        assert (row["num_common_problems"], row["num_result_problems"]) == (enough, enough)


def test_fewer_than_two_comparable_runs_are_an_error_in_one_line(
    warehouse: tuple[Path, dict[str, str]], snapshot: SnapshotAssertion
) -> None:
    where, runs = warehouse
    said = {}
    for names in (
        ("nothing", "complete"),
        ("complete", "no grade"),
        ("first samples only", "without first samples"),
        ("nothing", "no grade", "complete"),
        ("complete", "complete speccot", "--baseline", "nothing"),
    ):
        result = compare(where, *(runs.get(name, name) for name in names))
        assert (result.exit_code, result.stdout) == (2, "")
        [line] = result.stderr.splitlines()
        for name, run_id in runs.items():
            line = line.replace(str(where / run_id), f"RUNS/{name}").replace(run_id, name)
        said[" ".join(names)] = line
    assert said == snapshot


def test_a_run_that_has_nothing_is_left_out_and_the_others_are_compared(
    warehouse: tuple[Path, dict[str, str]],
) -> None:
    where, runs = warehouse
    names = [runs[name] for name in ("complete", "nothing", "no grade", "complete speccot")]
    document, of_others = (
        json.loads(compare(where, *chosen, "--format", "json").stdout) for chosen in (names, names[::3])
    )
    assert document["rows"] == of_others["rows"]
    assert document["differences"] == of_others["differences"]
    told = [line.split() for line in document["warnings"] if line not in of_others["warnings"]]
    assert [(words[2], "resume" in words, "finalize" in words) for words in told] == [
        (f"{names[1]}:", True, False),
        (f"{names[2]}:", False, True),
    ]


@pytest.mark.parametrize(
    ("names", "arguments", "num_rows", "metric"),
    [
        (("complete", "first samples only"), ("--k", "2"), 3, "pass@2"),
        (("first samples only", "complete"), ("--maj",), 2, "maj@3"),
    ],
)
def test_a_metric_that_too_few_samples_are_there_for_is_left_out_alone(
    warehouse: tuple[Path, dict[str, str]],
    names: tuple[str, str],
    arguments: tuple[str, ...],
    num_rows: int,
    metric: str,
) -> None:
    where, runs = warehouse
    chosen = [runs[name] for name in names]
    document = json.loads(compare(where, *chosen, *arguments, "--format", "json").stdout)
    assert len(document["rows"]) == num_rows
    assert {row["run_id"] for row in document["rows"]} == set(chosen)
    [line] = [line for line in document["warnings"] if f" {chosen[1]}, {metric}: " in line]
    assert "python -m jobs resume" in line
