"""A speed-up names the cards of both sides, and the target alone may have as many as both models together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.run.spec import RunSpec
from tests.warehouse import cells
from tests.warehouse.test_compare import GOOD, compare, load, records
from warehouse.database import reader, rows


def wide(spec: RunSpec) -> RunSpec:
    assert spec.target is not None
    return replace(spec, target=replace(spec.target, tensor_parallel=2))


def test_a_speed_up_names_the_cards_where_they_differ(tmp_path: Path) -> None:
    base = cells.finished(tmp_path, cells.VANILLA, GOOD)
    names = load(tmp_path, base, cells.finished(tmp_path, cells.SPEC, GOOD, latency=5.0, num_devices=2))
    assert "2 GPUs : 1" in compare(tmp_path, *names).stdout
    [_, run] = records(compare(tmp_path, *names, "--format", "json"))
    assert (run["num_cards"], run["num_cards_of_baseline"]) == (2, 1)
    assert run["speed_up_per_card_second"] == pytest.approx(1.0)
    with reader(tmp_path / "w.duckdb") as connection:
        [row] = rows(connection, "FROM speed_up")
    assert row["speed_up_per_card_second"] == pytest.approx(1.0)


def test_a_wider_target_alone_is_a_baseline_on_as_many_cards(tmp_path: Path) -> None:
    base = cells.finished(tmp_path, wide(cells.VANILLA), GOOD, num_devices=2)
    own = [
        cells.finished(tmp_path, replace(cells.SPEC, seed=number), GOOD, latency=5.0, num_devices=number)
        for number in (1, 2)
    ]
    names = load(tmp_path, base, *own)
    _, *found = records(compare(tmp_path, *names, "--format", "json"))
    assert [run["speed_up"] is not None for run in found] == [False, True]
    with reader(tmp_path / "w.duckdb") as connection:
        assert [row["run_id"] for row in rows(connection, "FROM speed_up")] == [names[2]]
