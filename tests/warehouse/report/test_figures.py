"""Differences in the report are those of compare, every figure's SQL gives what it shows, and figures are files."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.problems.problem import Problem, dataset_hash
from jobs.run.folder import RunFolder
from jobs.run.spec import units
from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from tests.warehouse.report.conftest import report
from warehouse import compare, query
from warehouse.comparison.contrasts import Settings
from warehouse.comparison.manifests import read_manifests
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.report.charts import Dots, Scatter, StackedBars
from warehouse.report.facts import report_facts
from warehouse.report.paper_charts import write_charts
from warehouse.report.sections import Figure, read_comparison, sections

Written = Callable[..., Path]


def figures_of(database: Path, *run_ids: str) -> dict[str, Figure]:
    with reader(database) as connection:
        compared = read_comparison(connection, run_ids, Settings())
        found = sections(report_facts(connection, run_ids), compared, read_manifests(connection, run_ids))
        return {figure.name: figure for section in found for figure in section.figures}


def asked(database: Path, sql: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(query.main, ["--database", str(database), "--format", "json", sql])
    assert result.exit_code == 0, result.output
    return list(json.loads(result.stdout))


def test_differences_in_the_report_are_those_of_compare(flipped: tuple[Path, list[str]], written: Written) -> None:
    database, run_ids = flipped
    compared = CliRunner().invoke(
        compare.main, [*run_ids, "--database", str(database), "--margin", "5", "--format", "json"]
    )
    [row] = [row for row in json.loads(compared.stdout)["rows"] if row["difference"] is not None]
    page = written(database, *run_ids, "--margin", "5").read_text()
    [table] = re.findall(r'<table class="results.*?</table>', page, re.DOTALL)
    columns = re.findall(r'<th scope="col">(.*?)</th>', table)
    [cells] = [
        [html.unescape(cell).strip() for cell in re.findall(r"<t[hd].*?>(.*?)</t[hd]>", line, re.DOTALL)]
        for line in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        if "speccot" in line
    ]
    place = columns.index("difference")
    difference, interval = cells[place : place + 2]
    assert difference.replace("−", "-") == f"{100 * row['difference']:+.2f}"
    low, high = (f"{100 * row[key]:.1f}" for key in ("difference_low_95", "difference_high_95"))
    assert interval.replace("−", "-") == f"{low} to {high}"
    assert "Dashed: the margin, −5 points" in page
    assert table.count("not shown") == 1


def test_a_run_over_other_problems_is_compared_with_nothing_and_hides_no_other_difference(
    tmp_path: Path, written: Written
) -> None:
    database, run_ids = tmp_path / "w.duckdb", []
    others = [Problem("toy/8", "toy", "8?", "8"), Problem("toy/9", "toy", "9?", "9")]
    for spec, problems in (
        (runs.SPEC, runs.PROBLEMS),
        (runs.VANILLA, runs.PROBLEMS),
        (replace(runs.SPEC, dataset_hash=dataset_hash(others), num_problems=2, dataset_size=2), others),
    ):
        folder = RunFolder(tmp_path / spec.run_id)
        planned = units(spec, problems)
        folder.create(spec, problems, [planned])
        runs.write_part(folder, [runs.speculative(unit) for unit in planned])
        runs.write_grades(folder, {unit.sample_id: "correct" for unit in planned[1:]} | {planned[0].sample_id: "wrong"})
        load_run(folder, database)
        run_ids.append(folder.path.name)
    page = written(database, *run_ids).read_text()
    [table] = re.findall(r'<table class="results.*?</table>', page, re.DOTALL)
    assert table.count("baseline</td>") == 1
    assert "fewer than two runs are left to compare" in page or "at least two" in page


def test_the_sql_behind_every_figure_gives_what_it_shows(loaded: Loaded) -> None:
    ids = [loaded.speculative.path.name, loaded.vanilla.path.name]
    figures = figures_of(loaded.database, *ids)
    assert list(figures) == ["accuracy", "differences", "trade-off", "fallback", "tokens"]

    def shown(name: str, metric: str, column: str = "estimate", factor: float = 1.0) -> dict[str, Any]:
        answers = asked(loaded.database, figures[name].sql)
        found = {row["run_id"]: row[column] for row in answers if row["metric"] == metric}
        return {run: value if value is None else pytest.approx(factor * value) for run, value in found.items()}

    for name, metric in (("accuracy", "graded_pass_at_1"), ("fallback", "fallback_rate")):
        chart = figures[name].chart
        assert isinstance(chart, Dots)
        assert {ids[dot.index]: dot.x.estimate for dot in chart.rows} == shown(name, metric, factor=100)
        assert {ids[dot.index]: dot.x.low for dot in chart.rows} == shown(name, metric, "low_95", 100)
    scatter, bars = figures["trade-off"].chart, figures["tokens"].chart
    assert isinstance(scatter, Scatter)
    assert {ids[p.index]: p.x.estimate for p in scatter.points} == shown("trade-off", "latency_seconds")
    assert {ids[p.index]: p.y and p.y.estimate for p in scatter.points} == shown(
        "trade-off", "graded_pass_at_1", factor=100
    )
    assert isinstance(bars, StackedBars)
    answers = asked(loaded.database, figures["tokens"].sql)
    emitted = [
        sum(
            row["estimate"]
            for row in answers
            if (row["run_id"], row["metric"]) == (run, "emitted_tokens") and row["role"]
        )
        for run in ids
    ]
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
    figure = figures_of(database, folder.path.name)["accuracy"]
    again = write_charts({figure.name: figure.chart}, tmp_path / "b")
    assert [file.read_bytes() for file in again] == [(tmp_path / "a" / file.name).read_bytes() for file in again]
