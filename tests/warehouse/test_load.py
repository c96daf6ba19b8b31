"""Loading: everything once, whatever is repeated, damaged or killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from harness.trace import Trace
from jobs.spec import Unit
from jobs.store import RunFolder
from tests.warehouse import runs
from warehouse.database import WarehouseOutdated, reader, writer
from warehouse.load import RunUnreadable, load_run, main
from warehouse.records import LoadReport

COUNTS = " UNION ALL ".join(
    f"SELECT '{table}' AS name, count(*) AS n FROM {table}"
    for table in ("run", "attempt", "problem", "sample", "step", "candidate", "call", "grade", "loaded_file")
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run with two of six samples finished and graded."""
    folder = runs.create(tmp_path)
    units = runs.planned(folder)
    runs.write_part(folder, [runs.speculative(unit) for unit in units[:2]], "a0")
    runs.write_grades(folder, {unit.sample_id: "correct" for unit in units[:2]})
    return folder


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "warehouse.duckdb"


def counts(database: Path) -> dict[str, int]:
    with reader(database) as connection:
        return dict(connection.execute(COUNTS).fetchall())


def value(database: Path, sql: str) -> object:
    with reader(database) as connection:
        [(found,)] = connection.execute(sql).fetchall()
    return found


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
        found = dict(connection.execute("SELECT sample_id, latency_seconds FROM sample").fetchall())
    assert [found[unit.sample_id] for unit in (first, second, third)] == [10.0, 10.0, 77.0]
    assert counts(database)["step"] == 9


@pytest.mark.parametrize("damaged", [False, True])
def test_a_try_without_an_error_counts_before_one_with(folder: RunFolder, database: Path, damaged: bool) -> None:
    """A failed sample that was run once more is no duplicate, and its old grade no longer holds."""
    first, second, third, fourth = runs.planned(folder)[:4]
    again = runs.speculative(first, latency=77.0)
    runs.write_part(folder, [runs.ended(runs.speculative(first, latency=1.0), "error", "lost")], "a")
    runs.write_part(folder, [runs.ended(again, "budget"), runs.ended(runs.speculative(second), "error", "lost")], "b")
    for part, latency in (("c", 3.0), ("d", 4.0)):  # fails every time: the first one counts
        runs.write_part(folder, [runs.ended(runs.speculative(third, latency=latency), "error", "lost")], part)
    runs.write_part(folder, [runs.speculative(fourth)], "e")
    if damaged:
        truncated(folder.parts_dir / "e.parquet")
    (folder.parts_dir / "a0.parquet").rename(folder.parts_dir / "z.parquet")
    runs.write_grades(folder, {first.sample_id: "error", second.sample_id: "correct", third.sample_id: "error"})
    report = load_run(folder, database)
    assert (report.num_finished, report.num_duplicates, len(report.skipped)) == (4 - damaged, 1, damaged)
    with reader(database) as connection:
        found = connection.execute(
            "SELECT sample_id, stop_reason, latency_seconds, attempt_id, verdict, graded "
            "FROM sample JOIN sample_grade USING (run_id, sample_id, stop_reason)"
        ).fetchall()
    of = {row[0]: row[1:] for row in found}
    assert of[first.sample_id] == ("budget", 77.0, "b", "not_run", False)
    assert of[second.sample_id] == ("answered", 10.0, "z", "correct", True)
    assert of[third.sample_id] == ("error", 3.0, "c", "error", True)


def test_a_sample_outside_of_the_plan_is_reported_and_left_out(folder: RunFolder, database: Path) -> None:
    stranger = Unit("f" * 16, "toy/0", 5)
    runs.write_part(folder, [runs.speculative(stranger)], "a1")
    runs.write_grades(folder, {stranger.sample_id: "correct"}, "2")
    report = load_run(folder, database)
    assert (report.num_samples, report.num_finished, report.num_unplanned) == (6, 2, 1)
    assert counts(database)["step"] == 6
    assert counts(database)["grade"] == 2


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def overwritten(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * (len(content) // 2) + content[4 + len(content) // 2 :])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def of_other_columns(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


@pytest.mark.parametrize("damage", [truncated, overwritten, emptied, of_other_columns])
def test_a_damaged_part_is_named_and_the_rest_is_loaded(
    folder: RunFolder, database: Path, damage: Callable[[Path], None]
) -> None:
    path = runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:4]], "a1")
    damage(path)
    for is_again in (False, True):
        report = load_run(folder, database)
        assert [file.name for file in report.skipped] == ["parts/a1.parquet"]
        assert report.skipped[0].reason
        assert "\n" not in report.skipped[0].reason
        assert (report.unchanged, report.num_finished, report.num_samples) == (is_again, 2, 6)
    result = CliRunner().invoke(main, [str(folder.path), "--database", str(database)])
    assert result.exit_code == 1
    assert "WARNING" in result.stderr
    assert "parts/a1.parquet" in result.stderr


