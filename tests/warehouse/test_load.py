"""Loading: everything once, whatever is repeated or damaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from harness.trace import Trace
from jobs.finished.grading import finish
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import Unit
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tests.warehouse import runs
from tests.warehouse.conftest import counts, value
from warehouse.comparison.outcomes import families, paired, read_outcomes
from warehouse.database import reader, rows, writer
from warehouse.load import main
from warehouse.loading.convert import Row, utc
from warehouse.loading.runs import LoadReport, RunUnreadable, load_run
from warehouse.loading.staging import stage_rows


def test_everything_is_loaded_and_the_rest_of_the_plan_stands_beside_it(folder: RunFolder, database: Path) -> None:
    report = load_run(folder, database)
    expected = LoadReport(folder.path.name, False, 6, 2, 2, 6, 4, 8, 0, 0, (), report.seconds)
    assert report == expected
    assert counts(database) == {
        "run": 1,
        "attempt": 1,
        "problem": 3,
        "sample": 6,
        "step": 6,
        "candidate": 4,
        "call": 8,
        "grade": 2,
        "loaded_file": 5,
    }


def test_loading_twice_changes_nothing(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before, loaded_at = counts(database), value(database, "SELECT loaded_at FROM run")
    report = load_run(folder, database)
    assert report.unchanged
    assert (report.num_samples, report.num_finished) == (6, 2)
    assert (counts(database), value(database, "SELECT loaded_at FROM run")) == (before, loaded_at)


def test_a_new_part_is_added(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:5]], "a1")
    report = load_run(folder, database)
    assert (report.unchanged, report.num_finished, report.num_graded) == (False, 5, 2)
    assert counts(database)["step"] == 15
    assert counts(database)["attempt"] == 2


def test_a_repaired_part_takes_its_place(folder: RunFolder, database: Path) -> None:
    """Same name, same samples, another content: the rows are replaced, keys and all."""
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit, latency=99.0) for unit in runs.planned(folder)[:2]], "a0")
    load_run(folder, database)
    assert value(database, "SELECT list(DISTINCT latency_seconds) FROM sample WHERE stop_reason IS NOT NULL") == [99.0]
    assert counts(database)["step"] == 6


def test_the_first_record_of_a_sample_counts(folder: RunFolder, database: Path) -> None:
    first, second, third = runs.planned(folder)[:3]
    again = [runs.speculative(unit, latency=77.0) for unit in (second, third, third)]
    again[2].latency_seconds = 78.0
    runs.write_part(folder, again, "a1")
    unfinished = runs.speculative(first, latency=1.0)
    unfinished.stop_reason = None
    runs.write_part(folder, [unfinished], "a")  # comes first by name, but is not complete
    report = load_run(folder, database)
    assert (report.num_finished, report.num_duplicates) == (3, 2)
    with reader(database) as connection:
        latencies = dict(connection.execute("SELECT sample_id, latency_seconds FROM sample").fetchall())
    assert [latencies[unit.sample_id] for unit in (first, second, third)] == [10.0, 10.0, 77.0]
    assert counts(database)["step"] == 9


@pytest.mark.parametrize("damaged", [False, True])
def test_a_try_without_an_error_counts_before_one_with(folder: RunFolder, database: Path, damaged: bool) -> None:
    """A failed sample that was retried is not a duplicate, and its old grade no longer holds."""
    first, second, third, fourth = runs.planned(folder)[:4]
    again = runs.speculative(first, latency=77.0)
    runs.write_part(folder, [runs.ended(runs.speculative(first, latency=1.0), "error", "lost")], "a")
    runs.write_part(folder, [runs.ended(again, "budget"), runs.ended(runs.speculative(second), "error", "lost")], "b")
    for part, latency in (("c", 3.0), ("d", 4.0)):  # fails every time: the first one counts
        runs.write_part(folder, [runs.ended(runs.speculative(third, latency=latency), "error", "lost")], part)
    runs.write_part(folder, [runs.speculative(fourth)], "e")
    if damaged:
        runs.truncated(folder.trace_files_dir / "e.parquet")
    earliest = folder.trace_files_dir / "a0.parquet"
    rows, metadata = trace_files.read_rows(earliest), trace_files.read_metadata(earliest)
    trace_files.write_table(earliest.with_name("z.parquet"), trace_files.TRACES, rows, metadata)
    earliest.unlink()
    runs.write_grades(folder, {first.sample_id: "error", second.sample_id: "correct", third.sample_id: "error"})
    report = load_run(folder, database)
    assert (report.num_finished, report.num_duplicates, len(report.skipped)) == (4 - damaged, 1, 1 + damaged)  # and a0
    with reader(database) as connection:
        grades = connection.execute(
            "SELECT sample_id, stop_reason, latency_seconds, attempt_id, verdict, graded "
            "FROM sample JOIN sample_grade USING (run_id, sample_id, stop_reason)"
        ).fetchall()
    of = {row[0]: row[1:] for row in grades}
    assert of[first.sample_id] == ("budget", 77.0, "b", "not_run", False)
    assert of[second.sample_id] == ("answered", 10.0, "z", "correct", True)
    assert of[third.sample_id] == ("error", 3.0, "c", "error", True)


def test_a_sample_outside_of_the_plan_is_reported_and_left_out(folder: RunFolder, database: Path) -> None:
    stranger = Unit("f" * 16, "toy/0", 5)
    runs.write_part(folder, [runs.speculative(stranger)], "a1")
    runs.write_grades(folder, {stranger.sample_id: "correct"}, "2")
    report = load_run(folder, database)
    assert (report.num_samples, report.num_finished, report.num_unplanned) == (6, 2, 1)
    assert (report.num_steps, report.num_candidates, report.num_calls) == (6, 4, 8)
    assert counts(database)["grade"] == 2


def overwritten(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * (len(content) // 2) + content[4 + len(content) // 2 :])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_other_columns(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


@pytest.mark.parametrize("damage", [runs.truncated, overwritten, emptied, of_other_columns])
def test_a_damaged_part_is_named_and_the_rest_is_loaded(
    folder: RunFolder, database: Path, damage: Callable[[Path], None]
) -> None:
    path = runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:4]], "a1")
    damage(path)
    for is_again in (False, True):
        report = load_run(folder, database)
        assert [file.name for file in report.skipped] == ["traces/a1.parquet"]
        assert report.skipped[0].reason
        assert "\n" not in report.skipped[0].reason
        assert (report.unchanged, report.num_finished, report.num_samples) == (is_again, 2, 6)
    result = CliRunner().invoke(main, [str(folder.path), "--database", str(database)])
    assert result.exit_code == 1
    assert "WARNING" in result.stderr
    assert "traces/a1.parquet" in result.stderr


def test_a_part_that_is_mended_is_loaded(folder: RunFolder, database: Path) -> None:
    path = folder.trace_files_dir / "a0.parquet"
    whole = path.read_bytes()
    runs.truncated(path)
    assert load_run(folder, database).num_finished == 0
    path.write_bytes(whole)
    report = load_run(folder, database)
    assert (report.num_finished, report.skipped) == (2, ())


def test_grades_with_an_unknown_verdict_are_left_out(folder: RunFolder, database: Path) -> None:
    runs.write_grades(folder, {runs.planned(folder)[0].sample_id: "splendid"}, "2")
    report = load_run(folder, database)
    assert [(f.name, "splendid" in f.reason) for f in report.skipped] == [("derived/grades-2.parquet", True)]
    assert report.num_graded == 2


def test_an_unreadable_plan_does_not_stop_other_runs(folder: RunFolder, database: Path) -> None:
    broken = runs.create(folder.path.parent, runs.VANILLA)
    broken.problems_path.write_bytes(b"")
    with pytest.raises(RunUnreadable, match="cannot be loaded"):
        load_run(broken, database)
    result = CliRunner().invoke(main, [str(folder.path.parent)])
    assert result.exit_code == 1
    assert broken.path.name in result.stderr
    assert counts(database)["run"] == 1


def test_a_run_of_the_same_name_elsewhere_is_refused(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    other = runs.create(folder.path.parent / "elsewhere")
    with pytest.raises(RunUnreadable, match="is loaded from another folder"):
        load_run(other, database)
    assert counts(database)["step"] == 6


def test_a_moved_run_is_the_same_run(folder: RunFolder, database: Path, tmp_path: Path) -> None:
    load_run(folder, database)
    (tmp_path / "new").mkdir()
    moved = RunFolder(folder.path.rename(tmp_path / "new" / folder.path.name))
    assert load_run(moved, database).unchanged


def test_finished_samples_that_are_still_in_journals_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    monkeypatch.setattr("jobs.run.endings.compact_own", lambda run, path: None)  # as where the worker is killed
    run_shard(str(run.path), 1)
    for outcome in ("in ", "unchanged"):
        result = CliRunner().invoke(main, [str(run.path)])
        assert outcome in result.output
        assert "12 of 24 samples finished" in result.output
        assert result.output.endswith(f"\n  12 more are finished in journals:  python -m jobs finalize {run.path}\n")
    finish(run)
    assert "journals" not in CliRunner().invoke(main, [str(run.path)]).output


def test_no_run_folder_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path)])
    assert result.exit_code == 2
    assert "no run folder" in result.stderr
    assert list(tmp_path.iterdir()) == []


HOSTILE = ["'); DROP TABLE run; --", "[red]x[/red]", "\x1b[2J\x9b31m\x00", "\u202edesrever", 'a,"b"\n\r\tc', "𝛑 ∑"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_stored_as_it_is(tmp_path: Path, text: str) -> None:
    folder, database = runs.create(tmp_path, name="a[1]*?b"), tmp_path / "w.duckdb"
    trace: Trace = runs.speculative(runs.planned(folder)[0], text=text)
    runs.write_part(folder, [trace], "p[0]'")
    report = load_run(folder, database)
    assert (report.skipped, report.num_finished) == ((), 1)
    assert value(database, "SELECT text FROM step WHERE step_index = 1") == text


def test_the_family_of_a_problem_is_loaded_and_reaches_a_pair_in_which_one_run_states_it(tmp_path: Path) -> None:
    problems = [replace(runs.PROBLEMS[0], family="t3"), *runs.PROBLEMS[1:]]
    stated, silent = (runs.create(tmp_path, *of) for of in ((runs.SPEC, "a", problems), (runs.VANILLA, "b")))
    for folder in (stated, silent):
        load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        own, other = (replace(read_outcomes(connection, name), is_missing=np.zeros((3, 2), bool)) for name in "ab")
        assert families(connection, ["a", "b"]) == {("a", "toy/0"): "t3"}
    assert (own.family, other.family) == (["t3", None, None], [None] * 3)
    assert paired(other, own).family == ["t3", None, None]


def test_a_plan_with_hostile_text_is_staged_as_it_is(tmp_path: Path) -> None:
    """Every type of a small table, and what a row lacks is NULL; a column that the table lacks is refused."""
    problems: list[Row] = [{"text": text, "choices": [text, "b"], "tolerance": 0.1} for text in HOSTILE]
    run: Row = {"params": '{"a": "é"}', "seed": 2**63 - 1, "limited": True, "loaded_at": utc(1_767_323_045.678901)}
    with writer(tmp_path / "w.duckdb") as connection:
        stage_rows(connection, "problem", problems)
        staged = rows(connection, "SELECT text, choices, tolerance, level FROM staged_problem")
        assert staged == [problem | {"level": None} for problem in problems]
        stage_rows(connection, "run", [run])
        assert rows(connection, "SELECT params, seed, limited, loaded_at FROM staged_run") == [run]
        with pytest.raises(ValueError, match="no column typo in problem"):
            stage_rows(connection, "problem", [{"typo": 1}])
