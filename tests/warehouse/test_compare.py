"""`python -m warehouse.compare`: its output for complete runs, and the comparisons that it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import stats

from harness.prompts import parse, prompt_hash
from jobs.run.folder import RunFolder
from tests.warehouse import cells
from tests.warehouse.report.test_display import Terminal
from warehouse.compare import main
from warehouse.comparison.contrasts import compare_runs
from warehouse.comparison.written import write
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.statistics.bounded import worst_case

GOOD = (4, 4, 4, 3, 3, 4, 2, 4, 1, 4, 0, 3)
BAD = (3, 2, 4, 1, 3, 2, 0, 3, 1, 2, 0, 1)


def compare(where: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--database", str(where / "w.duckdb")])


def records(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    rows: list[dict[str, Any]] = json.loads(result.stdout)["rows"]
    return rows


def load(where: Path, *folders: RunFolder) -> list[str]:
    for folder in folders:
        load_run(folder, where / "w.duckdb")
    return [folder.path.name for folder in folders]


def by_turns(problem: int, sample: int) -> float:
    """As the baseline's times go, every second problem 10 % slower and the others as much faster."""
    return (1 + problem / 10 + sample / 4) * (1.1 if problem % 2 else 1 / 1.1)


@pytest.fixture(scope="module")
def loaded_pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    where = tmp_path_factory.mktemp("pair")
    vanilla = cells.finished(where, cells.VANILLA, GOOD, latency=20.0)
    return where, load(where, vanilla, cells.finished(where, cells.SPEC, BAD, latency=10.0, slower=by_turns))


@pytest.fixture
def pair(tmp_path: Path, loaded_pair: tuple[Path, list[str]]) -> list[str]:
    """Two runs, loaded into a warehouse of the test's own."""
    where, names = loaded_pair
    shutil.copy(where / "w.duckdb", tmp_path)
    return names


def test_runs_are_paired_by_problem(tmp_path: Path, pair: list[str]) -> None:
    base, run = records(compare(tmp_path, *pair, "--format", "json"))
    difference = np.array(BAD) / 4 - np.array(GOOD) / 4
    expected = stats.ttest_rel(np.array(BAD) / 4, np.array(GOOD) / 4)
    ends = expected.confidence_interval()
    assert base["baseline_run_id"] is None
    assert run["baseline_run_id"] == pair[0]
    assert run["difference"] == pytest.approx(difference.mean())
    assert (run["difference_low_95"], run["difference_high_95"]) == pytest.approx((ends.low, ends.high))
    assert (run["difference_interval"], run["p"]) == ("t", pytest.approx(expected.pvalue))
    bound = worst_case(np.array(BAD) / 4, np.array(GOOD) / 4, 0.02)
    assert (run["worst_case_low_95"], run["p_non_inferior"]) == pytest.approx((bound.low, bound.p))
    assert (run["metric"], run["n"], run["k"], run["samples"]) == ("pass@1[avg-of-4]", 12, 1, 4)


def test_a_ratio_of_latencies_is_the_speed_up(tmp_path: Path, pair: list[str]) -> None:
    _, run = records(compare(tmp_path, *pair, "--format", "json"))
    assert run["speed_up"] == pytest.approx(2.0)
    assert run["num_timed_problems"] == 12


def test_the_baseline_can_be_named_and_names_can_be_short(tmp_path: Path, pair: list[str]) -> None:
    base, run = records(compare(tmp_path, "sums-v", "sums-s", "--baseline", "sums-s", "--format", "json"))
    assert (base["run_id"], base["baseline_run_id"]) == (pair[1], None)
    assert (run["run_id"], run["baseline_run_id"]) == (pair[0], pair[1])


def test_holm_covers_every_test_of_the_table(tmp_path: Path, pair: list[str]) -> None:
    third = replace(cells.SPEC, params={"drafts": 3, "guidance_tokens": 8})
    names = pair + load(tmp_path, cells.finished(tmp_path, third, BAD[::-1]))
    rows = records(compare(tmp_path, *names, "--k", "2", "--format", "json"))
    tested = [row for row in rows if row["p"] is not None]
    assert len(tested) == 4
    smallest = min(tested, key=lambda row: row["p"])
    assert smallest["p_holm"] == pytest.approx(min(1, 4 * smallest["p"]))


