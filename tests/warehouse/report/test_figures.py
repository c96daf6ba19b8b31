"""Figures show what their SQL gives and are files; sweeps are curves, with a Pareto front."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.warehouse.conftest import Loaded
from tests.warehouse.report.conftest import report
from warehouse import query
from warehouse.comparison.contrasts import Settings
from warehouse.comparison.manifests import Manifest, read_manifests, sweeps
from warehouse.database import reader
from warehouse.report.charts import Curve, Dot, Dots, Scatter, StackedBars
from warehouse.report.facts import report_facts
from warehouse.report.paper_charts import write_charts
from warehouse.report.sections import Compared, Figure, pareto_front, read_comparison, sections
from warehouse.statistics.intervals import Interval


def figures_of(database: Path, *run_ids: str) -> dict[str, Figure]:
    with reader(database) as connection:
        compared = read_comparison(connection, run_ids, Settings())
        found = sections(report_facts(connection, run_ids), compared, read_manifests(connection, run_ids))
        return {figure.name: figure for section in found for figure in section.figures}


def asked(database: Path, sql: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(query.main, ["--database", str(database), "--format", "json", sql])
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


def test_the_sql_behind_every_figure_gives_what_it_shows(loaded: Loaded) -> None:
    ids = [loaded.speculative.path.name, loaded.vanilla.path.name]
    figures = figures_of(loaded.database, *ids)
    assert list(figures) == ["trade-off", "differences", "trade-off", "fallback", "tokens"]

    def shown(name: str, metric: str, column: str = "estimate", factor: float = 1.0) -> dict[str, Any]:
        answers = asked(loaded.database, figures[name].sql)
        found = {row["run_id"]: row[column] for row in answers if row["metric"] == metric}
        return {run: value if value is None else pytest.approx(factor * value) for run, value in found.items()}

    for name, metric in (("trade-off", "graded_pass_at_1"), ("fallback", "fallback_rate")):
        chart = figures[name].chart
        assert isinstance(chart, Dots)
        assert {ids[dot.index]: dot.x.estimate for dot in chart.rows} == shown(name, metric, factor=100)
        assert {ids[dot.index]: dot.x.low for dot in chart.rows} == shown(name, metric, "low_95", 100)
    scatter, bars = figures["trade-off"].chart, figures["tokens"].chart
    assert isinstance(scatter, Scatter)
    assert {ids[p.index]: p.x.estimate for p in scatter.points} == shown("trade-off", "latency_seconds")
    accuracies = shown("trade-off", "graded_pass_at_1", factor=100)
    assert {ids[p.index]: p.y and p.y.estimate for p in scatter.points} == accuracies
    assert isinstance(bars, StackedBars)
    answers = asked(loaded.database, figures["tokens"].sql)
    by_role = [row for row in answers if row["metric"] == "emitted_tokens" and row["role"]]
    emitted = [sum(row["estimate"] for row in by_role if row["run_id"] == run) for run in ids]
    assert [bar.total for bar in bars.bars if "emitted" in bar.label] == pytest.approx(emitted)


@pytest.mark.needs_tool("matplotlib")
def test_figures_are_svg_and_pdf_files_as_wide_as_a_column(hostile: tuple[Path, Any], tmp_path: Path) -> None:
    database, folder = hostile
    result = report(database, folder.path.name, "--figures", str(tmp_path / "a"))
    assert (result.exit_code, result.stdout.count("\n")) == (0, 1), result.output
    names = {file.name for file in (tmp_path / "a").iterdir()}
    assert {"accuracy.svg", "accuracy.pdf", "tokens.pdf", "trade-off.svg", "fallback.svg"} <= names
    for file in (tmp_path / "a").glob("*.svg"):
        drawing = file.read_text()
        [width] = re.findall(r'<svg[^>]* width="([\d.]+)pt"', drawing)
        assert float(width) == pytest.approx(3.3 * 72, abs=0.5)
        assert "<script" not in drawing
    for file in (tmp_path / "a").glob("*.pdf"):
        assert file.read_bytes().startswith(b"%PDF")
    figure = figures_of(database, folder.path.name)["trade-off"]
    again = write_charts({figure.name: figure.chart}, tmp_path / "b")
    assert [file.read_bytes() for file in again] == [(tmp_path / "a" / file.name).read_bytes() for file in again]


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
    return Dot(f"run {index}", index, alone[0], "", alone[1])


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
        facts.append(replace(speculative, label=f"speccot drafts {drafts}", summary=summary, place=place))
        values = {**found[ids[1]].values, "parameters": json.dumps(changed["params"])}
        found[summary.run_id] = replace(found[ids[1]], run_id=summary.run_id, values=values)
    figures = {one.name: one for section in sections(facts, Compared(None), found) for one in section.figures}
    figure = figures["trade-off"]
    assert isinstance(figure.chart, Scatter)
    assert figure.chart.curves == [Curve("speccot, drafts", [2, 3, 1], ["2", "3", "5"])]
    assert [place for place, _ in figure.keyed] == [2, 0]
    assert figure.chart.front == [2]
    assert all(file.stat().st_size for file in write_charts({"trade-off": figure.chart}, tmp_path))
