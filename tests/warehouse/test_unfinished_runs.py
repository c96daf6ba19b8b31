"""Runs under way: what is there has a number, what is missing is not counted as wrong, and no interval is [0, 0]."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.warehouse import cells
from tests.warehouse.test_compare import load
from warehouse import export
from warehouse.database import reader, rows
from warehouse.report.summary import RunSummary, render, summary
from warehouse.statistics.intervals import mean
from warehouse.suites.measured import measure

RIGHT = (3, 2, 3, 1, 2, 3, 0, 2, 1, 3, 2, 3)
VANILLA, SPECCOT = (replace(spec, samples=3) for spec in (cells.VANILLA, cells.SPEC))
Has = Callable[[int, int], bool]


def every_one(problem: int, sample: int) -> bool:
    return True


def none(problem: int, sample: int) -> bool:
    return False


def first_problems(problem: int, sample: int) -> bool:
    return problem < 5


def first_two(problem: int, sample: int) -> bool:
    return sample < 2


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder with a warehouse, and the runs in it by name."""
    where = tmp_path_factory.mktemp("runs under way")
    run_ids: dict[str, str] = {}
    folders: list[RunFolder] = []

    def add(name: str, spec: RunSpec, has_run: Has = every_one, has_grade: Has = every_one) -> None:
        spec = replace(spec, seed=len(run_ids))
        folders.append(cells.finished(where, spec, RIGHT, has_run=has_run, has_grade=has_grade))
        run_ids[name] = folders[-1].path.name

    add("complete", VANILLA)
    add("first problems", SPECCOT, has_run=first_problems)
    add("last samples missing", SPECCOT, has_run=first_two)
    add("last samples ungraded", SPECCOT, has_grade=first_two)
    add("nothing", SPECCOT, has_run=none)
    add("no grade", SPECCOT, has_grade=none)
    load(where, *folders)
    return where, run_ids


KEPT: dict[str, Has] = {
    "first problems": first_problems,
    "last samples missing": first_two,
    "last samples ungraded": first_two,
}


def expected(name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The scores of the problems that have a sample, over these samples."""
    kept = [[s < right for s in range(3) if KEPT[name](i, s)] for i, right in enumerate(RIGHT)]
    return np.array([np.mean(samples) for samples in kept if samples])


def summary_of(where: Path, run_id: str) -> tuple[RunSummary, str]:
    [found] = summary(where / "w.duckdb", [run_id])
    out = StringIO()
    render([found], Console(file=out, width=250))
    return found, out.getvalue()


def test_no_view_has_an_interval_of_what_is_missing(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, runs = warehouse
    with reader(where / "w.duckdb") as connection:
        for metric in ("pass_at_1", "accuracy"):
            of_metric = f"FROM counted_estimate WHERE metric = '{metric}'"
            found = {row["run_id"]: row for row in rows(connection, of_metric)}
            assert found[runs["complete"]]["low_95"] is not None
            for name in (*KEPT, "nothing", "no grade"):
                row = found[runs[name]]
                assert (row["standard_error"], row["low_95"], row["high_95"]) == (None, None, None), (metric, name)
            graded = {row["run_id"]: row["estimate"] for row in rows(connection, of_metric.replace("'", "'graded_", 1))}
            for name in KEPT:
                assert graded[runs[name]] == pytest.approx(np.mean(expected(name)))
        for view in ("pass_at_1", "counted_estimate", "pass_at_k", "maj_at_k"):
            of_nothing = rows(connection, f"FROM {view} WHERE low_95 = 0 AND high_95 = 0")
            assert of_nothing == [], view


@pytest.mark.parametrize("name", KEPT)
def test_a_summary_is_over_the_samples_that_are_there_and_says_what_the_others_could_change(
    warehouse: tuple[Path, dict[str, str]], name: str
) -> None:
    where, runs = warehouse
    found, shown = summary_of(where, runs[name])
    interval = mean(expected(name))
    kept = [s < right for i, right in enumerate(RIGHT) for s in range(3) if KEPT[name](i, s)]
    lowest, highest = np.sum(kept) / 36, (np.sum(kept) + 36 - len(kept)) / 36
    assert found.result is not None
    assert (found.result.low_95, found.result.high_95) == pytest.approx((interval.low, interval.high))
    lower_bound = found.measures["pass_at_1"]
    assert (lower_bound.low_95, lower_bound.high_95, lower_bound.standard_error) == (None, None, None)
    assert (found.pass_at_1, found.highest_pass_at_1) == pytest.approx((lowest, highest))
    for number in (interval.estimate, lowest, highest):
        assert f"{100 * number:.2f}" in shown
    assert f"[avg-of-3, {len(kept)} of 36 " in shown


@pytest.mark.parametrize("name", ["nothing", "no grade"])
def test_a_run_without_any_result_has_no_number(warehouse: tuple[Path, dict[str, str]], name: str) -> None:
    where, runs = warehouse
    found, shown = summary_of(where, runs[name])
    assert (found.result, found.measures["pass_at_1"].low_95) == (None, None)
    assert not re.search(r"\b0(\.0+)? to 0(\.0+)?\b", shown)
    with reader(where / "w.duckdb") as connection:
        for metric, k in (("graded_pass_at_1", None), ("pass_at_k", 2)):
            assert measure(connection, metric, runs[name], k=k) is None


@pytest.mark.needs_tool("inspect")
@pytest.mark.parametrize("name", ["last samples ungraded", "nothing"])
def test_an_inspect_log_leaves_missing_samples_out_of_its_accuracy(
    warehouse: tuple[Path, dict[str, str]], name: str, tmp_path: Path
) -> None:
    from inspect_ai import log

    where, runs = warehouse
    file = tmp_path / "run.eval"
    arguments = [runs[name], "--format", "inspect", "-o", str(file), "--database", str(where / "w.duckdb")]
    result = CliRunner().invoke(export.main, arguments)
    assert result.exit_code == 0, result.output
    [score] = log.read_eval_log(str(file)).results.scores
    if name == "nothing":
        assert score.metrics == {}
        return
    assert score.metrics["accuracy"].value == pytest.approx(np.mean(expected(name)))
    error = mean(expected(name)).standard_error
    assert score.metrics["stderr"].value == pytest.approx(error)
