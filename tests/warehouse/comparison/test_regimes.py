"""Runs with one sample in flight and runs with several: each regime has its baseline, and the last table has both."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.run.spec import RunSpec
from tests.warehouse import cells
from tests.warehouse.test_compare import BAD, GOOD, compare, load, records
from tests.warehouse.test_display import Terminal
from warehouse.comparison import show
from warehouse.comparison.contrasts import compare_runs
from warehouse.comparison.written import write, write_short
from warehouse.report.page import make_report

ALONE, METHOD = cells.VANILLA, replace(cells.SPEC, method="specreason", params={"threshold": 5.0})


def many(spec: RunSpec) -> RunSpec:
    return replace(spec, concurrency=32)


def one(spec: RunSpec) -> RunSpec:
    return replace(spec, concurrency=1, samples=1)


def right(scores: tuple[int, ...], problems: int) -> list[int]:
    return [min(1, score) for score in scores[:problems]]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    where = tmp_path_factory.mktemp("regimes")
    made = {
        "target, many": cells.finished(where, many(ALONE), GOOD, latency=30.0),
        "method, many": cells.finished(where, many(METHOD), BAD, latency=40.0),
        "target, one": cells.finished(where, one(ALONE), right(GOOD, 6), latency=20.0),
        "method, one": cells.finished(where, one(METHOD), right(BAD, 6), latency=10.0),
    }
    return where, dict(zip(made, load(where, *made.values()), strict=True))


def test_each_regime_is_compared_with_its_own_target_alone(both: tuple[Path, dict[str, str]]) -> None:
    where, names = both
    found = records(compare(where, *names.values(), "--format", "json"))
    assert {row["run_id"]: row["baseline_run_id"] for row in found} == {
        names["target, many"]: None,
        names["method, many"]: names["target, many"],
        names["target, one"]: None,
        names["method, one"]: names["target, one"],
    }
    ratios = {row["run_id"]: row["speed_up"] for row in found}
    assert ratios[names["method, many"]] == pytest.approx(0.75)
    assert ratios[names["method, one"]] == pytest.approx(2.0)


@pytest.mark.parametrize("left_out", ["target, one", "target, many"])
def test_a_regime_without_the_target_alone_has_the_baseline_of_the_other_and_no_speed_up(
    both: tuple[Path, dict[str, str]], left_out: str
) -> None:
    where, names = both
    left = [run for name, run in names.items() if name != left_out]
    found = records(compare(where, *left, "--format", "json"))
    assert {row["baseline_run_id"] for row in found[1:]} == {found[0]["run_id"]}
    unlike = [row for row in found[1:] if row["latency_unlike"]]
    assert [row["speed_up"] for row in unlike] == [None]
    assert "samples in flight" in unlike[0]["latency_unlike"]


def test_a_named_baseline_is_that_of_both_regimes(both: tuple[Path, dict[str, str]]) -> None:
    where, names = both
    found = records(compare(where, *names.values(), "--format", "json", "--baseline", names["target, many"]))
    assert {row["baseline_run_id"] for row in found} == {None, names["target, many"]}


def test_two_runs_of_the_target_alone_are_compared_with_each_other(both: tuple[Path, dict[str, str]]) -> None:
    where, names = both
    first, second = names["target, many"], names["target, one"]
    found = records(compare(where, first, second, "--format", "json"))
    assert [row["baseline_run_id"] for row in found] == [None, first]


def test_the_last_table_has_a_line_per_setting_and_fits_eighty_columns(
    both: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, names = both
    monkeypatch.setenv("COLUMNS", "80")
    screen = Terminal()
    write(compare_runs(list(names.values()), where / "w.duckdb"), screen, "table", is_brief=True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    closing = lines[max(i for i, line in enumerate(lines) if line.startswith("Latency (1 in flight): ")) :]
    assert len(closing) <= 20, "a small screen holds it"
    assert any(line.startswith("Throughput (32 in flight): ") for line in closing)
    rows = [line.split() for line in closing if line.startswith(("vanilla target", "specreason"))]
    assert [row[0] for row in rows] == ["vanilla", "specreason"]
    assert rows[0][-2:] == ["baseline", "baseline"]
    assert "2.00×" in rows[1]
    assert "0.75×" in rows[1]
    assert "pass@1 of 12 problems × 4" in " ".join(closing), "accuracy is that of the larger run"


def test_a_suite_has_one_table_and_each_warning_once(
    both: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, names = both
    monkeypatch.setenv("COLUMNS", "80")
    screen = Terminal()
    write_short(compare_runs(list(names.values()), where / "w.duckdb"), screen)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    rows = [line.split()[0] for line in lines if " ± " in line and not line.startswith("pass@1")]
    assert rows == ["vanilla", "specreason"]
    assert len(lines) < 20
    assert not [run for run in names.values() if run in screen.getvalue()], "short names stand for the runs"


def test_a_setting_that_ran_in_one_regime_only_has_no_speed_up_in_the_other(both: tuple[Path, dict[str, str]]) -> None:
    where, names = both
    other = cells.finished(where, many(cells.SPEC), GOOD, latency=15.0)
    comparison = compare_runs([*names.values(), *load(where, other)], where / "w.duckdb")
    rows = {row[0]: row[-2:] for row in show.regimes_table(show.regimes(comparison))[1]}
    assert rows["specreason"] != rows["speccot"]
    assert rows["speccot"][0] == "–"
    assert rows["speccot"][1].startswith("2.00×")


def test_the_report_has_the_regimes_apart(both: tuple[Path, dict[str, str]]) -> None:
    where, names = both
    text = make_report(list(names.values()), where / "w.duckdb", "md").content
    assert "## Latency and throughput\n" in text
    for table in ("Results", "Latency", "Fallback and tokens", "Speed-up over the target alone"):
        assert f"## {table}: latency\n" in text
        assert f"## {table}: throughput\n" in text
    assert "OTHER PROBLEMS" not in text, "runs over other problems are in other tables"
    single = make_report([names["target, many"], names["method, many"]], where / "w.duckdb", "md").content
    assert "Latency and throughput" not in single
    assert "## Results\n" in single
