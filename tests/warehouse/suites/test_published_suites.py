"""Every suite loads, names only what the harness has, and holds published values that agree with each other."""

from __future__ import annotations

import pytest

from harness.methods import build
from warehouse.suites import published as papers

REQUIRED = {
    *(f"scot-{part}" for part in ("table1", "table2", "table3", "ablations", "figure2", "selection")),
    *(f"speccot-table{number}" for number in range(1, 7)),
    *(f"speccot-figure{part}" for part in ("1a", "1b", "3", "4a", "4b", "4c")),
    *(f"specreason-{part}" for part in ("figure3", "figure4", "figure5", "figure6", "first-n")),
}
SMALLEST = """
title = "t"
paper = "scot"
version = "v1"
place = "p"
devices = "d"
engine = "vLLM"
[metrics]
accuracy = { measure = "graded_pass_at_1", label = "a" }
[columns]
demo = { label = "Demo" }
[[rows]]
label = "one"
"""


def test_every_table_and_figure_has_a_suite() -> None:
    assert set(papers.names()) >= REQUIRED


@pytest.mark.parametrize("name", papers.names())
def test_every_run_is_valid_for_the_harness(name: str) -> None:
    for plan in papers.planned(papers.load(name)):
        launch = papers.launch_of(plan.flags)
        roles = build(launch.method, dict(launch.parameters)).roles
        models = launch.models
        assert all(models[role] for role in roles), f"{plan.row.label}: a model is missing"


def test_a_run_that_is_not_valid_is_refused() -> None:
    with pytest.raises(ValueError, match="valid: vanilla, specdecode, speccot"):
        papers.launch_of({"method": "other", "dataset": "gsm8k"})
    with pytest.raises(ValueError, match="not a parameter of speccot"):
        papers.launch_of({"method": "speccot", "dataset": "gsm8k", "score": "average"})
    with pytest.raises(ValueError, match="unknown model"):
        papers.launch_of({"method": "speccot", "dataset": "gsm8k", "target": "qwq"})


@pytest.mark.parametrize("name", papers.names())
def test_everything_that_is_named_in_a_suite_is_there(name: str) -> None:
    suite = papers.load(name)
    labels = [row.label for row in suite.rows]
    assert len(set(labels)) == len(labels)
    for row in suite.rows:
        assert row.baseline is None or row.baseline in labels
        assert row.values.keys() <= suite.columns.keys()
        assert {key for cell in row.values.values() for key in cell} <= suite.metrics.keys()
    for metric in suite.metrics.values():
        assert metric.baseline is None or metric.baseline in labels
        assert metric.beside is None or metric.beside in suite.metrics
    assert {column.costs_of for column in suite.columns.values()} <= {None, *suite.columns}
    for told in (*suite.unstated, *suite.unlike):
        assert set(told.rows) <= set(labels)
        assert set(told.columns) <= suite.columns.keys()
    assert {key for told in suite.unlike for key in told.metrics} <= suite.metrics.keys()


@pytest.mark.parametrize(
    ("name", "time", "within"), [("scot-table1", "latency", 0.015), ("speccot-table2", "latency", 0.1)]
)
def test_published_speed_ups_are_the_ratios_of_the_published_times(name: str, time: str, within: float) -> None:
    published_suite = papers.load(name)
    rows = {row.label: row for row in published_suite.rows}
    checked = 0
    for row in published_suite.rows:
        for column, cell in row.values.items():
            if row.baseline and "speed_up" in cell:
                ratio = rows[row.baseline].values[column][time] / cell[time]
                assert cell["speed_up"] == pytest.approx(ratio, abs=within), (row.label, column)
                checked += 1
    assert checked >= 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[columns]", "nonsense = 1\n[columns]"), "metrics.nonsense"),
        (('measure = "graded_pass_at_1"', 'measure = "speed"'), "metrics.accuracy.measure"),
        (
            ('title = "t"', 'title = "t"\nunstated = [{ what = "w", covers = "speed" }]'),
            "no 'speed'; valid: ",
        ),
        (("[[rows]]", "[[rows"), "not a readable TOML file"),
    ],
)
def test_a_mistake_in_a_suite_is_named(change: tuple[str, str], message: str) -> None:
    papers.parse("mine", SMALLEST)
    with pytest.raises(ValueError, match="suite mine") as wrong:
        papers.parse("mine", SMALLEST.replace(*change))
    assert message in str(wrong.value)
