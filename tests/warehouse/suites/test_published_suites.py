"""Every suite loads, names only what the harness has, and holds published values that agree with each other."""

from __future__ import annotations

import pytest

from harness.methods import build
from warehouse.measured import NAMES
from warehouse.suites import published_suites

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
accuracy = { measure = "accuracy", label = "a" }
[columns]
demo = { label = "Demo" }
[[rows]]
label = "one"
"""


def test_every_table_and_figure_has_a_suite() -> None:
    assert set(published_suites.names()) >= REQUIRED


def test_suites_of_a_paper_are_from_one_version_of_it() -> None:
    versions = {(loaded.paper, loaded.version) for loaded in map(published_suites.load, published_suites.names())}
    assert sorted(paper for paper, _ in versions) == ["scot", "speccot", "specreason"]


@pytest.mark.parametrize("name", published_suites.names())
def test_every_run_is_valid_for_the_harness(name: str) -> None:
    for plan in published_suites.planned(published_suites.load(name)):
        if plan.row.awaits:
            continue
        launch = published_suites.launch_of(plan.flags)
        roles = build(launch.method, dict(launch.parameters)).roles
        models = launch.models
        assert all(models[role] for role in roles), f"{plan.row.label}: a model is missing"


def test_a_run_that_is_not_valid_is_refused() -> None:
    with pytest.raises(ValueError, match="valid: vanilla, specdecode, speccot"):
        published_suites.launch_of({"method": "other", "dataset": "gsm8k"})
    with pytest.raises(ValueError, match="not a parameter of speccot"):
        published_suites.launch_of({"method": "speccot", "dataset": "gsm8k", "score": "average"})
    with pytest.raises(ValueError, match="unknown model"):
        published_suites.launch_of({"method": "speccot", "dataset": "gsm8k", "target": "qwq"})


def test_the_kinds_of_measures_are_of_what_the_warehouse_measures() -> None:
    kinds = ("TIMES", "RATIOS", "OF_LATENCIES", "OF_REWARDS", "OF_GRADED_DRAFTS")
    assert set().union(*(getattr(published_suites, kind) for kind in kinds)) <= NAMES
    assert {*published_suites.OF_THOUGHT, *published_suites.OF_THOUGHT.values()} <= NAMES


@pytest.mark.parametrize(
    ("name", "time", "within"), [("scot-table1", "latency", 0.015), ("speccot-table2", "latency", 0.1)]
)
def test_published_speed_ups_are_the_ratios_of_the_published_times(name: str, time: str, within: float) -> None:
    published_suite = published_suites.load(name)
    rows = {row.label: row for row in published_suite.rows}
    checked = 0
    for row in published_suite.rows:
        for column, cell in row.values.items():
            if row.baseline and "speed_up" in cell:
                ratio = rows[row.baseline].values[column][time] / cell[time]
                assert cell["speed_up"] == pytest.approx(ratio, abs=within), (row.label, column)
                checked += 1
    assert checked >= 5


def test_the_wall_times_of_table_6_give_its_speed_ups() -> None:
    cells = [row.values["gsm8k"] for row in published_suites.load("speccot-table6").rows]
    for cell in cells:
        assert cell["speed_up"] == pytest.approx(cells[0]["wall"] / cell["wall"], abs=0.006)


def test_throughput_times_latency_gives_the_tokens_of_table_2() -> None:
    tokens = {row.label: row.values for row in published_suites.load("speccot-table2").rows}["SpecCoT, QwQ-32B"]
    times = {row.label: row.values for row in published_suites.load("speccot-table4").rows}["SpecCoT(ours)"]
    for dataset in ("gsm8k", "math500"):
        four = times[f"{dataset}_4"]
        assert four["rate"] * four["latency"] == pytest.approx(tokens[dataset]["tokens"], rel=0.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[columns]", "nonsense = 1\n[columns]"), "metrics.nonsense"),
        (('measure = "accuracy"', 'measure = "speed"'), "metrics.accuracy.measure"),
        (('label = "one"', 'label = "one"\nbaseline = "two"'), "no row 'two'"),
        (('label = "a"', 'label = "a", baseline = "two"'), "no row 'two' to be the baseline"),
        (('label = "a"', 'label = "a", beside = "b"'), "no metric 'b' to be beside"),
        (
            ('title = "t"', 'title = "t"\nunstated = [{ what = "w", covers = "speed" }]'),
            "no condition 'speed'; valid: ",
        ),
        (('title = "t"', 'title = "t"\nunlike = [{ why = "w", metrics = "speed" }]'), "no metric 'speed'"),
        (('label = "one"', 'label = "one"\nvalues = { gsm8k = { accuracy = 1 } }'), "no column 'gsm8k'"),
        (('label = "one"', 'label = "one"\nvalues = { demo = { speed = 1 } }'), "no metric 'speed'"),
        (('measure = "accuracy", ', ""), "one of measure, awaits"),
        (("[[rows]]", "[[rows"), "not a readable TOML file"),
    ],
)
def test_a_mistake_in_a_suite_is_named(change: tuple[str, str], message: str) -> None:
    published_suites.parse("mine", SMALLEST)
    with pytest.raises(ValueError, match="suite mine") as wrong:
        published_suites.parse("mine", SMALLEST.replace(*change))
    assert message in str(wrong.value)