def test_a_part_that_is_mended_is_loaded(folder: RunFolder, database: Path) -> None:
    path = folder.parts_dir / "a0.parquet"
    whole = path.read_bytes()
    truncated(path)
    assert load_run(folder, database).num_finished == 0
    path.write_bytes(whole)
    report = load_run(folder, database)
    assert (report.num_finished, report.skipped) == (2, ())


def test_grades_with_an_unknown_verdict_are_left_out(folder: RunFolder, database: Path) -> None:
    runs.write_grades(folder, {runs.planned(folder)[0].sample_id: "splendid"}, "2")
    report = load_run(folder, database)
    assert [(f.name, "splendid" in f.reason) for f in report.skipped] == [("grades/2.parquet", True)]
    assert report.num_graded == 2


def test_a_part_without_metadata_is_loaded(folder: RunFolder, database: Path) -> None:
    path = folder.parts_dir / "a0.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata(None), path)
    assert load_run(folder, database).num_finished == 2
    assert value(database, "SELECT device FROM attempt") is None


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
    with pytest.raises(RunUnreadable, match="name of another run"):
        load_run(other, database)
    assert counts(database)["step"] == 6


def test_a_moved_run_is_the_same_run(folder: RunFolder, database: Path, tmp_path: Path) -> None:
    load_run(folder, database)
    (tmp_path / "new").mkdir()
    moved = RunFolder(folder.path.rename(tmp_path / "new" / folder.path.name))
    assert load_run(moved, database).unchanged


def test_a_loader_killed_in_the_middle_leaves_the_old_state(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = counts(database)
    runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:]], "a1")
    code = """
import os, pathlib, sys
import warehouse.load as load
from jobs.store import RunFolder
whole = load.replace_run
def killed(connection, run_id):
    whole(connection, run_id)
    os._exit(9)
load.replace_run = killed
load.load_run(RunFolder(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]))
"""
    killed = subprocess.run([sys.executable, "-c", code, str(folder.path), str(database)], check=False)
    assert killed.returncode == 9
    assert counts(database) == before
    assert load_run(folder, database).num_finished == 6


