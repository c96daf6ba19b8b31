"""The marker `needs_tool`, see requirements.py, and no deadlines for the examples of hypothesis."""

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
