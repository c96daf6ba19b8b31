"""`python -m warehouse.compare` where samples are missing: they are excluded, and non-inferiority is not claimed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

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

    def add(
        name: str, spec: RunSpec, has_run: Has = every_one, has_grade: Has = every_one, has_failed: Has = none
    ) -> None:
        spec = replace(spec, seed=len(run_ids))
        made = cells.finished(where, spec, RIGHT, has_run=has_run, has_grade=has_grade, has_failed=has_failed)
        [run_ids[name]] = load(where, made)

    add("complete", VANILLA)
    add("complete speccot", SPECCOT)
    for name, has in HAS.items():
        add(name, VANILLA, has_run=has)
        add(f"{name}, ungraded", VANILLA, has_grade=has)
    add("first samples only", VANILLA, has_run=lambda problem, sample: sample < 1)
    add("without first samples", VANILLA, has_run=lambda problem, sample: sample > 0)
    add("nothing", VANILLA, has_run=none)
    add("no grade", VANILLA, has_grade=none)
    add("failed", VANILLA, has_failed=lambda problem, sample: sample == 2, has_grade=HAS["last samples"])
    add("five samples", replace(SPECCOT, samples=5))
    add("five samples, last missing", replace(SPECCOT, samples=5), has_run=lambda problem, sample: sample < 4)
    return where, run_ids


@pytest.mark.parametrize("how", HAS)
@pytest.mark.parametrize(
    ("what", "other"),
    [("", "complete"), ("", "complete speccot"), (", ungraded", "complete")],
)
@pytest.mark.parametrize("is_baseline", [True, False], ids=["baseline", "run"])
def test_a_copy_that_lacks_a_third_does_not_differ(
    warehouse: tuple[Path, dict[str, str]], how: str, what: str, other: str, is_baseline: bool
) -> None:
    where, runs = warehouse
    pair = [runs[how + what], runs[other]]
    _, row = records(compare(where, *(pair if is_baseline else pair[::-1]), "--margin", "90", "--format", "json"))
    assert row["difference"] == 0
    assert row["p"] == pytest.approx(1)
    assert (row["num_common_samples"], row["num_missing_samples"]) == (24, 12)
    assert row["difference_low_95"] < 0 < row["difference_high_95"]
    assert (row["is_unfinished"], row["p_non_inferior"], row["is_non_inferior"]) == (True, None, None)
    # Of the finished repeats of the complete run one has failed samples, which have no time.
    assert row["speed_up"] == pytest.approx(1, abs=0.02)


def test_a_complete_copy_is_non_inferior(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, runs = warehouse
    both = records(compare(where, runs["complete"], runs["complete speccot"], "--margin", "90", "--format", "json"))
    assert [row["is_non_inferior"] for row in both] == [None, True]
    assert [row["is_unfinished"] for row in both] == [None, False]
    assert both[1]["p_non_inferior"] < 0.025
    assert [row["metric"] for row in both] == ["pass@1[avg-of-3]"] * 2
    assert [row["num_missing_samples"] for row in both] == [None, 0]


def test_an_error_is_a_result(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, runs = warehouse
    _, row = records(compare(where, runs["complete"], runs["failed"], "--format", "json"))
    assert row["difference"] == pytest.approx(np.mean(np.minimum(RIGHT, 2) / 3 - np.array(RIGHT) / 3))
    assert (row["num_missing_samples"], row["is_non_inferior"]) == (0, False)


@pytest.mark.parametrize("what", ["", ", ungraded"])
def test_a_result_of_an_unfinished_run_is_over_its_samples_and_its_metric_shows_it(
    warehouse: tuple[Path, dict[str, str]], what: str
) -> None:
    where, runs = warehouse
    for name, has in HAS.items():
        row, _ = records(compare(where, runs[name + what], runs["complete"], "--k", "2", "--format", "json"))[::2]
        kept = [[sample < right for sample in range(3) if has(i, sample)] for i, right in enumerate(RIGHT)]
        scores = [np.mean(samples) for samples in kept if samples]
        assert row["result"] == pytest.approx(np.mean(scores))
        assert row["metric"] == "pass@1[avg-of-3, 24 of 36 samples]"
        assert (row["n"], row["num_result_problems"], row["num_result_samples"]) == (12, len(scores), 24)


def test_only_an_index_that_the_other_run_planned_is_left_out(warehouse: tuple[Path, dict[str, str]]) -> None:
    """The baseline lacks the last of 3 samples; the run keeps its other 4 of 5, two of which only it has planned."""
    where, runs = warehouse
    _, row = records(compare(where, runs["last samples"], runs["five samples"], "--format", "json"))
    right = np.array(RIGHT)
    assert row["difference"] == pytest.approx(np.mean(np.minimum(right, 2) / 4 - np.minimum(right, 2) / 2))
    assert (row["num_common_samples"], row["num_missing_samples"]) == (48, 12)
    text = compare(where, runs["last samples"], runs["five samples"]).stdout
    assert "48 of the 60 samples planned on these" in " ".join(text.split())


def test_a_run_that_lacks_what_the_other_never_planned_is_unfinished(
    warehouse: tuple[Path, dict[str, str]],
) -> None:
    where, runs = warehouse
    names = [runs["complete"], runs["five samples, last missing"]]
    _, row = records(compare(where, *names, "--margin", "90", "--format", "json"))
    assert row["difference"] == pytest.approx(np.mean(np.array(RIGHT) / 4 - np.array(RIGHT) / 3))
    assert (row["is_non_inferior"], row["num_missing_samples"]) == (None, 12)


def test_pass_at_k_and_majority_are_over_problems_with_k_common_samples(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, runs = warehouse
    names = runs["complete speccot"], runs["at random"]
    enough = sum(sum(HAS["at random"](i, sample) for sample in range(3)) >= 2 for i in range(12))
    assert 0 < enough < 12
    arguments = (*names, "--baseline", names[0], "--k", "2", "--maj")
    for row in records(compare(where, *arguments, "--format", "json"))[4:]:
        assert (row["difference"], row["p"], row["is_non_inferior"]) == (0, 1, None)
        assert (row["num_common_problems"], row["num_result_problems"]) == (enough, enough)
    text = compare(where, *arguments).stdout
    for metric in ("pass@2", "maj@2"):
        assert f"{metric}: {enough} problems with 2 or more common samples" in " ".join(text.split())


def test_a_missing_sample_is_not_an_abstention(warehouse: tuple[Path, dict[str, str]]) -> None:
    """The first two samples of a problem with two right ones agree; a third that abstained could not outvote them."""
    where, runs = warehouse
    rows = records(compare(where, runs["last samples"], runs["complete"], "--k", "2", "--maj", "--format", "json"))
    right = np.minimum(RIGHT, 2)
    assert [row["result"] for row in rows[1:3]] == pytest.approx([np.mean(right > 0), np.mean(right / 2)])


@pytest.mark.parametrize(
    ("names", "arguments", "message"),
    [
        (("complete", "nothing"), (), "none of its 36 samples is finished and graded; complete it with: python -m"),
        (("nothing", "complete"), (), "python -m jobs resume"),
        (("complete", "no grade"), (), "python -m jobs finalize"),
        (("first samples only", "without first samples"), (), "no sample is finished and graded in both this run and"),
        (("nothing", "no grade", "complete"), ("--maj",), "fewer than two runs are left to compare"),
    ],
)
def test_fewer_than_two_comparable_runs_are_an_error_in_one_line(
    warehouse: tuple[Path, dict[str, str]], names: tuple[str, ...], arguments: tuple[str, ...], message: str
) -> None:
    where, runs = warehouse
    assert_refused(compare(where, *(runs[name] for name in names), *arguments), message)


def assert_refused(result: Result, message: str) -> None:
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert "python -m jobs " in line


def test_a_named_baseline_that_has_nothing_is_refused(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, runs = warehouse
    names = [runs[name] for name in ("complete", "complete speccot")]
    assert_refused(compare(where, *names, "--baseline", runs["nothing"]), "the baseline has no samples to compare")


def test_a_run_that_has_nothing_is_left_out_and_the_others_are_compared(
    warehouse: tuple[Path, dict[str, str]],
) -> None:
    where, runs = warehouse
    names = [runs[name] for name in ("complete", "nothing", "complete speccot")]
    why = f"{names[1]}: none of its 36 samples is finished and graded; complete it with: python -m jobs resume"
    line = f"NOT COMPARED: {why} '{where / names[1]}'"
    assert line in compare(where, *names).stdout.splitlines()
    document = json.loads(compare(where, *names, "--format", "json").stdout)
    assert [row["run_id"] for row in document["rows"]] == [names[0], names[2]]
    assert line in document["warnings"]
    assert document["differences"] == json.loads(compare(where, *names[::2], "--format", "json").stdout)["differences"]
    assert compare(where, *names, "--format", "csv").stdout == compare(where, *names[::2], "--format", "csv").stdout


@pytest.mark.parametrize(
    ("names", "arguments", "num_rows", "message"),
    [
        (("complete", "first samples only"), ("--k", "2"), 3, "{1}, pass@2: no problem of {1} has 2 samples"),
        (("complete", "first samples only"), ("--maj",), 3, "{1}, maj@3: no problem of {1} has 3 samples"),
        (("first samples only", "complete"), ("--maj",), 2, "{1}, maj@3: no problem of {0} has 3 samples that"),
        (
            ("last samples", "without first samples"),
            ("--k", "2"),
            3,
            "{1}, pass@2: no problem has 2 samples in common with {0}",
        ),
    ],
)
def test_a_metric_that_too_few_samples_are_there_for_is_left_out_alone(
    warehouse: tuple[Path, dict[str, str]],
    names: tuple[str, str],
    arguments: tuple[str, ...],
    num_rows: int,
    message: str,
) -> None:
    where, runs = warehouse
    chosen = [runs[name] for name in names]
    document = json.loads(compare(where, *chosen, *arguments, "--format", "json").stdout)
    assert len(document["rows"]) == num_rows
    assert {row["run_id"] for row in document["rows"]} == set(chosen)
    [line] = [line for line in document["warnings"] if line.startswith(f"NOT COMPARED: {message.format(*chosen)}")]
    assert "complete it with: python -m jobs resume" in line
