"""The default baseline is the target alone, one per dataset; which run it is, and why, is printed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse import cells, runs
from tests.warehouse.test_compare import compare, load, records

GOOD = (4, 4, 4, 3, 3, 4, 2, 4, 1, 4, 0, 3)
BAD = (3, 2, 4, 1, 3, 2, 0, 3, 1, 2, 0, 1)
DRAFT = replace(cells.VANILLA, params={"model": "draft"}, draft=runs.DRAFT, target=None)
OTHER_TARGET = replace(cells.VANILLA, target=replace(runs.TARGET, model="huge", fingerprint="huge@r1"))


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    where = tmp_path_factory.mktemp("baselines")
    made = {
        "method": cells.finished(where, cells.SPEC, BAD),
        "draft alone": cells.finished(where, DRAFT, BAD),
        "target": cells.finished(where, cells.VANILLA, GOOD),
        "target again": cells.finished(where, replace(cells.VANILLA, seed=3), GOOD),
        "limited target": cells.finished(where, replace(cells.VANILLA, seed=4), GOOD[:6]),
        "unfinished target": cells.finished(where, replace(cells.VANILLA, seed=5), GOOD, missing=3),
        "other target": cells.finished(where, OTHER_TARGET, GOOD),
        "empty target": cells.finished(where, replace(cells.VANILLA, seed=6), GOOD, missing=48),
        "two samples": cells.finished(where, replace(cells.SPEC, samples=2), tuple(min(2, right) for right in BAD)),
    }
    return where, dict(zip(made, load(where, *made.values()), strict=True))


def document(where: Path, *arguments: str) -> dict[str, Any]:
    result = compare(where, *arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


@pytest.mark.parametrize(
    ("arguments", "baseline"),
    [
        (("draft alone", "method", "target"), "target"),
        (("method", "draft alone"), "method"),
        (("method", "target again", "target"), "target again"),
        (("method", "other target", "limited target", "target"), "target"),
        (("method", "unfinished target", "empty target", "target"), "target"),
    ],
)
def test_the_baseline_is_the_target_alone(
    warehouse: tuple[Path, dict[str, str]], arguments: tuple[str, ...], baseline: str
) -> None:
    where, names = warehouse
    chosen = [names[name] for name in arguments]
    found = document(where, *chosen)
    [entry] = found["baselines"]
    assert (entry["dataset"], entry["run_id"]) == ("sums", names[baseline])
    others = [names[baseline]] * (len(found["rows"]) - 1)
    assert [row["baseline_run_id"] for row in found["rows"]] == [None, *others], "the baseline is first"


def test_a_majority_is_by_default_over_as_many_samples_as_every_run_has(
    warehouse: tuple[Path, dict[str, str]],
) -> None:
    where, names = warehouse
    rows = records(compare(where, names["target"], names["two samples"], "--maj", "--format", "json"))
    assert [row["metric"] for row in rows] == ["pass@1[avg-of-4]", "maj@2", "pass@1[avg-of-2]", "maj@2"]
