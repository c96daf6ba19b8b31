"""The rule of what makes the target alone a baseline: its SQL, its reasons, and what a comparison calls different."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.warehouse import cells
from tests.warehouse.comparison.test_manifests import mismatches, ran_on
from tests.warehouse.test_compare import load
from warehouse.database import reader, rows
from warehouse.sql.baselines import _OF_TIMES, SETTINGS, Setting, unlike


@pytest.mark.parametrize("setting", _OF_TIMES, ids=lambda setting: setting.column)
def test_the_condition_of_the_views_is_that_of_the_reasons(setting: Setting) -> None:
    names = sorted({setting.column, "num_cards", "target_fingerprint"})
    sides = [dict(zip(names, values, strict=True)) for values in product((None, "1", "2"), repeat=len(names))]
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"CREATE TABLE side (number INTEGER, {', '.join(f'{name} VARCHAR' for name in names)})")
        connection.executemany(
            f"INSERT INTO side VALUES (?, {', '.join('?' for _ in names)})",
            [[number, *side.values()] for number, side in enumerate(sides)],
        )
        sql = f"SELECT run.number, baseline.number, {setting.condition} FROM side AS run CROSS JOIN side AS baseline"
        found = {(own, base): bool(is_alike) for own, base, is_alike in connection.execute(sql).fetchall()}
    assert found == {
        (own, base): setting.is_alike(run, baseline)
        for own, run in enumerate(sides)
        for base, baseline in enumerate(sides)
    }


def test_every_setting_that_times_depend_on_is_the_methods_own_or_compared_with_the_target_alone() -> None:
    own = {one.column for one in SETTINGS if "latency" in one.matter and one.alone == "free"}
    assert {name for name in own if "draft" not in name and "reward" not in name} == {"engine_take_turns"}


def test_views_and_comparisons_agree(tmp_path: Path) -> None:
    attempts: dict[str, dict[str, Any]] = {
        "": {"num_devices": 2}, "devices": {"device": "NVIDIA L4"}, "processor": {"hardware": {"cpu": "another"}}
    }  # fmt: skip
    folders = [ran_on(tmp_path, replace(cells.SPEC, tag=name or None), **attempt) for name, attempt in attempts.items()]
    base, *own = load(tmp_path, ran_on(tmp_path, cells.VANILLA), *folders)
    for reason, run in zip(attempts, own, strict=True):
        assert [text.partition(":")[0] for text in mismatches(tmp_path, run, base)] == ([reason] if reason else [])
    with reader(tmp_path / "w.duckdb") as connection:
        assert [row["run_id"] for row in rows(connection, "FROM comparable_baseline")] == [own[0]]


def test_a_reason_says_what_both_have() -> None:
    run: dict[str, Any] = {one.column: "same" for one in _OF_TIMES} | {"num_cards": 2, "dataset_hash": "same"}
    assert unlike(run, {**run, "engine_target_tensor_parallel": 1}) == [], "cards are as many"
    [reason] = unlike(run, {**run, "engine_target_tensor_parallel": 1, "num_cards": 1})
    assert {"1", "same"} < set(reason.replace(",", "").split())
