"""Files are replaced whole, and records are appended so that a torn line costs only itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.run import files
from jobs.run.files import append_record, read_records, write_atomically


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
