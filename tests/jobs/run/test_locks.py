"""Whether a lock is held is told by asking for it."""

from __future__ import annotations

from pathlib import Path

from jobs.run import files


def test_a_held_lock_is_told_from_a_free_one_and_asking_takes_neither(tmp_path: Path) -> None:
    held, free, missing = (tmp_path / name for name in ("held", "free", "missing"))
    free.touch()
    with files.Lock(held):
        assert [files.is_held(lock) for lock in (held, free, missing)] == [True, False, False]
    assert not files.is_held(held)
    assert not missing.exists()
