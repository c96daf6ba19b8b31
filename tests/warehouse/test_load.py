"""Loading: everything once, whatever is repeated, damaged, moved or hostile, and the same when it is rebuilt."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.trace import StopReason
from jobs.finished.grading import finish
from jobs.run import retries, trace_files
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.run.spec import Unit
from jobs.run.trace_files import FAILED, counting_records
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from tests.warehouse import runs
from tests.warehouse.conftest import counts, value
from warehouse.database import WarehouseBusy, reader, rows, writer
from warehouse.load import main
from warehouse.loading.convert import Row, utc
from warehouse.loading.runs import LoadReport, RunUnreadable, load_into, load_run
from warehouse.loading.staging import stage_rows

HOSTILE = ["'); DROP TABLE run; --", "[red]x[/red]", "\x1b[2J\x9b31m\x00", "\u202edesrever", 'a,"b"\n\r\tc', "𝛑 ∑"]


def test_everything_is_loaded_and_the_rest_of_the_plan_stands_beside_it(folder: RunFolder, database: Path) -> None:
    report = load_run(folder, database)
    assert report == LoadReport(folder.path.name, False, 6, 2, 2, 6, 4, 8, 0, 0, (), report.seconds)
    expected = {"run": 1, "attempt": 1, "problem": 3, "sample": 6, "step": 6, "candidate": 4, "call": 8, "grade": 2}
    assert counts(database) == {**expected, "loaded_file": 5}


def test_a_repaired_part_takes_its_place(folder: RunFolder, database: Path) -> None:
    """Same name, same samples, another content: the rows are replaced, keys and all."""
    load_run(folder, database)
    runs.write_part(folder, [runs.speculative(unit, latency=99.0) for unit in runs.planned(folder)[:2]], "a0")
    load_run(folder, database)
    latencies = value(database, "SELECT list(DISTINCT latency_seconds) FROM sample WHERE stop_reason IS NOT NULL")
    assert latencies == [99.0]
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
    columns = "sample_id, stop_reason, latency_seconds, attempt_id, verdict, graded"
    with reader(database) as connection:
        sql = f"SELECT {columns} FROM sample JOIN sample_grade USING (run_id, sample_id, stop_reason)"
        of = {row[0]: row[1:] for row in connection.execute(sql).fetchall()}
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


def forged(latency: float | None = 1.0, **attempt: object) -> Callable[[Path], None]:
    """Announced content with a value that no worker writes."""

    def damage(path: Path) -> None:
        rows, metadata = trace_files.read_rows(path), trace_files.read_metadata(path)
        rows = [{**rows[0], "latency_seconds": latency}, *rows]  # statistics omit NaN, but not of the other row
        metadata["attempt"] = (
            "[" * 200_000 if attempt.get("nested") else json.dumps(json.loads(metadata["attempt"]) | attempt)
        )
        trace_files.write_table(path, trace_files.TRACES, rows, metadata)

    return damage


@pytest.mark.parametrize(
    "damages",
    [
        [runs.truncated, overwritten, emptied],
        [of_other_columns],
        [forged(math.nan), forged(1e300), forged(None), forged(-1.0)],
        [forged(started_at=math.inf), forged(started_at=1e20), forged(nested=True)],
    ],
)
def test_a_damaged_part_is_named_and_the_rest_is_loaded_and_what_is_mended_too(
    folder: RunFolder, database: Path, damages: Sequence[Callable[[Path], None]]
) -> None:
    whole: dict[Path, bytes] = {}
    for number, (unit, damage) in enumerate(zip(runs.planned(folder)[2:], damages, strict=False), 1):
        path = runs.write_part(folder, [runs.speculative(unit)], f"a{number}")
        whole[path] = path.read_bytes()
        damage(path)
    names = [f"traces/{path.name}" for path in whole]
    for is_again in (False, True):
        report = load_run(folder, database)
        assert [file.name for file in report.skipped] == names
        assert all(file.reason and "\n" not in file.reason for file in report.skipped)
        assert (report.unchanged, report.num_finished, report.num_samples) == (is_again, 2, 6)
    result = CliRunner().invoke(main, [str(folder.path), "--database", str(database)])
    assert (result.exit_code, all(name in result.stderr for name in names)) == (1, True)
    for path, content in whole.items():
        path.write_bytes(content)
    report = load_run(folder, database)
    assert (report.num_finished, report.skipped) == (2 + len(whole), ())


def test_grades_with_an_unknown_verdict_are_left_out(folder: RunFolder, database: Path) -> None:
    runs.write_grades(folder, {runs.planned(folder)[0].sample_id: "splendid"}, "2")
    report = load_run(folder, database)
    assert [(f.name, "splendid" in f.reason) for f in report.skipped] == [("derived/grades-2.parquet", True)]
    assert report.num_graded == 2


def piped(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


@pytest.mark.parametrize("harm", [Path.mkdir, piped, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_not_a_regular_file_is_named_and_the_rest_is_loaded(
    folder: RunFolder, database: Path, harm: Callable[[Path], None]
) -> None:
    names = ["derived/grades-9.parquet", "traces/x.parquet"]
    for name in names:
        harm(folder.path / name)
    report = load_run(folder, database)
    assert ([file.name for file in report.skipped], report.num_finished) == (names, 2)


@pytest.mark.parametrize(
    "harm",
    [
        lambda run: emptied(run.problems_path),
        lambda run: piped(run.spec_path),
        lambda run: runs.write_part(run, [runs.vanilla(runs.planned(run)[0])], engines=[1]),
    ],
)
def test_an_unreadable_plan_does_not_stop_other_runs(
    folder: RunFolder, database: Path, harm: Callable[[RunFolder], object]
) -> None:
    broken = runs.create(folder.path.parent, runs.VANILLA)
    harm(broken)
    with pytest.raises(RunUnreadable, match=broken.path.name):
        load_run(broken, database)
    result = CliRunner().invoke(main, [str(folder.path.parent)])
    assert (result.exit_code, broken.path.name in result.stderr) == (1, True)
    assert counts(database)["run"] == 1


def test_a_run_of_the_same_name_elsewhere_is_refused_and_a_moved_one_is_the_same(
    folder: RunFolder, database: Path, tmp_path: Path
) -> None:
    load_run(folder, database)
    with pytest.raises(RunUnreadable, match=str(folder.path)):
        load_run(runs.create(tmp_path / "elsewhere"), database)
    assert counts(database)["step"] == 6
    (tmp_path / "new").mkdir()
    assert load_run(RunFolder(folder.path.rename(tmp_path / "new" / folder.path.name)), database).unchanged


def test_finished_samples_that_are_still_in_journals_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    monkeypatch.setattr("jobs.run.endings.compact_own", lambda run, path: None)  # as where the worker is killed
    run_shard(str(run.path), 1)
    for _ in ("new", "unchanged"):
        [*_, line] = CliRunner().invoke(main, [str(run.path)]).output.splitlines()
        assert (line.split()[0], line.endswith(f"  python -m jobs finalize {run.path}")) == ("12", True)
    finish(run)
    assert "finalize" not in CliRunner().invoke(main, [str(run.path)]).output


def test_hostile_text_is_stored_as_it_is(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path, name="a[1]*?b"), tmp_path / "w.duckdb"
    texts = dict(zip(runs.planned(folder), HOSTILE, strict=True))
    runs.write_part(folder, [runs.speculative(unit, text=text) for unit, text in texts.items()], "p[0]'")
    report = load_run(folder, database)
    assert (report.skipped, report.num_finished) == ((), 6)
    with reader(database) as connection:
        stored = dict(connection.execute("SELECT sample_id, text FROM step WHERE step_index = 1").fetchall())
    assert stored == {unit.sample_id: text for unit, text in texts.items()}


def test_a_plan_with_hostile_text_is_staged_as_it_is(tmp_path: Path) -> None:
    """Every type of a small table, and what a row lacks is NULL; a column that the table lacks is refused."""
    problems: list[Row] = [{"text": text, "choices": [text, "b"], "tolerance": 0.1} for text in HOSTILE]
    run: Row = {"params": '{"a": "é"}', "seed": 2**63 - 1, "limited": True, "loaded_at": utc(1_767_323_045.678901)}
    with writer(tmp_path / "w.duckdb") as connection:
        stage_rows(connection, "problem", problems)
        staged = rows(connection, "SELECT text, choices, tolerance, level FROM staged_problem")
        assert staged == [problem | {"level": None} for problem in problems]
        stage_rows(connection, "run", [run])
        [staged_run] = rows(connection, "FROM staged_run")
        assert run.items() <= staged_run.items()
        with pytest.raises(ValueError, match="typo"):
            stage_rows(connection, "problem", [{"typo": 1}])


@pytest.fixture
def link(database: Path, tmp_path: Path) -> Path:
    """Another folder's link to the database."""
    link = tmp_path / "elsewhere" / "link.duckdb"
    link.parent.mkdir()
    link.symlink_to(database)
    return link