def contents(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, times of loading left out."""
    with reader(database) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
        return {
            table: connection.execute(
                f"SELECT COLUMNS(lambda c: c <> 'loaded_at') FROM {table} ORDER BY ALL"
            ).fetchall()
            for (table,) in tables
        }


def test_a_rebuilt_database_is_identical(folder: RunFolder, database: Path) -> None:
    """Loaded piece by piece while the run goes on, and from nothing at the end: the same rows in every table."""
    second = runs.create(folder.path.parent, replace(runs.SPEC, method="specreason", seed=1))
    load_run(folder, database)
    load_run(second, database)
    units = runs.planned(folder)
    runs.write_part(folder, [runs.speculative(unit, refused=True) for unit in units[2:4]], "a1")
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit) for unit in units[3:]], "a2")
    runs.write_part(second, [runs.vanilla(unit) for unit in runs.planned(second)])
    truncated(runs.write_part(second, [runs.vanilla(unit) for unit in runs.planned(second)], "a3"))
    runs.write_grades(folder, {unit.sample_id: "wrong" for unit in units}, "2")
    for run in (second, folder):
        load_run(run, database)
    before = contents(database)
    assert len(before) == 26
    assert all(before[table] for table in ("step", "timed_sample", "call_total", "rating_total", "option_total"))
    database.unlink()
    assert CliRunner().invoke(main, [str(folder.path.parent)]).exit_code == 1  # the damaged part
    assert contents(database) == before
    assert CliRunner().invoke(main, [str(folder.path.parent), "--rebuild"]).exit_code == 1
    assert contents(database) == before


def test_totals_are_the_sums_over_the_rows(folder: RunFolder, database: Path) -> None:
    runs.write_part(folder, [runs.speculative(unit, refused=True) for unit in runs.planned(folder)[2:5]], "a1")
    load_run(folder, database)
    with reader(database) as connection:
        for totals, sums in (
            ("SELECT sum(num_steps), sum(num_tokens), sum(num_verdicts), sum(num_refused) FROM step_total",
             "SELECT count(*), sum(num_tokens), count(verdict_kind), count(*) FILTER (NOT verdict_accepted) FROM step"),
            ("SELECT sum(num_calls), sum(output_tokens), sum(cached_tokens), "
             "sum(prompt_tokens), sum(end_seconds), sum(queued_seconds) FROM call_total",
             "SELECT count(*), sum(output_tokens), sum(cached_tokens), "
             "sum(prompt_tokens), sum(end_seconds), sum(queued_seconds) FROM call"),
            ("SELECT sum(num_verdicts), sum(num_accepted) FROM position_total",
             "SELECT count(*), count(*) FILTER (verdict_accepted) FROM step WHERE verdict_kind IS NOT NULL"),
            ("SELECT sum(num_verdicts) FROM rating_total",
             "SELECT count(*) FROM step JOIN grade USING (run_id, sample_id) WHERE verdict_kind IS NOT NULL"),
            ("SELECT sum(emitted_tokens), sum(spent_tokens), sum(critical_path_tokens) FROM sample_tokens",
             "SELECT (SELECT sum(num_tokens) FROM step), sum(output_tokens), sum(longest_output_tokens) FROM call"),
            ("SELECT count(*), sum(num_grades) FROM grade_total",
             "SELECT count(DISTINCT grader_version), count(*) FROM grade"),
            ("SELECT sum(num_chosen) FROM option_total", "SELECT count(*) FROM step WHERE verdict_kind = 'choice'"),
        ):  # fmt: skip
            assert connection.execute(totals).fetchall()[0] == pytest.approx(connection.execute(sums).fetchall()[0])


def test_readers_do_not_wait_for_a_writer_and_keep_what_they_opened(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    with runs.locked(database), reader(database, 0) as connection:
        assert connection.execute("SELECT count(*) FROM step").fetchall() == [(6,)]
    code = "import sys, pathlib; from warehouse.load import load_run; from jobs.store import RunFolder\n"
    code += "print(load_run(RunFolder(pathlib.Path(sys.argv[1])), pathlib.Path(sys.argv[2]), 0).num_finished)"
    with reader(database) as connection:  # a notebook that stays open keeps no loader out
        runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:]], "a1")
        command = [sys.executable, "-c", code, str(folder.path), str(database)]
        assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "6"
        assert connection.execute("SELECT count(*) FROM step").fetchall() == [(6,)]
    assert counts(database)["step"] == 18


def test_two_loaders_take_turns(folder: RunFolder, database: Path) -> None:
    """Of two at once, each with a run of its own, neither loses what the other wrote."""
    second = runs.create(folder.path.parent, replace(runs.SPEC, seed=1))
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit) for unit in runs.planned(folder)[2:]], "a1")
    command = [sys.executable, "-m", "warehouse.load", "--database", str(database)]
    both = [subprocess.Popen([*command, str(run.path)], stdout=subprocess.PIPE) for run in (folder, second)]
    for loader in both:
        loader.communicate()
    assert [loader.returncode for loader in both] == [0, 0]
    assert (counts(database)["run"], counts(database)["step"]) == (2, 18)


def test_an_unchanged_run_writes_nothing(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = database.stat()
    with runs.locked(database):  # not even the lock is needed
        assert load_run(folder, database, 0).unchanged
    assert (database.stat().st_ino, database.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_new_views_need_no_new_load(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    with writer(database) as connection:
        connection.execute("UPDATE schema_version SET views_hash = 'other'; DROP VIEW pass_at_1")
    assert load_run(folder, database).unchanged
    assert value(database, "SELECT num_correct FROM pass_at_1") == 2


PREVIOUS = Path(__file__).parent / "schema_1.sql"
"""The tables as the first version made them, as far as a load looks at them."""


def previous(database: Path, folders: dict[str, Path]) -> None:
    """A database of the previous schema version."""
    import duckdb

    with duckdb.connect(str(database)) as connection:
        connection.execute(PREVIOUS.read_text(encoding="utf-8"))
        connection.execute("INSERT INTO schema_version VALUES ('old', 'old')")
        for name, path in folders.items():
            connection.execute("INSERT INTO run (run_id, folder) VALUES (?, ?)", [name, str(path)])


def test_a_database_of_the_previous_schema_is_made_anew_with_one_line(folder: RunFolder, database: Path) -> None:
    second = runs.create(folder.path.parent / "elsewhere")
    renamed = RunFolder(second.path.rename(second.path.with_name("other")))
    previous(database, {folder.path.name: folder.path, "other": renamed.path})
    with pytest.raises(WarehouseOutdated, match=r"python -m warehouse\.load"), reader(database):
        pass
    result = CliRunner().invoke(main, [str(folder.path), "--database", str(database)])
    assert result.exit_code == 0, result.output
    assert result.stderr.count("\n") == 1
    assert "made anew with schema 2 from its 2 run folders" in result.stderr
    assert (counts(database)["run"], counts(database)["step"]) == (2, 6)


def test_a_load_at_the_end_of_a_run_migrates_too(folder: RunFolder, database: Path) -> None:
    previous(database, {folder.path.name: folder.path})
    assert load_run(folder, database).num_finished == 2


def test_runs_whose_folders_are_gone_are_not_dropped_silently(folder: RunFolder, database: Path) -> None:
    previous(database, {"gone": folder.path / "gone"})
    before = database.read_bytes()
    result = CliRunner().invoke(main, [str(folder.path), "--database", str(database)])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "(gone)" in result.stderr
    assert "--rebuild" in result.stderr
    assert database.read_bytes() == before
    assert CliRunner().invoke(main, [str(folder.path), "--database", str(database), "--rebuild"]).exit_code == 0


def test_a_failure_in_the_middle_leaves_no_trace(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = sorted(path.name for path in database.parent.iterdir())

    def fail() -> None:
        with writer(database) as connection:
            connection.execute("DELETE FROM step")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert sorted(path.name for path in database.parent.iterdir()) == before
    assert counts(database)["step"] == 6


def test_a_rebuild_gives_the_same_rows(folder: RunFolder, database: Path) -> None:
    second = runs.create(folder.path.parent, replace(runs.SPEC, seed=1))
    for run in (folder, second):
        load_run(run, database)
    before = counts(database)
    database.write_bytes(b"no database")
    result = CliRunner().invoke(main, [str(folder.path.parent), "--rebuild"])
    assert result.exit_code == 0, result.output
    assert counts(database) == before
    assert sorted(p.name for p in folder.path.parent.iterdir() if p.is_file()) == [
        f".{database.name}.lock",
        database.name,
    ]


def test_a_rebuild_waits_for_the_one_who_writes(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    before = database.read_bytes()
    with runs.locked(database):
        result = CliRunner().invoke(main, [str(folder.path), "--rebuild", "--wait", "0.2", "--database", str(database)])
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert "in use by another process" in result.stderr
    assert database.read_bytes() == before


def test_no_run_folder_is_a_usage_error(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, [str(tmp_path)])
    assert result.exit_code == 2
    assert "no run folder" in result.stderr
    assert list(tmp_path.iterdir()) == []


HOSTILE = ["'); DROP TABLE run; --", "[red]x[/red]", "\x1b[2J\x9b31m\x00", "\u202edesrever", 'a,"b"\n\r\tc', "𝛑 ∑"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_stored_as_it_is(tmp_path: Path, text: str) -> None:
    folder, database = runs.create(tmp_path, name="a[1]*?'b"), tmp_path / "w.duckdb"
    trace: Trace = runs.speculative(runs.planned(folder)[0], text=text)
    runs.write_part(folder, [trace], "p[0]'")
    report = load_run(folder, database)
    assert (report.skipped, report.num_finished) == ((), 1)
    assert value(database, "SELECT text FROM step WHERE step_index = 1") == text
