"""The rows of the table `estimate`: what they depend on, what replaces them, and where they are printed.

A number that is printed twice is the same number: views, summary, compare, report, nights, export and papers.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from harness.cli.number_format import span
from jobs.run.spec import units
from tests.warehouse import cells, runs
from tests.warehouse.made_up_databases import HALF, MADE_UP, Made
from warehouse import compare
from warehouse.database import Connection, reader, rows
from warehouse.loading.runs import load_run, load_runs, rebuild
from warehouse.nightly.history import read_nights, read_values
from warehouse.report.facts import report_facts
from warehouse.report.page import make_report
from warehouse.report.summary import summaries
from warehouse.sql import schema
from warehouse.statistics.intervals import Interval
from warehouse.suites.measured import measure

STORED = """
SELECT * EXCLUDE (estimate, interval.run_id) FROM estimate LEFT JOIN interval ON interval.estimate = id ORDER BY ALL
"""


def stored(database: Path) -> list[dict[str, object]]:
    with reader(database) as connection:
        return rows(connection, STORED)


def test_the_rows_depend_on_the_runs_and_not_on_the_order_of_loading(
    made: Callable[[str], Made], tmp_path: Path
) -> None:
    """A run that is repeated later changes the intervals of runs that were loaded before."""
    of = made("repeated")
    assert any(row["run_factor"] for row in stored(of.database))
    for folder in reversed(of.folders):
        load_run(folder, tmp_path / "w.duckdb")
    assert stored(tmp_path / "w.duckdb") == stored(of.database)


def test_grading_again_and_a_run_that_goes_on_replace_their_rows(tmp_path: Path) -> None:
    database = tmp_path / "w.duckdb"
    base = cells.finished(tmp_path, cells.VANILLA, HALF)
    under_way = cells.finished(tmp_path, cells.SPEC, HALF, latency=5, missing=12)
    list(load_runs([base, under_way], database))
    name, first = under_way.path.name, stored(database)
    shutil.rmtree(under_way.path)
    complete = cells.finished(tmp_path, cells.SPEC, HALF, latency=4)
    load_run(complete, database)
    second = stored(database)
    assert {row["run_id"] for row in first if row not in second} == {name}
    runs.write_grades(base, {unit.sample_id: "wrong" for unit in units(base.spec(), base.problems())}, version="2")
    load_run(base, database)
    with reader(database) as connection:
        [row] = rows(connection, f"SELECT * FROM pass_at_1 WHERE run_id = '{base.path.name}'")
        assert (row["pass_at_1"], row["low_95"], row["num_grader_versions"]) == (0, 0, 2)
    fresh = tmp_path / "fresh.duckdb"
    list(rebuild([complete, base], fresh))
    assert stored(fresh) == stored(database)
    load_run(base, database)
    assert stored(fresh) == stored(database)


def test_other_values_need_another_version_of_the_methods(
    made: Callable[[str], Made], snapshot: SnapshotAssertion
) -> None:
    """Whoever changes a function behind what is stored raises schema.ESTIMATES_VERSION, and adds what it is then.

    The sums are over all rows of a measure and question. The entries of the registry are part of the format of
    databases by themselves.
    """
    found: dict[str, list[float]] = {}
    for name in MADE_UP:
        for row in stored(made(name).database):
            numbers = [float(str(row[name] or 0)) for name in ("value", "low", "high", "standard_error")]
            found.setdefault(f"{row['measure']}, {row['question']}", []).append(sum(numbers))
    sums = {name: f"{math.fsum(values):.4f}" for name, values in sorted(found.items())}
    assert sums == snapshot(name=f"version {schema.ESTIMATES_VERSION}")


Printed = Iterator[tuple[str, str, tuple[float | None, ...]]]
"""The number's name, where it is printed, and its value, with the ends of its interval where they are printed."""


def in_views(database: Path, run: str, baseline: str, grader: str | None = None) -> Printed:
    def view(sql: str) -> list[dict[str, Any]]:
        with reader(database, grader=grader) as connection:
            return rows(connection, sql)

    [row] = view(f"SELECT * FROM pass_at_1 WHERE run_id = '{run}'")
    yield "pass@1", "view pass_at_1", (row["pass_at_1"], row["low_95"], row["high_95"])
    yield "pass@1 SE", "view pass_at_1", (row["standard_error"],)
    yield "result@1", "view pass_at_1", (row["graded_pass_at_1"], row["graded_low_95"], row["graded_high_95"])
    for kind in ("pass", "maj"):
        for row in view(f"SELECT * FROM {kind}_at_k WHERE run_id = '{run}'"):
            number = f"{kind}@{row['k']}" if row["k"] > 1 else "result@1"
            yield number, f"view {kind}_at_k", (row[f"{kind}_at_k"], row["low_95"], row["high_95"])
    for row in view(f"SELECT * FROM speed_up WHERE run_id = '{run}' AND baseline_run_id = '{baseline}'"):
        yield "speed-up", "view speed_up", (row["speed_up"], row["low_95"], row["high_95"])
        yield "speed-up factor", "view speed_up", (row["run_factor"],)
        yield "ratio of means", "view speed_up", ends_of(row, "ratio_of_means")


def ends_of(row: dict[str, Any], name: str) -> tuple[float | None, ...]:
    return row[name], row[f"{name}_low_95"], row[f"{name}_high_95"]


