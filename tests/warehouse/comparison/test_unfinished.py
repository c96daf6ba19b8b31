"""Runs under way: what is there has a number and is compared, what is missing counts nowhere as wrong."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from tests.shared import known
from tests.warehouse import cells
from tests.warehouse.cells import Has, Warehouse, every_one, none
from warehouse import export
from warehouse.comparison.outcomes import LEAST_COMPLETENESS
from warehouse.database import reader
from warehouse.report.summary import RunSummary, render, summary
from warehouse.statistics import bounded
from warehouse.statistics.intervals import Floats, mean
from warehouse.suites.measured import measure

RIGHT = (3, 2, 3, 1, 2, 3, 0, 2, 1, 3, 2, 3)
VANILLA, SPECCOT = (replace(spec, samples=3) for spec in (cells.VANILLA, cells.SPEC))
AT_RANDOM = frozenset(np.random.default_rng(0).permutation(36)[:12].tolist())
HAS: dict[str, Has] = {
    "last samples": lambda problem, sample: sample < 2,
    "whole problems": lambda problem, sample: problem < 8,
    "at random": lambda problem, sample: 3 * problem + sample not in AT_RANDOM,
}
"""What a run has that lacks a third: 24 of 36 samples."""
KEPT = {
    "last samples": HAS["last samples"],
    "whole problems": HAS["whole problems"],
    "at random, ungraded": HAS["at random"],
}


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Copies of one run that lack a third in several ways, or all."""

    def last(problem: int, sample: int) -> bool:
        return sample == 2

    def sample_below(number: int) -> Has:
        return lambda problem, sample: sample < number

    where = tmp_path_factory.mktemp("unfinished runs")
    other = replace(SPECCOT, params={"drafts": 3, "guidance_tokens": 8})  # no repeats of the complete run
    five = replace(SPECCOT, samples=5)
    made = {  # what has run, is graded, and has failed
        "complete": (VANILLA, every_one, every_one, none),
        "complete speccot": (SPECCOT, every_one, every_one, none),
        **{name: (VANILLA, has, every_one, none) for name, has in HAS.items()},
        "at random, ungraded": (VANILLA, every_one, HAS["at random"], none),
        "first samples only": (VANILLA, sample_below(1), every_one, none),
        "without first samples": (VANILLA, lambda problem, sample: sample > 0, every_one, none),
        "nothing": (VANILLA, none, every_one, none),
        "no grade": (VANILLA, every_one, none, last),
        "failed": (VANILLA, every_one, sample_below(2), last),
        "errors, graded in part": (other, every_one, sample_below(1), last),
        "errors, others ungraded": (other, every_one, lambda problem, sample: sample != 1, last),
        "nothing but errors": (other, every_one, none, every_one),
        "five samples": (five, every_one, every_one, none),
        "five samples, last missing": (five, sample_below(4), every_one, none),
    }
    folders = {
        name: cells.finished(where, replace(spec, seed=seed), RIGHT, has_run=ran, has_grade=graded, has_failed=failed)
        for seed, (name, (spec, ran, graded, failed)) in enumerate(made.items())
    }
    return Warehouse.of(where, folders)


@pytest.mark.parametrize(
    ("kept", "other", "is_baseline"),
    [
        ("last samples", "complete", True),
        ("whole problems", "complete speccot", False),
        ("at random, ungraded", "complete", False),
    ],
)
def test_a_copy_that_lacks_a_third_does_not_differ(
    warehouse: Warehouse, kept: str, other: str, is_baseline: bool
) -> None:
    _, row = warehouse.compared(*((kept, other) if is_baseline else (other, kept)), "--margin", "90")
    assert (row["difference"], row["p"]) == (0, pytest.approx(1))
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
    warehouse: Warehouse,
    kept: str,
    other: str,
    scores: Floats,
    common: int,
    missing: int,
    is_non_inferior: bool | None,
) -> None:
    _, row = warehouse.compared(kept, other, "--margin", "90")
    of_baseline = np.minimum(RIGHT, 2) / 2 if kept == "last samples" else np.array(RIGHT) / 3
    assert row["difference"] == pytest.approx(np.mean(scores - of_baseline))
    assert (row["num_common_samples"], row["num_missing_samples"]) == (common, missing)
    assert (row["is_non_inferior"], row["is_unfinished"]) == (is_non_inferior, is_non_inferior is None)


@pytest.mark.parametrize(
    ("name", "missing"), [("errors, graded in part", 24), ("errors, others ungraded", 12), ("nothing but errors", 0)]
)
def test_an_error_without_a_grade_is_missing_while_other_samples_are_to_be_graded(
    warehouse: Warehouse, name: str, missing: int
) -> None:
    _, row = warehouse.compared("complete", name)
    assert row["num_missing_samples"] == missing


