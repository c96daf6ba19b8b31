"""Majority votes of a comparison: which answers are one, which vote at all, and which problems are left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.warehouse import cells
from tests.warehouse.test_compare import compare, load, records
from warehouse.comparison.votes import read_votes
from warehouse.database import reader
from warehouse.files import WarehouseError


def test_a_majority_counts_answers_that_the_grader_calls_equal_as_one(tmp_path: Path) -> None:
    """2 of 4 samples are right; the other two write ½ in two ways, which ties with the right answer, or differ."""
    same = cells.finished(tmp_path, cells.SPEC, (2,), extracted=("0.5", "\\frac{1}{2}"))
    unlike = cells.finished(tmp_path, cells.VANILLA, (2,), extracted=("0.5", "\\frac{1}{3}"))
    names = load(tmp_path, same, unlike)
    with reader(tmp_path / "w.duckdb") as connection:
        in_sql = dict(connection.execute("SELECT run_id, maj_at_k FROM maj_at_k").fetchall())
    assert in_sql == dict.fromkeys(names, 1.0), "SQL tells wrong answers apart by their text"
    arguments = (*names, "--maj", "--baseline", names[0], "--format", "json")
    tied, clear = records(compare(tmp_path, *arguments))[1::2]
    assert (tied["metric"], tied["result"], clear["result"]) == ("maj@4", 0.5, 1.0)


def test_a_problem_without_k_graded_samples_is_left_out_and_counted(tmp_path: Path) -> None:
    folder = cells.finished(tmp_path, cells.SPEC, (4, 2, 0), has_run=lambda problem, sample: problem > 0 or sample < 2)
    load(tmp_path, folder)
    with reader(tmp_path / "w.duckdb") as connection:
        sql = "SELECT k, n, num_left_out, round(pass_at_k, 4) FROM pass_at_k ORDER BY k"
        passed, majority = (connection.execute(one).fetchall() for one in (sql, "FROM maj_at_k SELECT n, maj_at_k"))
    assert passed == [(1, 3, 0, 0.5), (2, 3, 0, 0.6111), (3, 2, 1, 0.5), (4, 2, 1, 0.5)]
    assert majority == [(2, 0.25)]


def test_a_hostile_answer_only_spoils_its_own_vote(tmp_path: Path) -> None:
    hostile = "9^{9^{9^{9^{9}}}}"
    names = load(tmp_path, cells.finished(tmp_path, cells.SPEC, (2,), extracted=(hostile, "__import__('os')")))
    with reader(tmp_path / "w.duckdb") as connection:
        [votes] = read_votes(connection, names[0]).values()
    assert (votes.counts, votes.is_right, votes.abstained) == ([2, 1, 1], [True, False, False], 0)


OWN = "own short.py:grade 439fef105876"


def test_answers_that_an_own_grader_calls_wrong_are_one_where_their_text_is(tmp_path: Path) -> None:
    names = load(tmp_path, cells.finished(tmp_path, cells.SPEC, (1,), extracted=("0.5", "1/2", "0.5 "), grader=OWN))
    with reader(tmp_path / "w.duckdb") as connection:
        [votes] = read_votes(connection, names[0]).values()
        assert connection.execute("FROM maj_at_k SELECT maj_at_k").fetchall() == [(0.0,)]
    assert (votes.counts[0], sorted(votes.counts[1:])) == (1, [1, 2]), "½ is not what the grader compares"


def test_an_own_grader_that_does_not_return_what_it_calls_wrong_gives_no_majority(tmp_path: Path) -> None:
    unknown = cells.finished(tmp_path, cells.SPEC, (4, 2), extracted=(None,), grader=OWN)  # type: ignore[arg-type]
    names = load(tmp_path, unknown)
    with reader(tmp_path / "w.duckdb") as connection:
        assert connection.execute("FROM maj_at_k").fetchall() == []
        with pytest.raises(WarehouseError, match="grader"):
            read_votes(connection, names[0])


def test_samples_without_an_answer_do_not_vote(tmp_path: Path) -> None:
    names = load(tmp_path, cells.finished(tmp_path, cells.SPEC, (1, 0), wrong="no_answer", extracted=("",)))
    other = load(tmp_path, cells.finished(tmp_path, cells.VANILLA, (0, 0)))
    rows = records(compare(tmp_path, *names, *other, "--maj", "--baseline", names[0], "--format", "json"))
    assert [row["result"] for row in rows if row["metric"] == "maj@4"] == [0.5, 0.0]
