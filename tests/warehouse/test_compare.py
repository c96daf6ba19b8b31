"""`python -m warehouse.compare`: its output for complete runs, and the comparisons that it refuses."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from scipy import stats
from syrupy.assertion import SnapshotAssertion

from jobs.run.folder import RunFolder
from tests.warehouse import cells
from warehouse.compare import main
from warehouse.loading.runs import load_runs
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
    list(load_runs(folders, where / "w.duckdb"))
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
    assert (base["baseline_run_id"], run["baseline_run_id"]) == (None, pair[0])
    assert run["difference"] == pytest.approx(difference.mean())
    assert (run["difference_low_95"], run["difference_high_95"]) == pytest.approx((ends.low, ends.high))
    assert (run["difference_interval"], run["p"]) == ("t", pytest.approx(expected.pvalue))
    bound = worst_case(np.array(BAD) / 4, np.array(GOOD) / 4, 0.02)
    assert (run["worst_case_low_95"], run["p_non_inferior"]) == pytest.approx((bound.low, bound.p))
    assert (run["metric"], run["n"], run["k"], run["samples"]) == ("pass@1[avg-of-4]", 12, 1, 4)
    assert (run["speed_up"], run["num_timed_problems"]) == (pytest.approx(2.0), 12)


def test_holm_covers_every_test_of_the_table(tmp_path: Path, pair: list[str]) -> None:
    third = replace(cells.SPEC, params={"drafts": 3, "guidance_tokens": 8})
    names = pair + load(tmp_path, cells.finished(tmp_path, third, BAD[::-1]))
    rows = records(compare(tmp_path, *names, "--k", "2", "--format", "json"))
    tested = [row for row in rows if row["p"] is not None]
    assert len(tested) == 4
    smallest = min(tested, key=lambda row: row["p"])
    assert smallest["p_holm"] == pytest.approx(min(1, 4 * smallest["p"]))


def test_runs_of_the_same_method_are_tested_for_a_change_on_these_problems(tmp_path: Path, pair: list[str]) -> None:
    again = load(tmp_path, cells.finished(tmp_path, replace(cells.VANILLA, seed=1), GOOD))
    _, run = records(compare(tmp_path, pair[0], *again, "--format", "json"))
    assert (run["difference_interval"], run["difference"], run["p"]) == ("on these problems", 0, 1)
    assert run["difference_low_95"] == run["difference_on_these_low_95"] < 0


def test_latency_across_different_hardware_is_refused_unless_forced(
    tmp_path: Path, pair: list[str], snapshot: SnapshotAssertion
) -> None:
    other = replace(cells.SPEC, concurrency=8)
    names = [pair[0], *load(tmp_path, cells.finished(tmp_path, other, BAD, versions={"vllm": "0.31"}))]
    _, run = records(compare(tmp_path, *names, "--format", "json"))
    assert (run["speed_up"], run["difference"] < 0) == (None, True)
    said = [compare(tmp_path, *names, *flags).stdout for flags in ((), ("--force",))]
    refused, forced = ([line for line in text.splitlines() if line.startswith("LATENCY ")] for text in said)
    assert {"refused": refused, "forced": forced} == snapshot
    assert "×!" in said[1]


def test_csv_holds_every_number_and_files_are_written_by_their_ending(tmp_path: Path, pair: list[str]) -> None:
    for ending in ("csv", "md", "tex", "json"):
        result = compare(tmp_path, *pair, "-o", str(tmp_path / f"out.{ending}"))
        assert (result.exit_code, result.output) == (0, "")
    written = {path.suffix: path.read_text() for path in tmp_path.glob("out.*")}
    rows = list(csv.DictReader(io.StringIO(written[".csv"])))
    assert float(rows[1]["difference"]) == pytest.approx(np.mean(np.array(BAD) / 4 - np.array(GOOD) / 4))
    assert json.loads(written[".json"])["rows"][1]["run_id"] == pair[1]
    body = written[".tex"][written[".tex"].index("\\begin{tabular}") :]
    assert ("95 \\%" in body, "−" in body) == (True, False)
    assert "pass@1\\[avg-of-4\\]" in written[".md"]


def test_invalid_input_gets_one_line_that_says_what_is_valid(
    tmp_path: Path, pair: list[str], snapshot: SnapshotAssertion
) -> None:
    said = {}
    for words in (
        "sums-v sums-vanilla",
        "sums-v nope",
        "sums-v sums-",
        "sums-v sums-s --k 8",
        "sums-v sums-s --k two",
        "sums-v sums-s --margin 0",
        "sums-v sums-s --grader 9",
    ):
        result = compare(tmp_path, *words.split())
        assert result.exit_code == 2
        said[words] = re.sub(r"[0-9a-f]{6,}", "…", result.stderr.strip().splitlines()[-1])
    assert said == snapshot
