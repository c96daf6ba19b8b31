"""A suite of one's own as a table: its rows and columns, the numbers of compare, its formats, and its plan."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs import suite as suites
from jobs.run.folder import RunFolder
from tests.warehouse import runs
from tests.warehouse.suites.made_suites import HOSTILE, HOSTILE_IN_LATEX, Made, write_suite
from warehouse import compare
from warehouse.loading.runs import load_run, load_runs
from warehouse.suites.own_runs import OwnRun, own_runs
from warehouse.suites.table import METRICS


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The suite, and its runs as made by hand."""
    folder = tmp_path_factory.mktemp("own")
    found = Made(write_suite(folder), folder / "runs")
    folders = [ended(found, run) for run in own_runs(suites.read(found.file, overrides={"output": str(found.output)}))]
    list(load_runs(folders, found.output / "warehouse.duckdb"))
    return found


def ended(made: Made, run: OwnRun) -> RunFolder:
    """A finished run whose samples are right except for one."""
    planned = run.prepared.plan
    folder = runs.create(made.output, planned.spec, problems=planned.problems)
    units, is_alone = runs.planned(folder), planned.spec.draft is None
    traces = [
        runs.vanilla(unit) if is_alone else runs.speculative(unit, refused=place % 3 == 0, latency=5.0 + place)
        for place, unit in enumerate(units)
    ]
    runs.write_part(folder, traces)
    runs.write_grades(
        folder, {unit.sample_id: "wrong" if place == run.number else "correct" for place, unit in enumerate(units)}
    )
    return folder


def rows_of(made: Made, *words: str) -> list[dict[str, str]]:
    result = made.reproduce("--table", "--format", "csv", *words)
    assert result.exit_code == 0, result.output
    return list(csv.DictReader(result.stdout.splitlines()))


@pytest.fixture(scope="module")
def table(made: Made) -> dict[str, str]:
    """The suite's table in every format."""
    return {shape: made.reproduce("--table", "--format", shape).stdout for shape in ("table", "markdown", "latex")}


def test_rows_are_methods_with_what_was_swept_and_columns_are_datasets(table: dict[str, str]) -> None:
    header, _, *body = table["markdown"].split("\n\n")[0].splitlines()
    assert [name in header for name in ("demo (3 of 40 × 2) ", "sums (3 of 6 × 2) ")] == [True, True]
    labels = [line.removeprefix("| ").partition("  ")[0] for line in body]
    assert labels[:3] == ["vanilla target", "speccot drafts 2", "speccot drafts 3"]
    assert labels[3].startswith(r"A\_b &amp; 50%")
    assert len(body) == 4
    assert re.split(r"(?<!\\)\|", body[3])[2].strip() == "–", "the own method has no run on the demo's problems"


def test_every_number_is_the_one_that_compare_prints(made: Made) -> None:
    every = [word for metric in METRICS for word in ("--metric", metric)]
    of_row = rows_of(made, *every)
    for dataset in ("demo", "sums"):
        ids = [row[f"{dataset} run_id"] for row in of_row if row[f"{dataset} run_id"]]
        asked = [*ids, "--database", str(made.output / "warehouse.duckdb"), "--format", "json"]
        result = CliRunner().invoke(compare.main, asked)
        compared = {row["run_id"]: row for row in json.loads(result.stdout)["rows"]}
        assert compared.keys() == set(ids)
        for row in of_row:
            if expected := compared.get(row[f"{dataset} run_id"]):
                for metric, key in (("pass@1", "result"), ("difference", "difference"), ("speed-up", "speed_up")):
                    for ending in ("", " low_95", " high_95"):
                        value = expected[key + ending.replace(" ", "_")]
                        assert row[f"{dataset} {metric}{ending}"] == ("" if value is None else repr(value))
                rate = expected["fallback_rate"]
                assert row[f"{dataset} fallback"] == ("" if rate is None else repr(rate))
    assert all(row["demo tokens"] for row in of_row if row["demo run_id"])


