"""Runs along one parameter are a curve, and accuracy against latency has a Pareto front."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.warehouse.conftest import Loaded
from warehouse.comparison.manifests import Manifest, read_manifests, sweeps
from warehouse.database import reader
from warehouse.report.charts import Curve, Dot, Look, Scatter
from warehouse.report.facts import report_facts
from warehouse.report.paper_charts import write_charts
from warehouse.report.sections import Compared, pareto_front, sections
from warehouse.statistics.intervals import Interval

THREE = [{"k": 9}, {"k": 3}, {"k": 5}]
GRID = [{"k": k, "slope": slope} for k in (1, 2, 3, 4) for slope in (0.0, 0.5, 1.0)]


def manifests(parameters: list[dict[str, Any]], **values: list[str]) -> list[Manifest]:
    matters = {"parameters": "subject", "seed": "note", "commit": "note", "temperature": "accuracy and latency"}
    return [
        Manifest(str(i), {"parameters": json.dumps(own), **{name: of[i] for name, of in values.items()}}, matters, None)  # type: ignore[arg-type]  # a dict of literals
        for i, own in enumerate(parameters)
    ]


@pytest.mark.parametrize(
    ("parameters", "values", "expected"),
    [
        (THREE, {}, [("k", {3: "1", 5: "2", 9: "0"})]),
        (THREE, {"commit": ["a", "b", "c"]}, [("k", {3: "1", 5: "2", 9: "0"})]),
        (THREE, {"temperature": ["0", "0", "1"]}, []),
        (THREE, {"seed": ["0", "0", "1"]}, []),
        (THREE[:2], {}, []),
        ([{"k": k} for k in (True, False, "a", None)], {}, []),
        ([*THREE, {"k": 3}], {}, [("k", {3: "1", 5: "2", 9: "0"})]),
        ([{"k": k, "score": score} for k, score in ((1, "a"), (2, "a"), (3, "b"))], {}, []),
        (GRID, {}, [("k", {k: str(3 * k - 3 + slope) for k in (1, 2, 3, 4)}) for slope in range(3)]),
        (
            [{"k": k, "n": n} for k, n in ((1, 1), (2, 1), (3, 1), (2, 2), (2, 3))],
            {},
            [("k", {1: "0", 2: "1", 3: "2"}), ("n", {1: "1", 2: "3", 3: "4"})],
        ),
    ],
    ids=["sweep", "commits", "settings", "seeds", "two", "no-numbers", "repeated", "two-differ", "grid", "cross"],
)
def test_runs_that_differ_in_one_number_alone_are_a_sweep(
    parameters: list[dict[str, Any]], values: dict[str, list[str]], expected: list[tuple[str, dict[float, str]]]
) -> None:
    assert sweeps(manifests(parameters, **values)) == expected


def dot(index: int, x: float, y: float) -> Dot:
    alone = [Interval(value, None, None, None, "none") for value in (x, y)]
    return Dot(f"run {index}", Look(index), alone[0], "", alone[1])


@pytest.mark.parametrize(
    ("places", "front"),
    [
        ([(1, 50)], [0]),
        ([(2, 60), (1, 50), (3, 55)], [1, 0]),
        ([(1, 50), (1, 60), (2, 60)], [1]),
        ([(1, 50), (1, 50)], [0, 1]),
    ],
)
def test_no_run_is_better_than_one_on_the_front(places: list[tuple[float, float]], front: list[int]) -> None:
    assert pareto_front([dot(i, x, y) for i, (x, y) in enumerate(places)]) == front


@pytest.mark.needs_tool("matplotlib")
def test_a_sweep_is_a_curve_in_the_page_and_in_a_file(loaded: Loaded, tmp_path: Path) -> None:
    ids = [loaded.vanilla.path.name, loaded.speculative.path.name]
    with reader(loaded.database) as connection:
        (vanilla, speculative), found = report_facts(connection, ids), read_manifests(connection, ids)
    facts, latency = [vanilla], speculative.summary.measures["latency_seconds"]
    for place, (drafts, seconds) in enumerate([(5, 9.0), (2, 5.0), (3, 7.0)], start=1):
        changed: dict[str, Any] = {
            "run_id": f"speccot-{drafts}",
            "params": {**speculative.summary.params, "drafts": drafts},
            "measures": {
                **speculative.summary.measures,
                "graded_pass_at_1": vanilla.summary.measures["graded_pass_at_1"],
                "latency_seconds": latency.model_copy(update={"value": seconds, "low_95": None, "high_95": None}),
            },
        }
        summary = speculative.summary.model_copy(update=changed)
        name = f"speccot drafts {drafts}"
        facts.append(replace(speculative, label=name, name=name, look=Look(place), summary=summary, place=place))
        values = {**found[ids[1]].values, "parameters": json.dumps(changed["params"])}
        found[summary.run_id] = replace(found[ids[1]], run_id=summary.run_id, values=values)
    figures = {one.name: one for section in sections(facts, Compared(None), found) for one in section.figures}
    figure = figures["trade-off"]
    assert isinstance(figure.chart, Scatter)
    assert figure.chart.curves == [Curve("speccot, drafts", [2, 3, 1], ["2", "3", "5"])]
    assert [look.series for look, _ in figure.keyed] == [2, 0]
    assert figure.chart.front == [2]
    assert all(file.stat().st_size for file in write_charts({"trade-off": figure.chart}, tmp_path))
