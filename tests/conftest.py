"""The marker `needs_tool` (requirements.py), the option `--half`, one thread for torch, no deadlines for hypothesis."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

from tests.requirements import is_ci, require_tool

# Threads of torch wait for each other by spinning. Where another process has the second core, those of a small model
# then take eight times the processor time of a single one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# On a busy machine any example may take longer than hypothesis's 200 ms. Under CI hypothesis has a profile of its own:
# no deadline either, and the same examples each time.
if not is_ci():
    settings.register_profile("no deadline", deadline=None)
    settings.load_profile("no deadline")

# Their tests take about as long as all the others, and none of them starts vLLM.
_RECORDS = ("grading", "warehouse")
_HALVES = ("engines", "records")
_IS_EMPTY = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--half`, with which two processes beside each other run every test once."""
    parser.addoption(
        "--half",
        choices=_HALVES,
        help="records: only the tests of grading/ and warehouse/ that start no vLLM; engines: only all others.",
    )


def half(folder: str, *, starts_vllm: bool) -> str:
    """Return the half that a test belongs to. `folder`: the one under tests/ that it is in, or its file there.

    All tests that start vLLM are in one half, because two engines at a time need twice the memory.
    """
    return "records" if folder in _RECORDS and not starts_vllm else "engines"


def _half_of(item: pytest.Item) -> str:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return half(folder, starts_vllm=item.get_closest_marker("vllm") is not None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of the other half, where one is asked for."""
    if asked := config.getoption("--half"):
        others = [item for item in items if _half_of(item) != asked]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if _half_of(item) == asked]
        config.stash[_IS_EMPTY] = bool(others) and not items


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let a half succeed that none of the tests asked for is in."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash.get(_IS_EMPTY, False):
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools are missing before its fixtures are set up; under CI it fails."""
    for marker in item.iter_markers("needs_tool"):
        for name in marker.args:
            require_tool(name)