def test_every_format_has_the_number_and_once_what_limits_a_run(made: Made, table: dict[str, str]) -> None:
    [row] = [row for row in rows_of(made) if row["row"] == "speccot drafts 2"]
    value = f"{100 * float(row['sums pass@1']):.1f}"
    for text in table.values():
        assert [text.count(told) for told in ("PARTIAL RUN: 3 of 40 ", "SCRIPTED ENGINES:", "--force")] == [1, 1, 0]
        [line] = [line for line in text.splitlines() if "speccot drafts 2" in line and "UNEQUAL" not in line]
        assert value in line
        assert re.search(r"\[1\]|\\\[1\\\]|\^\{1\b", line), "and marks the rows that it is about"


def test_latex_escapes_every_text(table: dict[str, str]) -> None:
    text = table["latex"]
    assert text.count(r"\toprule") == text.count(r"\midrule") == text.count(r"\bottomrule") == 1
    assert re.search(rf"^ *{re.escape(HOSTILE_IN_LATEX)} +& ", text, re.MULTILINE)
    assert HOSTILE not in text
    assert r"\caption{mine\_\&. " in text


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--metric", "luck", "--table"), "--metric luck"),
        (("--column", "gsm8k", "--table"), "--column gsm8k"),
        (("--table", "-o", "table.docx"), ".md, .tex, .csv, .txt"),
        (("--table", "-o", "nowhere/table.md"), "-o nowhere/table.md"),
        (("--table", "--aligned", "org/a"), "--aligned"),
        (("--table", "--database", "no.duckdb"), "no.duckdb"),
        (("--table", "--drafts", "99"), "--drafts"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_code_2(made: Made, words: tuple[str, ...], named: str) -> None:
    result = made.reproduce(*words)
    assert (result.exit_code, len(result.output.strip().splitlines())) == (2, 1)
    assert named in result.output


def test_runs_that_have_no_sample_in_common_yet_have_their_own_results_and_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "demo.toml"
    file.write_text(
        'dataset = "demo"\nlimit = 10\nsamples = 2\nmethod = "vanilla"\n[[run]]\ntarget = "demo-target"\n'
        '[[run]]\nmodel = "draft"\ndraft = "demo-draft"\n'
    )
    made = Made(file, tmp_path / "runs")
    output, folders = {"output": str(made.output)}, []
    for run, part in zip(own_runs(suites.read(file, overrides=output)), (slice(5), slice(10, 15)), strict=True):
        planned = run.prepared.plan
        folder = runs.create(made.output, planned.spec, problems=planned.problems)
        ended = runs.planned(folder)[part]
        runs.write_part(folder, [runs.vanilla(unit) for unit in ended])
        runs.write_grades(folder, {unit.sample_id: "correct" for unit in ended[:4]})
        folders.append(folder)
    list(load_runs(folders, made.output / "warehouse.duckdb"))
    shown = made.reproduce("--table")
    assert shown.exit_code == 0, shown.output
    assert "NOT COMPARED:" in shown.output
    assert [(row["demo pass@1"], row["demo num_ungraded"]) for row in rows_of(made)] == [("1.0", "1")] * 2


def test_an_unfinished_run_says_so_at_its_number_and_one_that_is_not_loaded_how_to_load_it(tmp_path: Path) -> None:
    file = tmp_path / "demo.toml"
    file.write_text('dataset = "demo"\nsamples = 2\n[[run]]\nmethod = "vanilla"\ntarget = "demo-target"\n')
    made = Made(file, tmp_path / "runs")
    planned = own_runs(suites.read(file, overrides={"output": str(made.output)}))[0].prepared.plan
    folder = runs.create(made.output, planned.spec, problems=planned.problems)
    runs.write_part(folder, [runs.vanilla(unit) for unit in runs.planned(folder)[:30]])
    other = runs.create(tmp_path / "other", runs.VANILLA)
    runs.write_part(other, [runs.vanilla(unit) for unit in runs.planned(other)])
    load_run(other, made.output / "warehouse.duckdb")
    assert f"python -m warehouse.load {folder.path}" in made.reproduce("--table").output
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in runs.planned(folder)[:30]})
    load_run(folder, made.output / "warehouse.duckdb")
    lines = made.reproduce("--table").output.splitlines()
    assert [line for line in lines if line.startswith("[1] INCOMPLETE RUN: 50 of 80 ")]
    [row] = [line for line in lines if "100.0 (" in line]
    assert "[1]" in row
    [record] = rows_of(made)
    assert (record["demo num_finished"], record["demo num_samples"]) == ("30", "80")
