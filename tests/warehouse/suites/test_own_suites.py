"""A suite of one's own: its plan, its table in every format, and the numbers of compare in it."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from harness import reproduce
from jobs import suite as suites
from jobs.run.spec import EngineSpec
from tests.own_methods import write_method
from tests.shared import with_settings
from tests.warehouse import runs
from warehouse import compare
from warehouse.loading.runs import load_run, load_runs
from warehouse.suites.own_runs import OwnRun, own_runs
from warehouse.suites.table import METRICS

HOSTILE = r"A_b & 50% of \input{x} #~^{}$ <b>|"
HOSTILE_IN_LATEX = (
    r"A\_b \& 50\% of \textbackslash{}input\{x\} \#\textasciitilde{}\textasciicircum{}\{\}\$ "
    r"\textless{}b\textgreater{}\textbar{}"
)
SUITE = """
engine = "scripted"
cluster = "debug"
dataset = ["demo", "sums.jsonl"]
limit = 3
samples = 2

[[run]]
method = "vanilla"
model = "target"

[[run]]
method = "speccot"
drafts = [2, 3]

[[run]]
method = "confident.py:Confident"
dataset = "sums.jsonl"
prompts = "mine.toml"
row = '[HOSTILE]'
"""
APART = """
dataset = "demo"
limit = 10
samples = 2
method = "vanilla"
[[run]]
target = "demo-target"
[[run]]
model = "draft"
draft = "demo-draft"
"""
ONE_RUN = 'dataset = "demo"\nsamples = 2\n[[run]]\nmethod = "vanilla"\ntarget = "demo-target"\n'
TIMED = """
engine = "scripted"
cluster = "debug"
dataset = "demo"
limit = 4
samples = 2
latency-sample = 8

[[run]]
method = "vanilla"
model = "target"

[[run]]
method = "speccot"
"""


@dataclass
class Made:
    """A suite's file, and the folder of its runs."""

    file: Path
    output: Path

    @classmethod
    def of(cls, folder: Path, text: str) -> Made:
        (folder / "mine_&.toml").write_text(text, "utf-8")
        return cls(folder / "mine_&.toml", folder / "runs")

    def own_runs(self) -> list[OwnRun]:
        return own_runs(suites.read(self.file, overrides={"output": str(self.output)}))

    def reproduce(self, *words: str) -> Result:
        command = [str(self.file), "--output", str(self.output), *words]
        return CliRunner(env={"COLUMNS": "2000"}).invoke(reproduce.main, command)

    def rows(self, *words: str) -> list[dict[str, str]]:
        result = self.reproduce("--table", "--format", "csv", *words)
        assert result.exit_code == 0, result.output
        return list(csv.DictReader(result.stdout.splitlines()))