def in_rates(connection: Connection, run: str) -> Printed:
    """Rates over decisions, and latency: the views, the report, the papers' tables and the nights."""
    for row in rows(connection, "FROM fallback_rate WHERE run_id = $run_id", {"run_id": run}):
        yield "fallback", "view fallback_rate", (row["fallback_rate"], row["low_95"], row["high_95"])
    judged = {name: value for name, _, value in read_values(connection)[run]}
    yield "fallback", "nights", (judged.get("fallback_rate"),)
    [facts] = report_facts(connection, [run])
    for number, name in (("fallback", "fallback_rate"), ("latency", "latency_seconds")):
        yield number, "report", interval_of(facts.estimate(name))
    for number, name in (
        ("fallback", "fallback_rate"), ("latency", "latency_seconds"), ("result@1", "graded_pass_at_1")
    ):  # fmt: skip
        yield number, "paper", interval_of(measure(connection, name, run))


def interval_of(found: Interval | None) -> tuple[float | None, ...]:
    return (found.estimate, found.low, found.high) if found else (None, None, None)


def in_summary(connection: Connection, run: str, baseline: str) -> Printed:
    [found] = summaries(connection, [run])
    of_all = found.measures["pass_at_1"]
    yield "pass@1", "summary", (found.pass_at_1, of_all.low_95, of_all.high_95)
    yield "pass@1 SE", "summary", (of_all.standard_error,)
    if found.result is not None:
        yield "result@1", "summary's result", (found.result.value, found.result.low_95, found.result.high_95)
    for pair, ratio in found.against_with("speed_up"):
        if pair.baseline_run_id == baseline:
            yield "speed-up factor", "summary", (ratio.run_factor,)
            for name, one in (("speed-up", ratio), ("ratio of means", pair.measures["ratio_of_means"])):
                yield name, "summary", (one.value, one.low_95, one.high_95)


def in_comparison(database: Path, run: str, baseline: str, *options: str) -> Printed:
    ks = "2" if "toy" in run else "2,3,4"
    arguments = [baseline, run, "--k", ks, "--maj", "--format", "json", "--database", str(database), *options]
    result = CliRunner().invoke(compare.main, arguments, catch_exceptions=False)
    for row in json.loads(result.stdout)["rows"]:
        if row["run_id"] == run:
            name = row["metric"].partition("[")[0].replace("pass@1", "result@1")
            yield name, "compare", ends_of(row, "result")
            if name == "result@1" and row["speed_up"] is not None:
                yield "speed-up", "compare", ends_of(row, "speed_up")
                yield "speed-up factor", "compare", (row["run_factor_standard_deviation"],)


def in_nights(connection: Connection, run: str) -> Printed:
    for cell in (cell for night in read_nights(connection) for cell in night if cell.first.run_id == run):
        yield "pass@1", "nights", (cell.first.values["pass_at_1"],)
        if "speed_up" in cell.first.values:
            yield "speed-up", "nights", (math.exp(cell.first.values["speed_up"]),)


def all_of(made: Made) -> Printed:
    yield from in_views(made.database, made.run, made.baseline)
    yield from in_comparison(made.database, made.run, made.baseline)
    with reader(made.database) as connection:
        yield from in_summary(connection, made.run, made.baseline)
        yield from in_rates(connection, made.run)
        if len(made.folders) == 2:  # otherwise the night's speed-up is over several runs of the target alone
            yield from in_nights(connection, made.run)


@pytest.mark.parametrize("name", MADE_UP)
def test_every_number_that_is_printed_twice_is_the_same(made: Callable[[str], Made], name: str) -> None:
    printed: dict[str, dict[str, tuple[float | None, ...]]] = {}
    for number, place, values in all_of(made(name)):
        printed.setdefault(number, {})[place] = values
    twice = {number: places for number, places in printed.items() if len(places) > 1}
    assert {number.split()[0] for number in twice} >= {"pass@1", "result@1", "pass@2", "speed-up", "latency"}
    unequal = {number: places for number, places in twice.items() if not are_equal(list(places.values()))}
    assert unequal == {}


def are_equal(printed: list[tuple[float | None, ...]]) -> bool:
    """Whether values are the same, and the ends of those intervals that are printed."""
    for place in range(3):
        values = [one[place] for one in printed if len(one) > place]
        if None in values and set(values) != {None}:
            return False
        if values and None not in values and values != pytest.approx([values[0]] * len(values), rel=1e-9):
            return False
    return True


def test_the_report_prints_the_intervals_of_the_views(made: Callable[[str], Made]) -> None:
    of = made("missing_samples")
    content = make_report([folder.path.name for folder in of.folders], of.database, "md").content
    printed = {number: values for number, _, values in in_views(of.database, of.run, of.baseline)}
    for number, digits, factor in (("result@1", 1, 100.0), ("speed-up", 2, 1.0)):
        _, low, high = printed[number]
        assert span(low, high, digits, factor) in content


def test_the_verdicts_of_another_grader_have_the_same_intervals_everywhere(made: Callable[[str], Made]) -> None:
    of = made("two_graders")
    where = (of.database, of.run, of.baseline)
    printed = in_views(*where, grader="1"), in_comparison(*where, "--grader", "1")
    views, compared = ({number: values for number, _, values in found} for found in printed)
    both = [number for number in set(views) & set(compared) if number != "speed-up factor"]
    assert {*both} >= {"result@1", "pass@3", "speed-up"}
    assert [number for number in both if not are_equal([views[number], compared[number]])] == []
    assert views["pass@1"][0] == pytest.approx(sum(HALF) / 48)
