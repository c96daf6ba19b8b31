"""Runs with one sample in flight and runs with several: each regime has its baseline, and the last table has both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.run.spec import RunSpec
from tests.warehouse import cells
from tests.warehouse.test_compare import BAD, GOOD, compare, load, records

ALONE, METHOD = cells.VANILLA, replace(cells.SPEC, method="specreason", params={"threshold": 5.0})


def many(spec: RunSpec) -> RunSpec:
    return replace(spec, concurrency=32)


def one(spec: RunSpec) -> RunSpec:
    return replace(spec, concurrency=1, samples=1)


def right(scores: tuple[int, ...], problems: int) -> list[int]:
    return [min(1, score) for score in scores[:problems]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    where = tmp_path_factory.mktemp("regimes")
    made = {
        "target, many": cells.finished(where, many(ALONE), GOOD, latency=30.0),
        "method, many": cells.finished(where, many(METHOD), BAD, latency=40.0),
        "target, one": cells.finished(where, one(ALONE), right(GOOD, 6), latency=20.0),
        "method, one": cells.finished(where, one(METHOD), right(BAD, 6), latency=10.0),
    }
    return where, dict(zip(made, load(where, *made.values()), strict=True))


def test_each_regime_is_compared_with_its_own_target_alone(both: tuple[Path, dict[str, str]]) -> None:
    where, names = both
    found = records(compare(where, *names.values(), "--format", "json"))
    assert {row["run_id"]: row["baseline_run_id"] for row in found} == {
        names["target, many"]: None,
        names["method, many"]: names["target, many"],
        names["target, one"]: None,
        names["method, one"]: names["target, one"],
    }
    ratios = {row["run_id"]: row["speed_up"] for row in found}
    assert ratios[names["method, many"]] == pytest.approx(0.75)
    assert ratios[names["method, one"]] == pytest.approx(2.0)


def test_a_regime_without_the_target_alone_has_the_baseline_of_the_other_and_no_speed_up(
    both: tuple[Path, dict[str, str]],
) -> None:
    where, names = both
    left = [run for name, run in names.items() if name != "target, one"]
    found = records(compare(where, *left, "--format", "json"))
    assert {row["baseline_run_id"] for row in found[1:]} == {found[0]["run_id"]}
    assert [row["speed_up"] for row in found[1:] if row["latency_unlike"]] == [None]
