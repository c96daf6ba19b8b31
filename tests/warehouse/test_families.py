"""Problems of one family, from loading to what is compared, stored and planned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.warehouse import cells
from tests.warehouse.test_compare import compare, load, records
from warehouse.database import reader, rows
from warehouse.statistics.intervals import mean
from warehouse.statistics.paired import paired

RIGHT = (4, 3, 4, 1, 2, 4, 0, 2, 1, 4, 2, 3)
OTHER = (4, 4, 3, 0, 4, 4, 0, 3, 4, 0, 1, 3)
Make = Callable[[int], tuple[Path, list[str], list[str]]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Load the target alone and a method on 12 problems of so many families; return folder, runs and families."""

    def made(num_families: int) -> tuple[Path, list[str], list[str]]:
        family = [f"template {i % num_families}" for i in range(12)]
        problems = [replace(problem, family=name) for problem, name in zip(cells.PROBLEMS, family, strict=True)]
        monkeypatch.setattr(cells, "PROBLEMS", problems)
        runs = [cells.finished(tmp_path, spec, c) for spec, c in ((cells.VANILLA, RIGHT), (cells.SPEC, OTHER))]
        return tmp_path, load(tmp_path, *runs), family

    return made


def test_families_are_the_observations_of_what_is_compared_and_stored(make: Make) -> None:
    where, names, family = make(10)
    _, row = records(compare(where, *names, "--format", "json"))
    result, difference = mean(np.array(OTHER) / 4, family), paired(np.array(OTHER) / 4, np.array(RIGHT) / 4, family)
    assert (row["num_families"], row["difference_interval"]) == (10, "t, clustered")
    assert (row["result_low_95"], row["result_high_95"]) == pytest.approx((result.low, result.high))
    assert (row["difference_low_95"], row["p"]) == pytest.approx((difference.low, difference.p))
    sql = "SELECT metric, families, low_95 FROM counted_estimate WHERE run_id = $run_id AND group_kind IS NULL"
    with reader(where / "w.duckdb") as connection:
        found = {str(one["metric"]): one for one in rows(connection, sql, {"run_id": names[1]})}
    assert found["pass_at_1"]["low_95"] == pytest.approx(result.low)
    assert {found[name]["families"] for name in ("pass_at_1", "maj_at_k", "truncated", "emitted_tokens")} == {10}


def test_few_families_have_no_interval_but_the_worst_case(make: Make) -> None:
    where, names, _ = make(4)
    _, row = records(compare(where, *names, "--format", "json"))
    assert (row["result_low_95"], row["difference_low_95"], row["p"], row["p_holm"]) == (None,) * 4
    assert row["difference"] == pytest.approx(np.mean(np.array(OTHER) - np.array(RIGHT)) / 4)
    assert row["worst_case_low_95"] < -0.3
