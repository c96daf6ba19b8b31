"""Methods of a user's own, for tests: the one of the guide, and a process that has loaded none yet."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.methods import plugins

GUIDE = Path(__file__).parent.parent / "docs" / "methods.md"


def confident() -> str:
    """The method of the guide, word for word."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    [code] = [str(block) for block in blocks if "(Method)" in block]
    return code


def write_method(folder: Path, text: str = "", name: str = "confident.py") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text or confident(), "utf-8")
    return path


def write_distribution(folder: Path) -> None:
    """What pip installs of a distribution: its metadata, and a package `made_up`."""
    info = folder / "made_up_rules-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: made-up-rules\nVersion: 1.2\n")
    (info / "top_level.txt").write_text("made_up\n")
    write_method(folder, "", "made_up/__init__.py")


@pytest.fixture
def no_methods(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has loaded no method of a user's; modules that are imported meanwhile are forgotten."""
    monkeypatch.setattr(plugins, "registered", {})
    monkeypatch.delenv("HARNESS_TRUSTED", raising=False)
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for module in set(sys.modules) - before:
        if module.partition(".")[0] in {"made_up", "own_rules"} or module.startswith("speculative_harness_method_"):
            del sys.modules[module]