def test_a_link_to_a_database_has_the_lock_of_the_database(folder: RunFolder, database: Path, link: Path) -> None:
    load_run(folder, database)
    with writer(database), pytest.raises(WarehouseBusy), writer(link, 0.1):
        pass
    with writer(link), pytest.raises(WarehouseBusy), writer(database, 0.1):
        pass


def test_who_loads_through_a_link_loses_nothing_of_another_load(folder: RunFolder, database: Path, link: Path) -> None:
    second = runs.create(folder.path.parent, replace(runs.SPEC, seed=1))
    load_run(folder, link)
    load_run(second, database)
    assert link.is_symlink()
    assert counts(link)["run"] == 2
    assert list(link.parent.iterdir()) == [link]


def test_a_renamed_run_is_one_run(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    renamed = RunFolder(folder.path.rename(folder.path.with_name("baseline")))
    report = load_run(renamed, database)
    assert (report.former_names, report.num_finished) == ((folder.path.name,), 2)
    assert (counts(database)["run"], counts(database)["step"]) == (1, 6)
    assert load_run(renamed, database).unchanged


def test_two_copies_of_a_run_are_two_and_are_named(folder: RunFolder, database: Path) -> None:
    load_run(folder, database)
    shutil.copytree(folder.path, folder.path.with_name("copy"))
    result = CliRunner().invoke(main, [str(folder.path.parent), "--database", str(database)])
    [line] = [line for line in result.stderr.splitlines() if line.startswith("WARNING: copy ")]
    assert (result.exit_code, folder.path.name in line) == (0, True)
    assert counts(database)["run"] == 2


def test_a_run_of_the_same_specification_is_not_taken_for_a_renamed_one(folder: RunFolder, database: Path) -> None:
    """Its folder is gone, but other attempts made it: it stays."""
    load_run(folder, database)
    shutil.rmtree(folder.path)
    again = runs.create(folder.path.parent, name="again")
    runs.write_part(again, [runs.speculative(runs.planned(again)[0])], "b0")
    assert load_run(again, database).former_names == ()
    assert counts(database)["run"] == 2


def contents(database: Path) -> dict[str, list[tuple[object, ...]]]:
    """Every row of every table, times of loading left out."""
    with reader(database) as connection:
        tables = connection.execute("SELECT table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
        of_table = "SELECT COLUMNS(lambda c: c <> 'loaded_at') FROM {} ORDER BY ALL"
        return {table: connection.execute(of_table.format(table)).fetchall() for (table,) in tables}


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
    runs.truncated(runs.write_part(second, [runs.vanilla(unit) for unit in runs.planned(second)], "a3"))
    runs.write_grades(folder, {unit.sample_id: "wrong" for unit in units}, "2")
    for run in (second, folder):
        load_run(run, database)
    before = contents(database)
    assert len(before) == 39
    assert all(before[table] for table in ("step", "timed_sample", "call_total", "rating_total", "draft_selection"))
    database.unlink()
    assert CliRunner().invoke(main, [str(folder.path.parent)]).exit_code == 1  # the damaged part
    assert contents(database) == before
    assert CliRunner().invoke(main, [str(folder.path.parent), "--rebuild"]).exit_code == 1
    assert contents(database) == before


NUM_SAMPLES = 6
REASONS: list[StopReason] = ["answered", "budget", "error"]
TRACE_FILES = st.lists(
    st.tuples(st.dictionaries(st.integers(0, NUM_SAMPLES - 1), st.sampled_from(REASONS)), st.booleans()), max_size=4
)
"""Of each trace file: the stop reasons of the samples in it, and whether the file is damaged."""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=TRACE_FILES, num_grants=st.integers(0, 2))
def test_all_three_agree_on_retries_and_damaged_files(
    tmp_path: Path, contents: list[tuple[dict[int, StopReason], bool]], num_grants: int
) -> None:
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    folder = runs.create(tmp_path / "runs")
    units = runs.planned(folder)
    expected: dict[str, tuple[str, str]] = {}
    num_failures: dict[str, int] = {}
    for number, (reasons, is_damaged) in enumerate(contents):
        traces = [runs.ended(runs.vanilla(units[index]), reason) for index, reason in reasons.items()]
        path = runs.write_part(folder, traces, f"a{number}")
        if is_damaged:
            runs.truncated(path)
            continue
        for trace in traces:
            assert trace.stop_reason is not None
            num_failures[trace.sample_id] = num_failures.get(trace.sample_id, 0) + (trace.stop_reason == FAILED)
            counting = expected.setdefault(trace.sample_id, (f"a{number}", trace.stop_reason))
            if counting[1] == FAILED != trace.stop_reason:
                expected[trace.sample_id] = (f"a{number}", trace.stop_reason)
    failed = {sample for sample, (_, reason) in expected.items() if reason == FAILED}

    assert {row["sample_id"]: row["stop_reason"] for row in counting_records(folder, [])} == {
        sample: reason for sample, (_, reason) in expected.items()
    }
    assert {row["sample_id"] for row in counting_records(folder, [], failed=False)} == expected.keys() - failed
    endings = read_endings(folder)
    assert set(endings.finished.to_pylist()) == expected.keys()
    assert set(endings.failed.to_pylist()) == failed
    with writer(tmp_path / "warehouse.duckdb") as connection:
        load_into(connection, folder)
        sql = "SELECT sample_id, attempt_id, stop_reason FROM sample WHERE stop_reason IS NOT NULL"
        loaded = {sample: (attempt, reason) for sample, attempt, reason in connection.execute(sql).fetchall()}
    assert loaded == expected

    for _ in range(num_grants):
        retries.grant(folder, read_endings(folder).failed.to_pylist(), NUM_SAMPLES)
    to_retry = {sample for sample in failed if num_failures[sample] <= num_grants}
    assert set(read_endings(folder).failed.to_pylist()) == failed - to_retry
    assert {row["sample_id"] for row in counting_records(folder, [])} == expected.keys()
