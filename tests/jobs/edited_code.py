"""Code that was edited since a run began, for tests; and what runs and commands say of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness import code_hash
from harness.code_hash import Code, running_code
from jobs.__main__ import main
from jobs.run import codes
from jobs.run.folder import RunFolder

Edit = Callable[[str], Code]


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Return a function that edits a file of the running code; only the hash sees it."""
    before = running_code()

    def edited(path: str) -> Code:
        now = Code({**before.digests, path: "edited"})
        for module in (codes, code_hash):
            monkeypatch.setattr(module, "running_code", lambda: now)
        return now

    return edited


def jobs(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def hashes(run: RunFolder) -> list[str]:
    return [record.code_hash for record in codes.read(run)]
