"""Which locks are held, as the kernel lists them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.run import locks
from tests.requirements import skip_by_design


def test_a_held_lock_is_told_by_its_inode_and_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held, free = tmp_path / "held", tmp_path / "free"
    free.touch()
    with locks.Lock(held):
        if not locks.held_here([held]):
            skip_by_design("this system does not list its locks")
        assert locks.held_here([held, free]) == {held}
        mounted = dict.fromkeys(locks._devices(), "ff:ff")
        monkeypatch.setattr(locks, "_devices", lambda: mounted)  # a file of the same number in another filesystem
        assert locks.held_here([held]) == set()