def test_non_inferiority_depends_on_the_margin(tmp_path: Path) -> None:
    nearly = tuple(min(4, c + (i % 2)) for i, c in enumerate(GOOD))
    names = load(tmp_path, cells.finished(tmp_path, cells.VANILLA, GOOD), cells.finished(tmp_path, cells.SPEC, nearly))
    for margin, expected in (("50", True), ("2", False)):
        _, run = records(compare(tmp_path, *names, "--margin", margin, "--format", "json"))
        assert run["is_non_inferior"] is expected
        assert (run["problems_needed"] is None) is expected


def test_runs_of_the_same_method_are_tested_for_a_change_on_these_problems(tmp_path: Path, pair: list[str]) -> None:
    again = load(tmp_path, cells.finished(tmp_path, replace(cells.VANILLA, seed=1), GOOD))
    _, run = records(compare(tmp_path, pair[0], *again, "--format", "json"))
    assert (run["difference_interval"], run["difference"], run["p"]) == ("on these problems", 0, 1)
    assert run["difference_low_95"] == run["difference_on_these_low_95"] < 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"device": "NVIDIA A100"}, "devices: 1 × NVIDIA A100 against 1 × NVIDIA H100"),
        ({"versions": {"vllm": "0.31"}}, "vllm: 0.31 against 0.32"),
        ({"spec": replace(cells.SPEC, concurrency=8)}, "samples in flight: 8 against 1"),
    ],
)
def test_latency_across_different_hardware_is_refused_unless_forced(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    spec = change.pop("spec", cells.SPEC)
    names = load(tmp_path, cells.finished(tmp_path, cells.VANILLA, GOOD), cells.finished(tmp_path, spec, BAD, **change))
    refused = compare(tmp_path, *names)
    assert f"LATENCY REFUSED: speccot against vanilla target: {message}" in refused.stdout
    _, run = records(compare(tmp_path, *names, "--format", "json"))
    assert (run["speed_up"], run["latency_unlike"]) == (None, message)
    assert run["difference"] < 0
    forced = compare(tmp_path, *names, "--force")
    assert f"LATENCY FORCED: speccot against vanilla target: {message}" in forced.stdout
    assert "1.00×!" in forced.stdout


def test_another_grader_other_prompts_and_other_sampling_affect_accuracy(tmp_path: Path, pair: list[str]) -> None:
    other = replace(cells.SPEC, prompt_hash="other", temperature=0.0, seed=5)
    names = load(tmp_path, cells.finished(tmp_path, other, BAD, grader="2"))
    differences = json.loads(compare(tmp_path, pair[1], *names, "--format", "json").stdout)["differences"]
    assert {difference["name"]: difference["matter"] for difference in differences} == {
        "temperature": "accuracy and latency",
        "prompts": "accuracy and latency",
        "grader": "accuracy",
        "seed": "note",
    }


def test_a_run_with_a_prompt_file_is_told_from_one_without(tmp_path: Path, pair: list[str]) -> None:
    wording = parse("[score]\nquestion = 'Right?'", "own.toml")
    own = replace(cells.SPEC, prompts=wording, prompt_hash=prompt_hash(wording))
    names = load(tmp_path, cells.finished(tmp_path, own, BAD))
    differences = json.loads(compare(tmp_path, pair[1], *names, "--format", "json").stdout)["differences"]
    assert [(difference["name"], difference["matter"]) for difference in differences] == [
        ("prompts", "accuracy and latency")
    ]
    own_wording = f"{prompt_hash(wording)} (own score.question)"
    assert set(differences[0]["values"].values()) == {cells.SPEC.prompt_hash, own_wording}


def test_csv_holds_every_number_and_files_are_written_by_their_ending(tmp_path: Path, pair: list[str]) -> None:
    result = compare(tmp_path, *pair, "-o", str(tmp_path / "out.csv"))
    assert (result.exit_code, result.output) == (0, "")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert float(rows[1]["difference"]) == pytest.approx(np.mean(np.array(BAD) / 4 - np.array(GOOD) / 4))
    for ending, opening in (("md", "**all runs: SCRIPTED"), ("tex", "%"), ("json", "{")):
        path = tmp_path / f"out.{ending}"
        assert compare(tmp_path, *pair, "-o", str(path)).exit_code == 0
        assert path.read_text().startswith(opening)


@pytest.mark.parametrize(("width", "has_interval"), [(72, False), (80, True), (120, True)])
def test_a_brief_table_fits_a_terminal(
    tmp_path: Path, pair: list[str], width: int, has_interval: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    out = Terminal()
    write(compare_runs(pair, tmp_path / "w.duckdb"), out, "table", is_brief=True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue()).splitlines()
    assert max(map(len, lines)) <= width
    [row] = [line for line in lines if line.strip().startswith("speccot ") and "×" in line]
    assert ("(1.89–2.11)" in row) is has_interval


def test_markdown_and_latex_escape_what_would_be_markup(tmp_path: Path, pair: list[str]) -> None:
    latex = compare(tmp_path, *pair, "--format", "latex").stdout
    body = latex[latex.index("\\begin{tabular}") :]
    assert "95 \\%" in body
    assert "−" not in body
    markdown = compare(tmp_path, *pair, "--format", "markdown").stdout
    assert "pass@1\\[avg-of-4\\]" in markdown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sums-v",), "two different runs are needed"),
        (("sums-v", "sums-vanilla"), "two different runs are needed; all arguments name sums-vanilla-"),
        (("sums-v", "nope"), "'nope' is not a run of this warehouse, which has: "),
        (("sums-v", "sums-"), "'sums-' is a prefix of 2 runs"),
        (("sums-v", "sums-s", "--k", "8"), "pass@8 needs 1 ≤ k ≤ samples per problem, and the run has 4"),
        (("sums-v", "sums-s", "--k", "two"), "expected whole numbers from 1"),
        (("sums-v", "sums-s", "--margin", "0"), "margin"),
        (("sums-v", "sums-s", "--grader", "9"), "graded nothing here"),
    ],
)
def test_invalid_input_gets_one_line_that_says_what_is_valid(
    tmp_path: Path, pair: list[str], arguments: Sequence[str], message: str
) -> None:
    result = compare(tmp_path, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr.strip().splitlines()[-1]


def test_runs_of_other_problems_cannot_be_compared(tmp_path: Path, pair: list[str]) -> None:
    problems = [replace(problem, text=f"{problem.text} Now.") for problem in cells.PROBLEMS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "PROBLEMS", problems)
        names = load(tmp_path, cells.finished(tmp_path, cells.SPEC, BAD))
    result = compare(tmp_path, pair[0], *names)
    assert (result.exit_code, "have no problem in common" in result.stderr) == (2, True)


def test_each_dataset_has_its_own_baseline(tmp_path: Path, pair: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "PROBLEMS", [replace(p, id=f"more/{p.id}", dataset="more") for p in cells.PROBLEMS])
        more = [cells.finished(tmp_path, replace(spec, dataset="more"), GOOD) for spec in (cells.VANILLA, cells.SPEC)]
        names = load(tmp_path, *more)
    rows = records(compare(tmp_path, *pair, *names, "--format", "json"))
    assert [row["baseline_run_id"] for row in rows] == [None, pair[0], None, names[0]]


def test_the_views_of_pass_at_k_and_maj_at_k_agree_with_a_comparison(tmp_path: Path, pair: list[str]) -> None:
    arguments = ("--k", "2,3,4", "--maj", "--format", "json")
    compared = {(row["run_id"], row["metric"]): row["result"] for row in records(compare(tmp_path, *pair, *arguments))}
    with reader(tmp_path / "w.duckdb") as connection:
        several = connection.execute("SELECT run_id, k, pass_at_k FROM pass_at_k").fetchall()
        voted = connection.execute("SELECT run_id, k, maj_at_k FROM maj_at_k").fetchall()
    for run in pair:
        assert {k for run_id, k, _ in several if run_id == run} == {1, 2, 3, 4}
        assert [k for run_id, k, _ in voted if run_id == run] == [4]
    for name, rows in (("pass", several), ("maj", voted)):
        for run, k, value in rows:
            metric = f"{name}@{k}" if k > 1 else "pass@1[avg-of-4]"
            assert value == pytest.approx(compared[run, metric], abs=1e-12)
