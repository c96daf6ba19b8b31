"""`python -m warehouse.compare`: what it prints of complete runs, how often its tests reject, and majority votes."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.random import Generator
from scipy import stats
from syrupy.assertion import SnapshotAssertion

from tests.shared import known
from tests.warehouse import cells
from tests.warehouse.cells import BAD, GOOD, compare, compared, load, select
from warehouse.comparison.compared_runs import Run, read_runs
from warehouse.comparison.contrasts import Contrast, Settings
from warehouse.comparison.contrasts import compare as compare_outcomes
from warehouse.comparison.outcomes import Outcomes
from warehouse.comparison.show import merged, renamed
from warehouse.comparison.votes import Votes, read_votes
from warehouse.database import reader
from warehouse.files import WarehouseError
from warehouse.statistics.bounded import worst_case
from warehouse.statistics.intervals import Floats


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
    base, run = compared(tmp_path, *pair)
    own, other = np.array(BAD) / 4, np.array(GOOD) / 4
    expected = stats.ttest_rel(own, other)
    ends = expected.confidence_interval()
    assert (base["baseline_run_id"], run["baseline_run_id"]) == (None, pair[0])
    assert run["difference"] == pytest.approx((own - other).mean())
    assert (run["difference_low_95"], run["difference_high_95"]) == pytest.approx((ends.low, ends.high))
    assert (run["difference_interval"], run["p"]) == ("t", pytest.approx(expected.pvalue))
    bound = worst_case(own, other, 0.02)
    assert (run["worst_case_low_95"], run["p_non_inferior"]) == pytest.approx((bound.low, bound.p))
    assert (run["metric"], run["n"], run["k"], run["samples"]) == ("pass@1[avg-of-4]", 12, 1, 4)
    assert (run["speed_up"], run["num_timed_problems"]) == (pytest.approx(2.0), 12)


def test_holm_covers_every_test_of_the_table(tmp_path: Path, pair: list[str]) -> None:
    third = replace(cells.SPEC, params={"drafts": 3, "guidance_tokens": 8})
    names = pair + load(tmp_path, cells.finished(tmp_path, third, BAD[::-1]))
    tested = [row for row in compared(tmp_path, *names, "--k", "2") if row["p"] is not None]
    assert len(tested) == 4
    smallest = min(tested, key=lambda row: row["p"])
    assert smallest["p_holm"] == pytest.approx(min(1, 4 * smallest["p"]))


def test_runs_of_the_same_method_are_tested_for_a_change_on_these_problems(tmp_path: Path, pair: list[str]) -> None:
    again = load(tmp_path, cells.finished(tmp_path, replace(cells.VANILLA, seed=1), GOOD))
    _, run = compared(tmp_path, pair[0], *again)
    assert (run["difference_interval"], run["difference"], run["p"]) == ("on these problems", 0, 1)
    assert run["difference_low_95"] == run["difference_on_these_low_95"] < 0


def test_latency_across_different_hardware_is_refused_unless_forced(
    tmp_path: Path, pair: list[str], snapshot: SnapshotAssertion
) -> None:
    other = replace(cells.SPEC, concurrency=8)
    names = [pair[0], *load(tmp_path, cells.finished(tmp_path, other, BAD, versions={"vllm": "0.31"}))]
    _, run = compared(tmp_path, *names)
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


REPETITIONS = 100


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """The target alone, speculation, and the target alone again; their outcomes are to be replaced."""
    where = tmp_path_factory.mktemp("manifests")
    specs = (cells.VANILLA, cells.SPEC, replace(cells.VANILLA, seed=1))
    names = load(where, *(cells.finished(where, spec, (1, 0)) for spec in specs))
    with reader(where / "w.duckdb") as connection:
        return read_runs(connection, names, votes=False)


def drawn(rng: Generator, chances: Floats, samples: int, share_missing: float = 0.0) -> Outcomes:
    """Samples of problems that are right by chances (n,), of which a share is missing at random."""
    shape = len(chances), samples
    is_missing = rng.random(shape) < share_missing
    names = [f"sums/{i}" for i in range(len(chances))]
    is_right = (rng.random(shape) < chances[:, None]) & ~is_missing
    return Outcomes(names, names, [None] * len(chances), np.ones(shape, dtype=bool), is_missing, is_right)


def contrast_of(base: Run, base_outcomes: Outcomes, run: Run, outcomes: Outcomes) -> Contrast:
    pair = [replace(base, outcomes=base_outcomes), replace(run, outcomes=outcomes)]
    return known(compare_outcomes(pair, Settings()).rows[1].contrast)


@pytest.mark.parametrize(("other", "k", "kind"), [(1, 3, "t"), (2, 24, "on these problems")])
def test_a_third_missing_at_random_does_not_make_a_test_reject_more_often(
    manifests: list[Run], other: int, k: int, kind: str
) -> None:
    """The rejection rate is at most 5 % plus four standard errors of the repetitions."""
    rng, rejected = np.random.default_rng(0), 0
    for _ in range(REPETITIONS):
        chances = rng.beta(0.6, 0.6, 40)
        base, run = drawn(rng, chances, k), drawn(rng, chances, k, 1 / 3)
        contrast = contrast_of(manifests[0], base, manifests[other], run)
        assert (contrast.difference.kind, contrast.is_non_inferior) == (kind, None)
        rejected += known(contrast.difference.p) < 0.05
    assert rejected / REPETITIONS <= 0.05 + 4 * (0.05 * 0.95 / REPETITIONS) ** 0.5


def test_a_few_broken_problems_are_not_hidden_by_small_gains_elsewhere(manifests: list[Run]) -> None:
    """One problem of 30 is lost and the others gain 7 points."""
    base = replace(drawn(np.random.default_rng(4), np.ones(30), 16), is_correct=np.tile(np.arange(16) > 0, (30, 1)))
    run = replace(base, is_correct=np.tile(np.arange(30)[:, None] > 0, (1, 16)))
    contrast = contrast_of(manifests[0], base, manifests[1], run)
    assert contrast.difference.estimate == pytest.approx((29 / 16 - 15 / 16) / 30)
    assert known(known(contrast.worst).low) < -0.06
    assert contrast.is_non_inferior is False


def test_a_majority_counts_answers_that_the_grader_calls_equal_as_one(tmp_path: Path) -> None:
    """2 of 4 samples are right; the other two write ½ in two ways, which ties with the right answer, or differ."""
    same = cells.finished(tmp_path, cells.SPEC, (2,), extracted=("0.5", "\\frac{1}{2}"))
    unlike = cells.finished(tmp_path, cells.VANILLA, (2,), extracted=("0.5", "\\frac{1}{3}"))
    names = load(tmp_path, same, unlike)
    in_sql = {row["run_id"]: row["maj_at_k"] for row in select(tmp_path, "FROM maj_at_k")}
    assert in_sql == dict.fromkeys(names, 1.0), "SQL tells wrong answers apart by their text"
    tied, clear = compared(tmp_path, *names, "--maj", "--baseline", names[0])[1::2]
    assert (tied["metric"], tied["result"], clear["result"]) == ("maj@4", 0.5, 1.0)


def test_a_problem_without_k_graded_samples_is_left_out_and_counted(tmp_path: Path) -> None:
    load(tmp_path, cells.finished(tmp_path, cells.SPEC, (4, 2, 0), has_run=lambda p, sample: p > 0 or sample < 2))
    passed = select(tmp_path, "SELECT k, n, num_left_out, round(pass_at_k, 4) AS share FROM pass_at_k ORDER BY k")
    expected = [(1, 3, 0, 0.5), (2, 3, 0, 0.6111), (3, 2, 1, 0.5), (4, 2, 1, 0.5)]
    assert [tuple(row.values()) for row in passed] == expected
    assert select(tmp_path, "SELECT n, maj_at_k FROM maj_at_k") == [{"n": 2, "maj_at_k": 0.25}]


def votes_of(where: Path, run_id: str) -> Votes:
    with reader(where / "w.duckdb") as connection:
        [votes] = read_votes(connection, run_id).values()
    return votes


def test_a_hostile_answer_only_spoils_its_own_vote(tmp_path: Path) -> None:
    hostile = "9^{9^{9^{9^{9}}}}"
    [name] = load(tmp_path, cells.finished(tmp_path, cells.SPEC, (2,), extracted=(hostile, "__import__('os')")))
    votes = votes_of(tmp_path, name)
    assert (votes.counts, votes.is_right, votes.abstained) == ([2, 1, 1], [True, False, False], 0)


OWN = "own short.py:grade 439fef105876"


def test_answers_that_an_own_grader_calls_wrong_are_one_where_their_text_is(tmp_path: Path) -> None:
    [name] = load(tmp_path, cells.finished(tmp_path, cells.SPEC, (1,), extracted=("0.5", "1/2", "0.5 "), grader=OWN))
    counts = votes_of(tmp_path, name).counts
    assert (counts[0], sorted(counts[1:])) == (1, [1, 2]), "½ is not what the grader compares"
    assert [row["maj_at_k"] for row in select(tmp_path, "FROM maj_at_k")] == [0.0]


def test_an_own_grader_that_does_not_return_what_it_calls_wrong_gives_no_majority(tmp_path: Path) -> None:
    unknown = cells.finished(tmp_path, cells.SPEC, (4, 2), extracted=(None,), grader=OWN)  # type: ignore[arg-type]
    [name] = load(tmp_path, unknown)
    assert select(tmp_path, "FROM maj_at_k") == []
    with pytest.raises(WarehouseError, match="grader"):
        votes_of(tmp_path, name)


def test_samples_without_an_answer_do_not_vote(tmp_path: Path) -> None:
    silent = cells.finished(tmp_path, cells.SPEC, (1, 0), wrong="no_answer", extracted=("",))
    names = load(tmp_path, silent, cells.finished(tmp_path, cells.VANILLA, (0, 0)))
    found = compared(tmp_path, *names, "--maj", "--baseline", names[0])
    assert [row["result"] for row in found if row["metric"] == "maj@4"] == [0.5, 0.0]


def test_a_warning_of_several_runs_is_one_line_with_the_range_of_its_numbers() -> None:
    names = {"run-1": "vanilla", "run-2": "speccot", "run-3": "rsd"}
    lines = ["run-1: BUSY: 1.6 per core", "run-2: BUSY: 12.9 per core", "run-1: draft q-1b", "run-2: draft q-2b"]
    assert list(merged(lines, names)) == [
        "vanilla, speccot: BUSY: 1.6–12.9 per core",
        "vanilla: draft q-1b",
        "speccot: draft q-2b",
    ]
    assert list(merged([f"{run}: BUSY: 2 per core" for run in names], names)) == ["all runs: BUSY: 2 per core"]
    assert list(merged(["run-1: SKIPPED: f", "run-1: SKIPPED: f"], names)) == ["vanilla: SKIPPED: f"]
    thousands = ["run-1: UNFINISHED: 1,350 of 2,000", "run-2: UNFINISHED: 980 of 2,000"]
    assert list(merged(thousands, names)) == ["vanilla, speccot: UNFINISHED: 980–1,350 of 2,000"]
    apart = ["run-1: at 12:30", "run-2: at 12:45", "run-1: −2 points", "run-2: −3 points"]
    assert len(list(merged(apart, names))) == 4, "times and negative numbers form no ranges"


def test_run_ids_are_replaced_by_short_names_but_not_in_paths() -> None:
    line = "NOT COMPARED: run-1, pass@4: no samples in common with run-2; python -m jobs resume /runs/run-1"
    told = "NOT COMPARED: vanilla, pass@4: no samples in common with speccot; python -m jobs resume /runs/run-1"
    assert renamed(line, {"run-1": "vanilla", "run-2": "speccot"}) == told
