"""Distance against speed-up: a method has one distance, and a mark for one sample in flight and one for several."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.run.folder import RunFolder
from tests.warehouse import cells, runs
from tests.warehouse.suites.timed_runs import time
from tests.warehouse.test_distance import Nats, score
from warehouse import query
from warehouse.comparison.contrasts import Settings
from warehouse.database import reader
from warehouse.load import load_run
from warehouse.report import svg
from warehouse.report.charts import Point, Scatter
from warehouse.report.differences import read_differences
from warehouse.report.distance import read_distances, section
from warehouse.report.facts import report_facts
from warehouse.report.tables import Section

ALONE, METHOD = cells.VANILLA, replace(cells.SPEC, method="specreason", params={"threshold": 5.0})
DRAFT = replace(cells.VANILLA, params={"model": "draft"}, draft=runs.DRAFT, target=None)
LATENCIES = {"vanilla": (30.0, 20.0), "specreason": (40.0, 10.0), "draft": (15.0, 5.0)}
"""With 32 in flight and with one: speed-ups of 0.75 and 2 for the method, 2 and 4 for the draft alone."""
NATS: dict[str, Nats] = {
    "vanilla": lambda number: 0.30,
    "specreason": lambda number: 0.50 + 0.01 * (number % 12),
    "draft": lambda number: 0.90 + 0.01 * (number % 12),
}


def finished(where: Path, nats_at_one: float | None = None) -> list[RunFolder]:
    """Three methods with 32 in flight, which are scored, and with one, which are only where they have these nats."""
    folders = []
    for name, spec in (("vanilla", ALONE), ("specreason", METHOD), ("draft", DRAFT)):
        many, one = replace(spec, concurrency=32), replace(spec, concurrency=1, samples=1)
        for own, latency, right in ((many, LATENCIES[name][0], 3), (one, LATENCIES[name][1], 1)):
            folder = cells.finished(where, own, [right] * 12, latency=latency)
            traces = [runs.vanilla(unit) for unit in runs.planned(folder)]
            if own is many:
                score(folder, traces, NATS[name])
            elif nats_at_one is not None:
                score(folder, traces, lambda _: nats_at_one)
            folders.append(folder)
    return loaded(where, folders)


def loaded(where: Path, folders: list[RunFolder]) -> list[RunFolder]:
    for folder in folders:
        load_run(folder, where / "w.duckdb")
    return folders


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    where = tmp_path_factory.mktemp("both")
    return where, [folder.path.name for folder in finished(where)]


def drawn(where: Path, names: list[str]) -> Section:
    with reader(where / "w.duckdb") as connection:
        facts = report_facts(connection, names)
        compared = read_differences(connection, names, Settings())
        return section(facts, read_distances(connection, names), compared)


def scatter(found: Section, name: str) -> Scatter:
    [chart] = [figure.charts[name] for figure in found.figures if name in figure.charts]
    assert isinstance(chart, Scatter)
    return chart


def marks(points: list[Point] | tuple[Point, ...]) -> dict[str, list[tuple[float, float, bool]]]:
    found: dict[str, list[tuple[float, float, bool]]] = {}
    for point in points:
        found.setdefault(point.label, []).append((round(point.x, 3), round(point.y, 3), point.is_hollow))
    return found


def test_accuracy_and_the_table_have_one_row_for_each_method(both: tuple[Path, list[str]]) -> None:
    found = drawn(*both)
    assert set(marks(tuple(scatter(found, "distance-accuracy").points))) == {
        "specreason",
        "vanilla draft",
        "vanilla target",
    }
    table = next(table for table in found.tables if table.name == "distance-speed-up")
    assert table.columns[-2:] == ("speed-up, 1 in flight", "speed-up, 32 in flight")
    rows = {row[0]: row for row in table.rows}
    assert rows["vanilla target"][2:] == ("baseline", rows["vanilla target"][3], "baseline", "baseline")
    assert rows["specreason"][1] == "0.5550"
    assert rows["specreason"][2].startswith("0.2550 (")
    assert [cell.split("×")[0] for cell in rows["specreason"][-2:]] == ["2.00", "0.75"]


def test_where_both_regimes_are_scored_the_distance_is_that_of_more_samples(tmp_path: Path) -> None:
    names = [folder.path.name for folder in finished(tmp_path, nats_at_one=3.0)]
    chart = scatter(drawn(tmp_path, names), "distance-speed-up")
    assert marks(tuple(chart.points))["specreason"] == [(2.0, 0.255, True), (0.75, 0.255, False)]


def test_timing_samples_give_the_speed_up_at_one_in_flight_with_its_interval(tmp_path: Path) -> None:
    folders = []
    for name, spec in (("vanilla", ALONE), ("specreason", METHOD), ("draft", DRAFT)):
        batches, alone = LATENCIES[name]
        folder = cells.finished(tmp_path, replace(spec, concurrency=32), [3] * 12, latency=batches)
        score(folder, [runs.vanilla(unit) for unit in runs.planned(folder)], NATS[name])
        if name != "draft":
            time(folder, runs.vanilla, [alone * (0.9 + 0.05 * (number % 5)) for number in range(20)])
        folders.append(folder)
    loaded(tmp_path, folders)
    found = drawn(tmp_path, [folder.path.name for folder in folders])
    chart = scatter(found, "distance-speed-up")
    points = marks(tuple(chart.points))
    assert [is_hollow for *_, is_hollow in points["specreason"]] == [True, False]
    assert points["specreason"][0][0] == pytest.approx(2.0, rel=0.02)
    assert points["specreason"][1][0] == 0.75, "that of the batches stays"
    assert points["vanilla draft"] == [(2.0, 0.655, False)], "no sample of it was timed alone"
    [at_one] = [point for point in chart.points if point.is_hollow]
    assert at_one.x_low is not None
    assert at_one.x_high is not None
    assert at_one.x_low < at_one.x < at_one.x_high
    assert chart.key == ("1 in flight", "32 in flight")
    [figure] = [figure for figure in found.figures if "distance-speed-up" in figure.charts]
    [table] = [table for table in found.tables if table.name == "distance-speed-up"]
    for caption in (figure.caption, table.caption):
        assert "Speed-ups are geometric means over problems of paired ratios. With 1 in flight estimated" in caption
        assert "that were timed alone: specreason; these speed-ups are ratios of mean latencies." in caption
    rows = {row[0]: row for row in table.rows}
    assert rows["vanilla target"][-2:] == ("baseline", "baseline")
    assert rows["specreason"][-2].startswith("2.0")
    assert rows["vanilla draft"][-2] == "–"


def test_runs_that_repeat_a_method_are_kept_apart_and_so_are_other_conditions_of_its_text(tmp_path: Path) -> None:
    names = [folder.path.name for folder in finished(tmp_path)]
    others = [replace(METHOD, concurrency=32, seed=7), replace(METHOD, concurrency=1, token_budget=99)]
    folders = [cells.finished(tmp_path, spec, [3] * 12, latency=24.0) for spec in others]
    score(folders[0], [runs.vanilla(unit) for unit in runs.planned(folders[0])], lambda _: 0.7)
    names += [folder.path.name for folder in loaded(tmp_path, folders)]
    points = marks(tuple(scatter(drawn(tmp_path, names), "distance-speed-up").points))
    repeats = sorted(found for label, found in points.items() if label.startswith("specreason"))
    assert repeats == [[(1.25, 0.4, False)], [(2.0, 0.255, True), (0.75, 0.255, False)]]


def test_the_sql_behind_the_figure_gives_the_speed_ups_of_both_regimes(both: tuple[Path, list[str]]) -> None:
    where, names = both
    [figure] = [figure for figure in drawn(where, names).figures if "distance-speed-up" in figure.charts]
    result = CliRunner().invoke(
        query.main, ["--database", str(where / "w.duckdb"), "--format", "json", figure.sql], catch_exceptions=False
    )
    rows = [row for row in json.loads(result.stdout) if row["method"] == "specreason"]
    assert {row["concurrency"]: round(row["speed_up"], 3) for row in rows} == {1: 2.0, 32: 0.75}
    assert {row["concurrency"]: row["distance"] for row in rows} == {1: None, 32: pytest.approx(0.255)}


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.2), (-0.03, 0.5), (0.5, 0.6), (-1.0, -0.2)])
def test_a_scale_by_roots_keeps_the_order_and_has_a_few_round_ticks_that_lie_apart(low: float, high: float) -> None:
    scale = svg.padded_root_scale([low, high], 300.0, 0.0)
    values = [low + (high - low) * step / 50 for step in range(51)]
    places = [scale(value) for value in values]
    assert places == sorted(places, reverse=True)
    assert 0 < places[-1] < places[0] < 300, "there is room around them"
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 9
    assert all(abs(scale(b) - scale(a)) >= 30 for a, b in itertools.pairwise(ticks))
    assert all(scale.low <= tick <= scale.high for tick in ticks)
    assert (0.0 in ticks) == (scale.low <= 0 <= scale.high)
    assert math.isclose(scale(scale.low), 300.0)
