"""Which locks are held, as the kernel lists them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.run import locks


def test_a_held_lock_is_told_by_its_inode_and_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, free, mounted = tmp_path / "held", tmp_path / "free", locks._devices()
    free.touch()
    with locks.Lock(held):
        assert [locks.is_held(path) for path in (held, free, tmp_path / "absent")] == [True, False, False]
        assert locks.holder_here(held) in (os.getpid(), None)
        monkeypatch.setattr(locks, "_devices", lambda: dict.fromkeys(mounted, "ff:ff"))
        assert locks.holder_here(held) is None, "a file of the same number in another filesystem"
    assert not locks.is_held(held)
