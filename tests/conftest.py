"""The marker `needs_tool`, see requirements.py, no deadlines for hypothesis's examples, and what runs side by side."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.requirements import is_ci, require_tool

# On a busy machine any example may take longer than hypothesis's 200 ms. Under CI hypothesis has a profile of its own:
# no deadline either, and the same examples each time.
if not is_ci():
    settings.register_profile("no deadline", deadline=None)
    settings.load_profile("no deadline")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools are missing before its fixtures are set up; under CI it fails."""
    for marker in item.iter_markers("needs_tool"):
        for name in marker.args:
            require_tool(name)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests in one process, because they share fixtures, and all files that start vLLM in one as well.

    These come first, because they take longest together. Only `pytest --dist loadgroup` reads the groups.
    """
    with_vllm = {item.path for item in items if item.get_closest_marker("vllm")}
    for item in items:
        item.add_marker(pytest.mark.xdist_group("vllm" if item.path in with_vllm else str(item.path)))
    items.sort(key=lambda item: item.path not in with_vllm)
