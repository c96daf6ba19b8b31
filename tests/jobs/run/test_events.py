"""What has its final name was announced before: whoever is killed in between has changed nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.finished.grading import finish
from jobs.run import derived, trace_files
from jobs.run.endings import by_shard, compact, read_endings
from jobs.run.files import RunDamaged
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_ids, finished_run, plan, planned_ids


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
    assert by_shard(run, read_endings(run)).num_unfinished == 0
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
    assert by_shard(run, read_endings(run)).num_unfinished == 8
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
