"""Files of a run folder that are damaged, foreign, edited or of another format: one line each, and the rest goes on."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.finished.grading import finish
from jobs.run import derived, trace_files
from jobs.run.endings import num_unfinished
from jobs.run.events import write_announced
from jobs.run.files import FileDamaged, RunDamaged, with_checksum
from jobs.run.folder import RunFolder, problems_content
from jobs.work.worker import run_shard
from tests.jobs.run.corpus import KINDS, corpus
from tests.jobs.runs import finished_ids, finished_run, jobs, plan, planned_ids
from tools.chaos.fuzz import Fuzz
from warehouse.loading.runs import load_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path, samples=2, shards=2)


def contents(run: RunFolder) -> dict[Path, bytes]:
    files = (path for path in run.path.rglob("*") if path.is_file() and path.parent != run.locks_dir)
    return {path: path.read_bytes() for path in files}


def flipped(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


@pytest.mark.parametrize("harm", ["flipped", "removed"])
def test_a_damaged_or_lost_trace_file_costs_its_samples_until_they_are_run_again(
    run: RunFolder, tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, database = run.trace_files()[0], tmp_path / "w.duckdb"
    if harm == "flipped":
        flipped(path, 8 * 2000)
    else:
        path.unlink()
        path.symlink_to("elsewhere")
        assert [file.name for file in load_run(run, database).skipped] == [f"traces/{path.name}"]
        path.unlink()
        assert run.lost_trace_files() == [path]
    assert [file.name for file in load_run(run, database).skipped] == [f"traces/{path.name}"]
    assert num_unfinished(run) == 8
    assert str(path) in caplog.text
    run_shard(str(run.path), 0)
    assert finished_ids(run) == planned_ids(run)
    report = load_run(run, database)
    assert (report.num_finished, report.skipped == ()) == (16, harm == "removed")


def test_files_that_are_not_of_this_run_are_named_and_not_counted(
    run: RunFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Runs that differ in their engines alone have the same sample ids, but not the same results."""
    own = run.trace_files()[0]
    other = finished_run(tmp_path, samples=2, shards=2, dtype="float16")
    assert planned_ids(other) == planned_ids(run)
    of_another = run.trace_files_dir / other.trace_files()[0].name
    foreign, text, copy = (run.trace_files_dir / f"{name}.parquet" for name in ("foreign", "text", "copy"))
    of_another.write_bytes(other.trace_files()[0].read_bytes())
    pq.write_table(pa.table({"a": [1]}), foreign)
    text.write_text("no Parquet")
    copy.write_bytes(own.read_bytes())
    assert num_unfinished(run) == 0
    assert finish(run, workers=1) == 16
    report = load_run(run, tmp_path / "w.duckdb")
    strangers = [foreign, text, copy, of_another]
    assert sorted(file.name for file in report.skipped) == sorted(f"traces/{path.name}" for path in strangers)
    assert (report.num_finished, report.num_graded) == (16, 16)
    for path in strangers:
        assert len({line for line in caplog.messages if line.startswith(str(path))}) == 1
    flipped(own, 8 * 2000)
    assert num_unfinished(run) == 8, "the copy and the file of another run stand for none"
    copy.rename(own)
    assert finished_ids(run) == planned_ids(run)


@pytest.mark.usefixtures("journals_stay")
def test_lines_that_are_no_events_of_a_journal_are_named_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = finished_run(tmp_path, shards=2)
    journal, other = run.journals()
    lines, others = (path.read_bytes().splitlines(keepends=True) for path in (journal, other))
    strangers = [b"[1]\n", b'{"a": 1}\n', b'{"event": "surprise"}\n', b'{"event": "start"}\n', b"5\n", b"\xff\n"]
    journal.write_bytes(b"".join([lines[0], *strangers, *lines[1:], *others]))
    other.unlink()
    assert num_unfinished(run) == 12
    assert finish(run, workers=1) == 12
    [line] = {line for line in caplog.messages if str(journal) in line}
    num_lines = len(lines) + len(strangers) + len(others)
    assert {str(len(strangers) + len(others)), str(num_lines), "2;"} <= set(line.split())
    assert journal.exists(), "what could not be read is not removed"


