"""The run factor of a warehouse: which runs count as repeated, and what a comparison and a summary say of it."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec
from tests.warehouse import cells
from tests.warehouse.report.test_summary import rendered
from tests.warehouse.test_compare import GOOD, compare, load, records
from warehouse.comparison.pairs import repeats_of
from warehouse.database import reader

FACTORS = (1.0, 1.1, 0.95)


def repeated(where: Path, spec: RunSpec, factors: Sequence[float]) -> list[RunFolder]:
    return [
        cells.finished(where, replace(spec, seed=seed), GOOD, latency=10 * factor)
        for seed, factor in enumerate(factors)
    ]


def of_setting(where: Path, run: str) -> list[str]:
    with reader(where / "w.duckdb") as connection:
        return repeats_of(connection, [run])[run]


def test_a_speed_up_is_over_all_repeats_of_both_settings_and_covers_the_run_factor(tmp_path: Path) -> None:
    """Each run alone would be 2, 2.2 or 1.9 times as slow as the run."""
    faster = cells.finished(tmp_path, cells.SPEC, GOOD, latency=5.0, slower=lambda p, s: 1 + p / 20)
    run, vanilla, *_ = load(tmp_path, faster, *repeated(tmp_path, cells.VANILLA, FACTORS))
    _, row = records(compare(tmp_path, vanilla, run, "--format", "json"))
    logs = [math.log(factor) for factor in FACTORS]
    expected = math.sqrt(sum((log - sum(logs) / 3) ** 2 for log in logs) / 2)
    assert row["run_factor_standard_deviation"] == pytest.approx(expected)
    assert (row["run_factor_degrees"], row["num_timed_runs"], row["num_timed_runs_of_baseline"]) == (2, 1, 3)
    problems = [math.log((1.375 + problem / 10) / (1 + problem / 20)) for problem in range(12)]
    assert row["speed_up"] == pytest.approx(2 * math.exp(sum(logs) / 3 + sum(problems) / 12))
    assert row["speed_up_interval"] == "bootstrap-t, run factor"
    assert row["speed_up_low_95"] < row["speed_up"] * math.exp(-4.3 * math.sqrt(4 / 3) * expected)
    assert "1 run : 3" in rendered(tmp_path / "w.duckdb", run)


def test_repeats_have_the_same_settings_machine_and_night(tmp_path: Path) -> None:
    others = (
        cells.finished(tmp_path, replace(cells.VANILLA, temperature=0.1), GOOD),
        cells.finished(tmp_path, replace(cells.VANILLA, tag="2026-01-02"), GOOD),
        cells.finished(tmp_path, replace(cells.VANILLA, tag="elsewhere"), GOOD, device="NVIDIA A100"),
    )
    same = cells.finished(tmp_path, replace(cells.VANILLA, tag="again"), GOOD)
    asked, again, tagged, *_ = load(tmp_path, *repeated(tmp_path, cells.VANILLA, FACTORS[:2]), same, *others)
    assert of_setting(tmp_path, asked) == sorted([asked, again, tagged])


def test_a_repeat_counts_when_it_is_finished_and_stored_rows_are_made_again(tmp_path: Path) -> None:
    """What is left of a run that has begun is compared alone."""

    def stored(run: str) -> list[tuple[object, ...]]:
        with reader(tmp_path / "w.duckdb") as connection:
            columns = "num_runs, num_runs_of_baseline, round(speed_up, 4)"
            sql = f"SELECT {columns} FROM speed_up WHERE run_id = ? ORDER BY ALL"
            return connection.execute(sql, [run]).fetchall()

    first = repeated(tmp_path, cells.VANILLA, FACTORS[:1])
    base, run = load(tmp_path, *first, cells.finished(tmp_path, cells.SPEC, GOOD, latency=5.0))
    assert stored(run) == [(1, 1, 2.0)]
    begun = replace(cells.VANILLA, seed=9)
    folder = cells.finished(tmp_path, begun, GOOD, latency=11.0, missing=12)
    [name] = load(tmp_path, folder)
    assert of_setting(tmp_path, name) == [name]
    assert of_setting(tmp_path, base) == [base]
    assert stored(run) == [(1, 1, 2.0), (1, 1, 2.2)]
    shutil.rmtree(folder.path)
    load(tmp_path, cells.finished(tmp_path, begun, GOOD, latency=11.0))
    assert of_setting(tmp_path, base) == sorted([base, name])
    assert stored(run) == [(1, 2, round(2 * math.sqrt(1.1), 4))] * 2
