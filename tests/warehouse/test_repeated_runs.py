"""The run factor of a warehouse: which runs count as repeated, and what a comparison and a summary say of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.run.spec import RunSpec
from tests.warehouse import cells
from tests.warehouse.test_compare import GOOD, compare, load, records
from tests.warehouse.test_summary import rendered
from warehouse.database import reader
from warehouse.pairs import run_factors

FACTORS = (1.0, 1.1, 0.95)


def repeated(where: Path, spec: RunSpec, factors: Sequence[float], **options: str) -> list[str]:
    folders = [
        cells.finished(where, replace(spec, seed=seed), GOOD, latency=10 * factor, **options)  # type: ignore[arg-type]
        for seed, factor in enumerate(factors)
    ]
    return load(where, *folders)


def test_repeated_runs_widen_the_interval_of_a_speed_up(tmp_path: Path) -> None:
    vanilla, *_ = repeated(tmp_path, cells.VANILLA, FACTORS)
    [run] = load(tmp_path, cells.finished(tmp_path, cells.SPEC, GOOD, latency=5.0))
    _, row = records(compare(tmp_path, vanilla, run, "--format", "json"))
    logs = [math.log(factor) for factor in FACTORS]
    expected = math.sqrt(sum((log - sum(logs) / 3) ** 2 for log in logs) / 2)
    assert row["run_factor_standard_deviation"] == pytest.approx(expected)
    assert (row["run_factor_degrees"], row["speed_up"]) == (2, pytest.approx(2))
    assert row["speed_up_interval"] == "bounded mean of logarithms, run factor"
    assert row["speed_up_low_95"] < 2 * math.exp(-4.3 * math.sqrt(2) * expected)
    printed = compare(tmp_path, vanilla, run, "--all").stdout
    assert "Run factor: times of repeated runs under these conditions differ by 7.4 %" in " ".join(printed.split())
    assert "within these runs" not in printed
    assert "within these runs" not in rendered(tmp_path / "w.duckdb", run)


def test_only_runs_under_the_same_conditions_count(tmp_path: Path) -> None:
    asked, *_ = repeated(tmp_path, cells.VANILLA, FACTORS[:2])
    others = [
        repeated(tmp_path, replace(cells.VANILLA, token_budget=512), FACTORS, device="NVIDIA A100")[0],
        repeated(tmp_path, replace(cells.VANILLA, concurrency=4), FACTORS)[0],
    ]
    load(tmp_path, cells.finished(tmp_path, replace(cells.VANILLA, temperature=0.1), GOOD))
    with reader(tmp_path / "w.duckdb") as connection:
        found = run_factors(connection, [asked, *others])
        assert set(found) == set(others)
        assert {factor.num_runs for factor in found.values()} == {3}
        assert run_factors(connection, [asked]) == {}
    repeated(tmp_path, replace(cells.VANILLA, temperature=0.3), FACTORS[:2])
    with reader(tmp_path / "w.duckdb") as connection:
        assert run_factors(connection, [asked])[asked].degrees == 2


def test_a_repeated_run_that_has_just_begun_changes_no_factor(tmp_path: Path) -> None:
    """Its group would be compared over its only problem, whose noise would be taken for the factor."""

    def timed(spec: RunSpec, factor: float, *, is_complete: bool = True) -> str:
        return load(
            tmp_path,
            cells.finished(
                tmp_path,
                spec,
                GOOD,
                latency=10 * factor,
                slower=lambda problem, sample: 3.0 if problem == 0 and not is_complete else 1.0,
                has_run=lambda problem, sample: is_complete or (problem, sample) == (0, 0),
            ),
        )[0]

    names = [timed(replace(cells.VANILLA, seed=seed), factor) for seed, factor in enumerate(FACTORS)]
    with reader(tmp_path / "w.duckdb") as connection:
        before = run_factors(connection, names)
    begun = timed(replace(cells.VANILLA, seed=9), 1.0, is_complete=False)
    with reader(tmp_path / "w.duckdb") as connection:
        after = run_factors(connection, [*names, begun])
    assert {name: after[name] for name in names} == before
    assert after[begun] == before[names[0]]