@pytest.mark.usefixtures("journals_stay")
def test_a_journal_with_an_unknown_field_keeps_its_content_and_its_samples_are_run_again(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    [journal] = run.journals()
    events = [orjson.loads(line) for line in journal.read_bytes().splitlines()]
    for event in events:
        del event["crc32"]
        if event["event"] == "start":
            event["trace"]["mood"] = "good"
    journal.write_bytes(b"".join(with_checksum(orjson.dumps(event), journal.stem) for event in events))
    before = journal.read_bytes()
    run_shard(str(run.path), 0)
    assert finish(run, workers=1) == 24
    assert journal.read_bytes() == before


def test_a_folder_of_another_format_is_neither_read_nor_written(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(run)
    monkeypatch.setattr("jobs.run.files.FORMAT", 7)
    for command in ("worker", "status", "finalize", "retry-failed"):
        result = jobs(command, run.path, *(["0"] if command == "worker" else []))
        assert result.exit_code == 1
        assert len(result.stderr.splitlines()) == 1
    assert contents(run) == before


@pytest.mark.usefixtures("journals_stay")
def test_a_journal_of_another_format_keeps_its_samples_from_being_run_again(tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    [journal] = run.journals()
    attempt, *lines = journal.read_bytes().splitlines(keepends=True)
    event = {**orjson.loads(attempt), "format": 4}
    del event["crc32"]
    journal.write_bytes(b"".join([with_checksum(orjson.dumps(event), journal.stem), *lines]))
    before = sorted(path.name for path in run.path.rglob("*"))
    for command in (["worker", run.path, "0"], ["finalize", run.path]):
        result = jobs(*command)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert str(journal) in result.stderr
    assert set(before) <= {path.name for path in run.path.rglob("*")}
    assert run.trace_files() == []


def test_damaged_grades_are_named_and_made_again(run: RunFolder, caplog: pytest.LogCaptureFixture) -> None:
    finish(run, workers=1)
    [grades] = run.derived("grades")
    whole = grades.read_bytes()
    flipped(grades, 8 * 500)
    assert finish(run, workers=1) == 16
    assert str(grades) in caplog.text
    assert grades.read_bytes() != whole, "they say when they were made"


def test_a_renamed_folder_goes_on_where_it_was(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=2, shards=2)
    run_shard(str(run.path), 0)
    renamed = RunFolder(run.path.rename(tmp_path / "first name"))
    run_shard(str(renamed.path), 1)
    again = RunFolder(renamed.path.rename(tmp_path / "second name"))
    assert num_unfinished(again) == 0
    assert finish(again, workers=1) == 16


@pytest.mark.parametrize("name", ["spec.json", "locks/shard-1.lock", "traces/late.parquet"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    run = plan(tmp_path, samples=2, shards=2)
    run_shard(str(run.path), 0)
    (run.path / name).unlink(missing_ok=True)
    os.mkfifo(run.path / name)
    assert jobs("status", run.path).exit_code == (1 if name == "spec.json" else 0)


def test_a_specification_and_problems_that_were_changed_are_named(tmp_path: Path) -> None:
    run, other = plan(tmp_path, samples=1), plan(tmp_path / "other", samples=1)
    first, *others = run.problems()
    write_announced(run.problems_path, problems_content([replace(first, id="other"), *others]))
    with pytest.raises(RunDamaged, match="lacks problems of the plan"):
        run.problems()
    run.problems_path.write_bytes(problems_content(other.problems()[:4]))
    with pytest.raises(RunDamaged, match=r"problems\.parquet is damaged: its content does not match its digest"):
        run.problems()
    record = json.loads(run.spec_path.read_text(encoding="utf-8"))
    run.spec_path.write_text(json.dumps(record | {"temperature": 0.7}), encoding="utf-8")
    with pytest.raises(RunDamaged, match=r"spec\.json was changed after the run was created: restore it, or"):
        run.spec()


def test_every_flipped_bit_of_a_trace_file_is_named(run: RunFolder) -> None:
    path, random = run.trace_files()[0], Random(20)
    bits = random.sample(range(8 * path.stat().st_size), 40)
    for bit in bits:
        flipped(path, bit)
        with pytest.raises(FileDamaged, match=path.name), trace_files.opened(path):
            pass
        flipped(path, bit)
    with trace_files.opened(path):
        pass


_ACCEPTABLE = {"named", "harmless"}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Fuzz:
    return Fuzz(corpus(tmp_path_factory.mktemp("fuzz")), seed=20)


@pytest.mark.parametrize("kind", KINDS)
def test_a_mutated_file_is_named_or_read_as_it_was(fuzzed: Fuzz, kind: str) -> None:
    assert {fuzzed.once(kind) for _ in range(30)} <= _ACCEPTABLE, fuzzed.failures


def test_the_warehouse_names_a_mutated_file_or_loads_what_it_was(fuzzed: Fuzz) -> None:
    assert {outcome for _, outcome in fuzzed.load(8)} <= _ACCEPTABLE, fuzzed.failures


PAGE = (Path(__file__).parents[3] / "docs" / "formats.md").read_text("utf-8")
BESIDE = ("logs", "locks")
"""Folders of a run that are no kind of its files."""


def first_cells(heading: str) -> list[str]:
    """The code in the first column of the table of the page that has this heading, row by row."""
    rows = PAGE.partition(f"| {heading} |")[2].partition("\n\n")[0].splitlines()[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]


def test_the_page_names_every_kind_of_file_and_of_event(tmp_path: Path) -> None:
    run = corpus(tmp_path).run
    patterns = [re.sub("[A-Z]{4,}", "*", name) for name in first_cells("file")]
    files = [path.relative_to(run.path) for path in run.path.rglob("*") if path.is_file()]
    names = [path.as_posix() for path in files if path.parts[0] not in BESIDE]
    assert not [name for name in names if not any(fnmatchcase(name, pattern) for pattern in patterns)]
    assert set(first_cells("kind of a derived file")) == set(derived.SCHEMAS)
    lines = len(run.events_path.read_bytes().splitlines())
    assert lines == sum(len(run.events(kind)) for kind in first_cells("kind of event")), "no other kind of event"
