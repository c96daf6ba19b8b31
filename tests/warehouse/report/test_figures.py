"""Differences in the report are those of compare, every figure's SQL gives what it shows, and figures are files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.warehouse.conftest import Loaded
from tests.warehouse.report.conftest import report
from warehouse import query
from warehouse.comparison.contrasts import Settings
from warehouse.comparison.manifests import read_manifests
from warehouse.database import reader
from warehouse.report.charts import Dots, Scatter, StackedBars
from warehouse.report.facts import report_facts
from warehouse.report.paper_charts import write_charts
from warehouse.report.sections import Figure, read_comparison, sections


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
    assert list(figures) == ["trade-off", "tokens", "fallback", "differences"]

    def shown(name: str, metric: str, column: str = "estimate", factor: float = 1.0) -> dict[str, Any]:
        answers = asked(loaded.database, figures[name].sql)
        found = {row["run_id"]: row[column] for row in answers if row["metric"] == metric}
        return {run: value if value is None else pytest.approx(factor * value) for run, value in found.items()}

    dots = figures["fallback"].chart
    assert isinstance(dots, Dots)
    assert {ids[dot.look.series]: dot.x.estimate for dot in dots.rows} == shown("fallback", "fallback_rate", factor=100)
    assert {ids[dot.look.series]: dot.x.low for dot in dots.rows} == shown("fallback", "fallback_rate", "low_95", 100)
    scatter, bars = figures["trade-off"].chart, figures["tokens"].chart
    assert isinstance(scatter, Scatter)
    assert {ids[p.look.series]: p.x.estimate for p in scatter.points} == shown("trade-off", "latency_seconds")
    assert {ids[p.look.series]: p.y and p.y.estimate for p in scatter.points} == shown(
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
    assert {"tokens.svg", "tokens.pdf", "trade-off.svg", "fallback.svg"} <= names
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