def test_pass_at_k_and_majority_are_over_problems_with_k_common_samples(warehouse: Warehouse) -> None:
    enough = sum(sum(HAS["at random"](i, sample) for sample in range(3)) >= 2 for i in range(12))
    assert 0 < enough < 12
    names = ("complete speccot", "at random", "--baseline", "complete speccot")
    found = warehouse.compared(*names, "--k", "2", "--maj")[4:]
    assert [row["metric"].partition("[")[0] for row in found] == ["pass@2", "maj@2"]
    for row in found:
        assert (row["difference"], row["p"], row["is_non_inferior"]) == (0, 1, None)
        assert (row["num_common_problems"], row["num_result_problems"]) == (enough, enough)


def test_fewer_than_two_comparable_runs_are_an_error_in_one_line(
    warehouse: Warehouse, snapshot: SnapshotAssertion
) -> None:
    said = {}
    for names in (
        ("nothing", "complete"),
        ("complete", "no grade"),
        ("first samples only", "without first samples"),
        ("nothing", "no grade", "complete"),
        ("complete", "complete speccot", "--baseline", "nothing"),
    ):
        result = warehouse.compare(*names)
        assert (result.exit_code, result.stdout) == (2, "")
        [line] = result.stderr.splitlines()
        for name, run_id in warehouse.ids.items():
            line = line.replace(str(warehouse.where / run_id), f"RUNS/{name}").replace(run_id, name)
        said[" ".join(names)] = line
    assert said == snapshot


def test_a_run_that_has_nothing_is_left_out_and_the_others_are_compared(warehouse: Warehouse) -> None:
    names = ("complete", "nothing", "no grade", "complete speccot")
    document, of_others = (
        json.loads(warehouse.compare(*chosen, "--format", "json").stdout) for chosen in (names, names[::3])
    )
    assert [document[part] for part in ("rows", "differences")] == [of_others[part] for part in ("rows", "differences")]
    told = [line.split() for line in document["warnings"] if line not in of_others["warnings"]]
    assert [(words[2], "resume" in words, "finalize" in words) for words in told] == [
        (f"{warehouse.ids['nothing']}:", True, False),
        (f"{warehouse.ids['no grade']}:", False, True),
    ]


@pytest.mark.parametrize(
    ("names", "words", "num_rows", "metric"),
    [
        (("complete", "first samples only"), ("--k", "2"), 3, "pass@2"),
        (("first samples only", "complete"), ("--maj",), 2, "maj@3"),
    ],
)
def test_a_metric_that_too_few_samples_are_there_for_is_left_out_alone(
    warehouse: Warehouse, names: tuple[str, str], words: tuple[str, ...], num_rows: int, metric: str
) -> None:
    chosen = [warehouse.ids[name] for name in names]
    document = json.loads(warehouse.compare(*names, *words, "--format", "json").stdout)
    assert len(document["rows"]) == num_rows
    assert {row["run_id"] for row in document["rows"]} == set(chosen)
    [line] = [line for line in document["warnings"] if f" {chosen[1]}, {metric}: " in line]
    assert "python -m jobs resume" in line


def scores_of(name: str) -> tuple[list[bool], Floats]:
    """The samples that are there, and the scores over them of the problems that have one."""
    kept = [[s < right for s in range(3) if KEPT[name](i, s)] for i, right in enumerate(RIGHT)]
    return [sample for samples in kept for sample in samples], np.array([np.mean(own) for own in kept if own])


def summary_of(warehouse: Warehouse, name: str) -> tuple[RunSummary, str]:
    [found] = summary(warehouse.where / "w.duckdb", [warehouse.ids[name]])
    out = StringIO()
    render([found], Console(file=out, width=250))
    return found, out.getvalue()


def test_no_view_has_an_interval_of_what_is_missing(warehouse: Warehouse) -> None:
    for metric in ("pass_at_1", "accuracy"):
        of_metric = "FROM counted_estimate WHERE metric = $metric"
        found = {row["run_id"]: row for row in warehouse.select(of_metric, metric=metric)}
        assert found[warehouse.ids["complete"]]["low_95"] is not None
        for name in (*KEPT, "nothing", "no grade"):
            row = found[warehouse.ids[name]]
            assert (row["standard_error"], row["low_95"], row["high_95"]) == (None, None, None), (metric, name)
        graded = {row["run_id"]: row["estimate"] for row in warehouse.select(of_metric, metric=f"graded_{metric}")}
        for name in KEPT:
            assert graded[warehouse.ids[name]] == pytest.approx(np.mean(scores_of(name)[1]))
    for view in ("pass_at_1", "counted_estimate", "pass_at_k", "maj_at_k"):
        assert warehouse.select(f"FROM {view} WHERE low_95 = 0 AND high_95 = 0") == [], view