def hostile_suite(folder: Path) -> Made:
    write_method(folder)
    problems = [{"problem": f"What is {i} + {i}?", "answer": 2 * i} for i in range(1, 7)]
    (folder / "sums.jsonl").write_text("\n".join(map(json.dumps, problems)))
    (folder / "mine.toml").write_text('answer_bridge = "So it is: "\n')
    return Made.of(folder, SUITE.replace("[HOSTILE]", HOSTILE))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The suite, and its runs as made by hand: finished, with samples that are right except for one."""
    found, folders = hostile_suite(tmp_path_factory.mktemp("own")), []
    for run in found.own_runs():
        planned = run.prepared.plan
        folder = runs.create(found.output, planned.spec, problems=planned.problems)
        units = runs.planned(folder)
        traces = [
            runs.speculative(unit, refused=place % 3 == 0, latency=5.0 + place)
            if planned.spec.draft
            else runs.vanilla(unit)
            for place, unit in enumerate(units)
        ]
        verdicts = ["wrong" if place == run.number else "correct" for place in range(len(units))]
        folders.append(runs.write(folder, traces, verdicts))
    list(load_runs(folders, found.output / "warehouse.duckdb"))
    return found


@pytest.fixture(scope="module")
def table(made: Made) -> dict[str, str]:
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
    of_row = made.rows(*every)
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
    [row] = [row for row in made.rows() if row["row"] == "speccot drafts 2"]
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
    made, folders = Made.of(tmp_path, APART), []
    for run, part in zip(made.own_runs(), (slice(5), slice(10, 15)), strict=True):
        planned = run.prepared.plan
        folder = runs.create(made.output, planned.spec, problems=planned.problems)
        traces = [runs.vanilla(unit) for unit in runs.planned(folder)[part]]
        folders.append(runs.write(folder, traces, ["correct"] * 4))
    list(load_runs(folders, made.output / "warehouse.duckdb"))
    shown = made.reproduce("--table")
    assert (shown.exit_code, "NOT COMPARED:" in shown.output) == (0, True), shown.output
    assert [(row["demo pass@1"], row["demo num_ungraded"]) for row in made.rows()] == [("1.0", "1")] * 2


def test_an_unfinished_run_says_so_at_its_number_and_one_that_is_not_loaded_how_to_load_it(tmp_path: Path) -> None:
    made = Made.of(tmp_path, ONE_RUN)
    planned = made.own_runs()[0].prepared.plan
    folder = runs.create(made.output, planned.spec, problems=planned.problems)
    ended = runs.planned(folder)[:30]
    runs.write(folder, [runs.vanilla(unit) for unit in ended])
    load_run(runs.finished(tmp_path / "other", runs.VANILLA, runs.vanilla), made.output / "warehouse.duckdb")
    assert f"python -m warehouse.load {folder.path}" in made.reproduce("--table").output
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in ended})
    load_run(folder, made.output / "warehouse.duckdb")
    lines = made.reproduce("--table").output.splitlines()
    assert [line for line in lines if line.startswith("[1] INCOMPLETE RUN: 50 of 80 ")]
    [row] = [line for line in lines if "100.0 (" in line]
    assert "[1]" in row
    [record] = made.rows()
    assert (record["demo num_finished"], record["demo num_samples"]) == ("30", "80")


def test_a_dry_run_says_which_rows_are_done_partly_done_and_missing_and_writes_nothing(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    made = hostile_suite(tmp_path)
    first = made.reproduce("--dry-run").output
    assert not made.output.exists()
    for run in made.own_runs()[:3]:
        runs.finished(made.output, run.prepared.plan.spec, runs.vanilla, problems=run.prepared.plan.problems)
    before = sorted(made.output.rglob("*"))
    then = made.reproduce("--dry-run").output
    assert sorted(made.output.rglob("*")) == before
    lines = {"first": first, "then": then}
    assert {name: re.sub(r"[0-9a-f]{8,}|/\S+/", "…", text) for name, text in lines.items()} == snapshot


def test_a_latency_sample_is_planned_and_its_estimate_stands_in_the_table(tmp_path: Path) -> None:
    made, folders = Made.of(tmp_path, TIMED), []
    for prepared in (run.prepared.plan for run in made.own_runs()):
        for concurrency, latency in ((prepared.spec.concurrency, 40.0), (1, 20.0)):
            spec = replace(prepared.spec, engine=EngineSpec("vllm"), seed=9, concurrency=concurrency)
            folder = runs.create(made.output, spec, problems=prepared.problems)
            traces = [runs.vanilla(unit, latency=latency) for unit in runs.planned(folder)]
            runs.write_part(folder, traces, device="1 × H100")
            folders.append(folder)
    list(load_runs(folders, made.output / "warehouse.duckdb"))
    assert made.reproduce("--dry-run").output.count("; one at a time: ") == 2
    table = tmp_path / "table.csv"
    result = made.reproduce("-o", str(table))
    assert result.exit_code == 0, result.output
    base, own = csv.DictReader(table.read_text().splitlines())
    low, latency, high = (float(own[f"demo latency-at-one{end}"]) for end in (" low_95", "", " high_95"))
    assert low < latency < high
    assert float(own["demo speed-up-at-one"]) == pytest.approx(float(base["demo latency-at-one"]) / latency)


def test_a_run_with_its_models_in_another_folder_or_named_by_an_earlier_version_counts(tmp_path: Path) -> None:
    made = Made.of(tmp_path, "limit = 3\n" + ONE_RUN)
    planned = made.own_runs()[0].prepared.plan
    moved = with_settings(planned.spec, "target", path="/elsewhere")
    others = (
        with_settings(moved, "target", fingerprint="another"),
        with_settings(moved, "target", top_k=20),
        replace(moved, tag="again"),
    )
    for number, specs in enumerate(((moved,), (planned.spec,), others)):
        where, problems = tmp_path / str(number), planned.problems
        folders = [runs.finished(where, spec, runs.vanilla, problems=problems) for spec in specs]
        list(load_runs(folders, where / "warehouse.duckdb"))
        [row] = made.rows("--database", str(where / "warehouse.duckdb"))
        is_same = len(specs) == 1
        assert (row["demo run_id"] in [folder.path.name for folder in folders]) == is_same
        assert bool(row["demo tokens"]) == is_same
