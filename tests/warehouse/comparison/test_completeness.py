"""Whether a run is not worse is refused where too many samples are missing; fewer count against the run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.warehouse import cells
from tests.warehouse.test_compare import compare, load, records
from warehouse.comparison.outcomes import LEAST_COMPLETENESS
from warehouse.statistics import bounded

SAMPLES = 16
RIGHT = (16, 16, 15, 16, 14, 16, 16, 13, 16, 12, 4, 2)
VANILLA, SPECCOT = (replace(spec, samples=SAMPLES) for spec in (cells.VANILLA, cells.SPEC))
Has = Callable[[int, int], bool]
LAST = 11
"""The hardest problem: its chains are the longest, and finish last."""


def without(*samples: int) -> Has:
    return lambda problem, sample: problem != LAST or sample not in samples


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    where = tmp_path_factory.mktemp("completeness")
    made = {
        "target": cells.finished(where, VANILLA, RIGHT),
        "method": cells.finished(where, SPECCOT, RIGHT),
        "method, one missing": cells.finished(where, replace(SPECCOT, seed=1), RIGHT, has_run=without(0)),
        "target, one missing": cells.finished(where, replace(VANILLA, seed=1), RIGHT, has_run=without(15)),
        "method, two missing": cells.finished(where, replace(SPECCOT, seed=2), RIGHT, has_run=without(0, 1)),
        "method, one ungraded": cells.finished(where, replace(SPECCOT, seed=3), RIGHT, has_grade=without(0)),
    }
    return where, dict(zip(made, load(where, *made.values()), strict=True))


def worst(run_missing: int = 0, base_missing: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Differences of equal runs if right samples of the run's last problem, or wrong ones of the baseline's, differ."""
    differences = np.zeros(len(RIGHT))
    differences[LAST] = -(run_missing + base_missing) / SAMPLES
    return differences


@pytest.mark.parametrize(
    ("base", "run", "expected"),
    [
        ("target", "method, one missing", worst(run_missing=1)),
        ("target", "method, one ungraded", worst(run_missing=1)),
        ("target, one missing", "method", worst(base_missing=1)),
    ],
)
def test_few_missing_samples_count_against_the_run(
    warehouse: tuple[Path, dict[str, str]],
    base: str,
    run: str,
    expected: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> None:
    where, names = warehouse
    _, row = records(compare(where, names[base], names[run], "--margin", "40", "--format", "json"))
    assert row["completeness"] >= LEAST_COMPLETENESS
    assert row["p_non_inferior"] == pytest.approx(bounded.worst_case(expected, np.zeros(12), 0.4).p)
    assert (row["is_non_inferior"], row["non_inferiority_refused"]) == (True, None)
    assert row["is_unfinished"] is ("one" in base + run)


def test_with_more_missing_samples_it_is_refused_with_the_reason(warehouse: tuple[Path, dict[str, str]]) -> None:
    where, names = warehouse
    arguments = (names["target"], names["method, two missing"], "--margin", "90", "--k", "2", "--maj")
    for row in records(compare(where, *arguments, "--format", "json"))[3:]:
        assert row["completeness"] == pytest.approx(190 / 192)
        assert (row["is_non_inferior"], row["p_non_inferior"]) == (None, None)
        assert "190 of 192" in row["non_inferiority_refused"]
    assert compare(where, *arguments).stdout.count("(98 %)") == 3