@pytest.mark.parametrize("name", KEPT)
def test_a_summary_is_over_the_samples_that_are_there_and_says_what_the_others_could_change(
    warehouse: Warehouse, name: str
) -> None:
    found, shown = summary_of(warehouse, name)
    kept, scores = scores_of(name)
    interval, lowest, highest = mean(scores), np.sum(kept) / 36, (np.sum(kept) + 36 - len(kept)) / 36
    result = known(found.result)
    assert (result.low_95, result.high_95) == pytest.approx((interval.low, interval.high))
    lower_bound = found.measures["pass_at_1"]
    assert (lower_bound.low_95, lower_bound.high_95, lower_bound.standard_error) == (None, None, None)
    assert (found.pass_at_1, found.highest_pass_at_1) == pytest.approx((lowest, highest))
    for number in (interval.estimate, lowest, highest):
        assert f"{100 * number:.2f}" in shown
    assert f"[avg-of-3, {len(kept)} of 36 " in shown


@pytest.mark.parametrize("name", ["nothing", "no grade"])
def test_a_run_without_any_result_has_no_number(warehouse: Warehouse, name: str) -> None:
    found, shown = summary_of(warehouse, name)
    assert (found.result, found.measures["pass_at_1"].low_95) == (None, None)
    assert not re.search(r"\b0(\.0+)? to 0(\.0+)?\b", shown)
    with reader(warehouse.where / "w.duckdb") as connection:
        for metric, k in (("graded_pass_at_1", None), ("pass_at_k", 2)):
            assert measure(connection, metric, warehouse.ids[name], k=k) is None


@pytest.mark.needs_tool("inspect")
@pytest.mark.parametrize("name", ["at random, ungraded", "nothing"])
def test_an_inspect_log_leaves_missing_samples_out_of_its_accuracy(
    warehouse: Warehouse, name: str, tmp_path: Path
) -> None:
    from inspect_ai import log

    file = str(tmp_path / "run.eval")
    words = ["--format", "inspect", "-o", file, "--database", str(warehouse.where / "w.duckdb")]
    result = CliRunner().invoke(export.main, [warehouse.ids[name], *words])
    assert result.exit_code == 0, result.output
    [score] = log.read_eval_log(file).results.scores
    found = {kind: metric.value for kind, metric in score.metrics.items()}
    expected = mean(scores_of("at random, ungraded")[1])
    of_part = pytest.approx({"accuracy": expected.estimate, "stderr": expected.standard_error})
    assert found == ({} if name == "nothing" else of_part)


SIXTEEN_RIGHT = (16, 16, 15, 16, 14, 16, 16, 13, 16, 12, 4, 2)
LAST = 11
"""The hardest problem: its chains are the longest, and finish last."""


def without(*samples: int) -> Has:
    return lambda problem, sample: problem != LAST or sample not in samples


@pytest.fixture(scope="module")
def nearly_complete(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    where = tmp_path_factory.mktemp("completeness")
    vanilla, speccot = (replace(spec, samples=16) for spec in (cells.VANILLA, cells.SPEC))
    made = {
        "target": (vanilla, every_one, every_one),
        "method": (speccot, every_one, every_one),
        "method, one missing": (speccot, without(0), every_one),
        "target, one missing": (vanilla, without(15), every_one),
        "method, two missing": (speccot, without(0, 1), every_one),
        "method, one ungraded": (speccot, every_one, without(0)),
    }
    folders = {
        name: cells.finished(where, replace(spec, seed=seed), SIXTEEN_RIGHT, has_run=ran, has_grade=graded)
        for seed, (name, (spec, ran, graded)) in enumerate(made.items())
    }
    return Warehouse.of(where, folders)


@pytest.mark.parametrize(
    ("base", "run"),
    [("target", "method, one missing"), ("target", "method, one ungraded"), ("target, one missing", "method")],
)
def test_few_missing_samples_count_against_the_run(nearly_complete: Warehouse, base: str, run: str) -> None:
    """As if a right sample of the run's last problem, or a wrong one of the baseline's, differed."""
    _, row = nearly_complete.compared(base, run, "--margin", "40")
    expected = np.array([0] * LAST + [-1 / 16])
    assert row["completeness"] >= LEAST_COMPLETENESS
    assert row["p_non_inferior"] == pytest.approx(bounded.worst_case(expected, np.zeros(12), 0.4).p)
    assert (row["is_non_inferior"], row["non_inferiority_refused"], row["is_unfinished"]) == (True, None, True)


def test_with_more_missing_samples_it_is_refused_with_the_reason(nearly_complete: Warehouse) -> None:
    words = ("target", "method, two missing", "--margin", "90", "--k", "2", "--maj")
    for row in nearly_complete.compared(*words)[3:]:
        assert row["completeness"] == pytest.approx(190 / 192)
        assert (row["is_non_inferior"], row["p_non_inferior"]) == (None, None)
        assert "190 of 192" in row["non_inferiority_refused"]
    assert nearly_complete.compare(*words).stdout.count("(98 %)") == 3
