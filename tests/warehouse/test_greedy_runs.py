"""A greedy run draws one sample of each problem again and again: nothing takes the repeats for independent samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.shared import with_settings
from tests.warehouse import cells
from tests.warehouse.test_compare import compare, load, records
from tests.warehouse.test_night_runs import made, nights_of
from warehouse.database import reader, rows
from warehouse.report.summary import summary
from warehouse.suites.measured import measure

GREEDY = replace(cells.SPEC, temperature=0.0)
RIGHT = (4, 4, 4, 0, 0, 1)
"""Right samples of 4; engines wrote the last problem's repeats differently by chance."""


def test_a_greedy_run_has_no_pass_at_k_and_no_spread_within_problems(tmp_path: Path) -> None:
    greedy, sampled = load(tmp_path, *(cells.finished(tmp_path, spec, RIGHT) for spec in (GREEDY, cells.SPEC)))
    with reader(tmp_path / "w.duckdb") as connection:

        def ks(view: str, run: str) -> list[object]:
            return [row["k"] for row in rows(connection, f"SELECT k FROM {view} WHERE run_id = '{run}' ORDER BY k")]

        assert [ks("pass_at_k", run) for run in (greedy, sampled)] == [[1], [1, 2, 3, 4]]
        assert [ks("maj_at_k", run) for run in (greedy, sampled)] == [[1], [4]]
        spread = "SELECT run_id, rerun_standard_error FROM pass_at_1"
        found = {row["run_id"]: row["rerun_standard_error"] for row in rows(connection, spread)}
        assert found[greedy] is None
        assert found[sampled] is not None
        assert measure(connection, "pass_at_k", greedy, k=2) is None
    [told, silent] = summary(tmp_path / "w.duckdb", [greedy, sampled])
    assert told.pass_at_1 == pytest.approx(silent.pass_at_1)
    assert [any(line.startswith("GREEDY") for line in one.warnings) for one in (told, silent)] == [True, False]


def test_a_comparison_has_pass_at_k_of_sampled_runs_alone(tmp_path: Path) -> None:
    specs = (replace(cells.VANILLA, temperature=0.0), cells.SPEC)
    greedy, sampled = load(tmp_path, *(cells.finished(tmp_path, spec, RIGHT) for spec in specs))
    result = compare(tmp_path, greedy, sampled, "--k", "2", "--maj", "--baseline", greedy, "--format", "json")
    assert {row["metric"].partition("[")[0] for row in records(result)} == {"pass@1"}


def test_a_change_of_a_greedy_run_counts_once(tmp_path: Path) -> None:
    """Three problems of twelve are lost: many of 48 repeats, but no more than 3 of 12 samples."""
    names = load(
        tmp_path,
        *(
            cells.finished(tmp_path, replace(spec, seed=seed), [spec.samples * right for right in rights])
            for spec in (GREEDY, replace(cells.SPEC, samples=1))
            for seed, rights in enumerate(([1] * 12, [0] * 3 + [1] * 9))
        ),
    )
    pairs = [records(compare(tmp_path, *pair, "--format", "json")) for pair in (names[:2], names[2:])]
    assert pairs[0][1]["p"] == pytest.approx(pairs[1][1]["p"])


def test_a_night_of_a_greedy_run_is_one_sample_of_each_problem(tmp_path: Path) -> None:
    other = with_settings(replace(cells.SPEC, temperature=0.0), "draft", temperature=0.6)
    load(tmp_path, *(made(tmp_path, 1, RIGHT, spec=spec) for spec in (GREEDY, other)))
    [night] = nights_of(tmp_path)
    greedy, sampled = sorted((cell.first for cell in night), key=lambda run: run.num_samples)
    assert (greedy.num_problems, greedy.num_samples, greedy.verdicts) == (6, 6, {"correct": 4, "wrong": 2})
    assert greedy.values["pass_at_1"] == pytest.approx(4 / 6)
    assert not greedy.variances
    assert (sampled.num_samples, list(sampled.variances)) == (24, ["pass_at_1"])
