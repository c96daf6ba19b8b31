"""Files are replaced whole, and records are appended so that a torn line costs only itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.run.files import WrongFormat, append_record, read_records, write_atomically


def test_a_file_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    write_atomically(path, b"old")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(handle: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"


def test_records_are_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    assert list(read_records(path)) == []
    for number in range(3):
        append_record(path, {"number": number})
    assert list(read_records(path)) == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_a_record_that_was_copied_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, {"granted_at": 1.0, "samples": ["a"]})
    path.write_bytes(2 * path.read_bytes())
    append_record(path, {"granted_at": 2.0, "samples": ["a"]})
    assert [record["granted_at"] for record in read_records(path)] == [1.0, 2.0]


def test_a_record_without_its_checksum_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, {"number": 0})
    path.write_bytes(path.read_bytes() + b'\n{"number": 1}\n')
    assert list(read_records(path)) == [{"number": 0}]


def test_a_file_of_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, {"number": 0})
    monkeypatch.setattr("jobs.run.files.FORMAT", 7)
    with pytest.raises(
        WrongFormat, match=r"records\.jsonl has format 3, and this version of the harness reads format 7"
    ):
        list(read_records(path))


def test_a_torn_record_costs_only_itself(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    append_record(path, {"number": 0})
    path.write_bytes(path.read_bytes() + b'{"number": 1, "na')
    append_record(path, {"number": 2})
    assert list(read_records(path)) == [{"number": 0}, {"number": 2}]
