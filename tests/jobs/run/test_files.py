"""Files are replaced whole, announced before they have their names, and read so that damage costs only itself."""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.chain.chain_scores import RewardModel
from harness.engines.scripted import ScriptedEngine
from jobs.finished.grading import finish
from jobs.finished.scoring import score
from jobs.run import derived, files, trace_files
from jobs.run.endings import compact, num_unfinished
from jobs.run.files import RunDamaged, append_record, read_records, write_atomically
from jobs.run.trace_files import counting_records
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_ids, finished_run, plan, planned_ids


def test_a_file_is_replaced_whole_and_a_write_that_fails_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]

    def fail(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"newest")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content + b'{"number": 1, "na',  # torn
        lambda content: content + b'\n{"number": 1}\n',  # without its checksum
        lambda content: 2 * content,  # copied
        lambda content: content + content.replace(b'"number": 0', b'"number": 1'),  # changed
    ],
)
def test_records_are_read_in_order_and_what_is_none_costs_only_itself(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "records.jsonl"
    assert list(read_records(path)) == []
    append_record(path, {"number": 0})
    path.write_bytes(change(path.read_bytes()))
    append_record(path, {"number": 2})
    assert list(read_records(path)) == [{"number": 0}, {"number": 2}]


def test_a_held_lock_is_told_from_a_free_one_and_asking_takes_neither(tmp_path: Path) -> None:
    held, free, missing = (tmp_path / name for name in ("held", "free", "missing"))
    free.touch()
    with files.Lock(held):
        assert [files.is_held(lock) for lock in (held, free, missing)] == [True, False, False]
    assert not files.is_held(held)
    assert not missing.exists()


class Killed(BaseException):
    """Ends the process where it stands."""


def die(path: Path, content: bytes) -> None:
    """What replaces the writing of a file whose writer is killed behind its announcement."""
    raise Killed


@pytest.mark.usefixtures("journals_stay")
def test_a_trace_file_that_was_only_announced_is_written_again_from_its_journal(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1)
    with pytest.MonkeyPatch.context() as dies:
        dies.setattr("jobs.run.events.write_atomically", die)
        with pytest.raises(Killed):
            compact(run)
    assert (len(run.journals()), run.trace_files()) == (1, [])
    assert num_unfinished(run) == 0
    assert compact(run) == 8
    assert (run.journals(), len(run.trace_files())) == ([], 1)
    assert finished_ids(run) == planned_ids(run)


def test_a_file_whose_next_content_was_only_announced_counts_as_it_is(tmp_path: Path) -> None:
    run = plan(tmp_path, samples=1)
    path = derived.write(run, "scores", "s", [])
    before = path.read_bytes()
    row = {"sample_id": "a", "step_index": 0, "candidate_index": None, "scorer": "s", "score": 1.0, "missing": None}
    with pytest.MonkeyPatch.context() as dies:
        dies.setattr("jobs.run.events.write_atomically", die)
        with pytest.raises(Killed):
            derived.write(run, "scores", "s", [row])
    assert path.read_bytes() == before
    assert trace_files.read_rows(path) == []
    derived.write(run, "scores", "s", [row])
    assert trace_files.read_rows(path) == [row]


def test_a_file_whose_announcement_is_damaged_is_named_and_its_samples_are_run_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = finished_run(tmp_path, samples=1)
    [path] = run.trace_files()
    lines = run.events_path.read_bytes().splitlines(keepends=True)
    [number] = [number for number, line in enumerate(lines) if path.name.encode() in line]
    lines[number] = lines[number].replace(b"traces/", b"traceS/")
    run.events_path.write_bytes(b"".join(lines))
    assert num_unfinished(run) == 8
    assert str(path) in caplog.text
    assert f"(line {number + 1} " in caplog.text
    run_shard(str(run.path), 0)
    assert finish(run, workers=1) == 8


def test_events_of_another_run_are_not_taken_for_those_of_this(tmp_path: Path) -> None:
    run, other = plan(tmp_path), plan(tmp_path, samples=2)
    other.append("retries", samples=["a"])
    with run.events_path.open("ab") as out:
        out.write(other.events_path.read_bytes().splitlines(keepends=True)[-1])
    assert run.events("retries") == []


def test_a_link_in_place_of_the_events_is_not_followed(tmp_path: Path) -> None:
    run = plan(tmp_path)
    other = tmp_path / "other"
    other.write_bytes(run.events_path.read_bytes())
    before = other.read_bytes()
    run.events_path.unlink()
    run.events_path.symlink_to(other)
    with pytest.raises(ValueError, match="events"):
        run.append("retries", samples=["a"])
    assert other.read_bytes() == before


@pytest.mark.parametrize(("event", "field"), [("retries", "samples"), ("timing", "samples"), ("file", "file")])
def test_an_event_without_its_field_is_named(tmp_path: Path, event: str, field: str) -> None:
    run = plan(tmp_path)
    run.append(event)
    with pytest.raises(RunDamaged, match=f"an event {event} has no {field}"):
        run.events(event)


def test_a_process_that_may_start_no_thread_does_not_call_a_file_damaged(tmp_path: Path) -> None:
    """Damaged files are moved aside; a thread fails here because its stack alone is larger than the process may be."""
    path = plan(tmp_path).trace_files_dir / "p.parquet"
    trace_files.write_table(path, trace_files.GRADES, [], {})
    stack, memory = 1 << 40, 1 << 36
    program = "import sys, pathlib; from jobs.run.trace_files import read_rows; read_rows(pathlib.Path(sys.argv[1]))"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (stack, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        preexec_fn=limited,
        check=False,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    assert f"MemoryError: {path} cannot be read" in done.stderr


def change(file: Path, number: int, **fields: Any) -> str:
    """Change one row and return the id of its sample."""
    rows = trace_files.read_rows(file)
    rows[number].update(fields)
    trace_files.write_table(file, trace_files.TRACES, rows, trace_files.read_metadata(file))
    return str(rows[number]["sample_id"])


def test_the_first_record_without_an_error_counts_else_the_first(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1, shards=2)
    first, second = run.trace_files()
    later = trace_files.read_rows(second)
    failed = change(first, 0, stop_reason="error", error="early")
    trace_files.write_table(second, trace_files.TRACES, [*later, {**later[0], "sample_id": failed, "seed": 5}])
    hopeless = change(first, 1, stop_reason="error", error="both times")
    rows = {row["sample_id"]: row for row in counting_records(run, ["seed", "error"])}
    assert len(rows) == 8
    assert (rows[failed]["seed"], rows[failed]["error"]) == (5, None)
    assert rows[hopeless]["error"] == "both times"
    assert {row["sample_id"] for row in counting_records(run, [], failed=False)} == rows.keys() - {hopeless}


def test_a_damaged_file_costs_its_samples_and_nothing_else(tmp_path: Path) -> None:
    run = finished_run(tmp_path, samples=1, shards=2)
    first, second = run.trace_files()
    readable_ids = {row["sample_id"] for row in trace_files.read_rows(second)}
    first.write_bytes(first.read_bytes()[:-100])
    assert {row["sample_id"] for row in counting_records(run, [])} == readable_ids
    model = RewardModel(ScriptedEngine(lambda prompt, sampling: [""], lambda prompt, labels: [0.3, 0.1]))
    asyncio.run(score(run, model, "toy@1/1"))
    [scored] = run.derived("scores")
    assert {row["sample_id"] for row in trace_files.read_rows(scored)} == readable_ids
