"""Comparisons of complete runs give the numbers that were recorded of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse import cells
from tests.warehouse.test_compare import BAD, GOOD, compare, load, records

RECORDED = [
    (
        "pass@1[avg-of-4]",
        -0.2916666666666667,
        -0.460946570830745,
        -0.02353102468944892,
        0.03633586875685335,
        0.06588078458684124,
    ),
    ("pass@2", -0.19444444444444442, -0.411006630686684, 0.05828464404286661, 0.11720041397798786, None),
    ("maj@2", -0.2916666666666667, -0.460946570830745, -0.02353102468944892, 0.03633586875685335, None),
    (
        "pass@1[avg-of-2]",
        -0.041666666666666664,
        -0.25125023269472047,
        0.17613425984839873,
        0.9310689529812382,
        0.07216878364870322,
    ),
    ("pass@2", -0.02777777777777778, -0.2790002251882908, 0.20466456451800907, 1.0, None),
    ("maj@2", -0.041666666666666664, -0.25125023269472047, 0.17613425984839873, 0.9310689529812382, None),
]


def test_complete_runs_with_equal_and_unequal_numbers_of_samples_give_the_recorded_numbers(tmp_path: Path) -> None:
    """Differences and re-run errors recorded before samples were paired; interval and p when the bounded mean came."""
    two = replace(cells.SPEC, samples=2)
    names = load(
        tmp_path,
        cells.finished(tmp_path, cells.VANILLA, GOOD),
        cells.finished(tmp_path, cells.SPEC, BAD, wrong="truncated"),
        cells.finished(tmp_path, two, tuple(min(right, 2) for right in BAD)),
    )
    rows = records(compare(tmp_path, *names, "--k", "2", "--maj", "--format", "json"))
    found = [_numbers(row) for row in rows if row["p"] is not None]
    assert [row[0] for row in found] == [row[0] for row in RECORDED]
    for own, recorded in zip(found, RECORDED, strict=True):
        assert own[1:] == pytest.approx(recorded[1:], abs=1e-6)


def _numbers(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("difference", "difference_low_95", "difference_high_95", "p", "rerun_standard_error")
    return row["metric"], *(row[name] for name in names)
