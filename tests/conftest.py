"""The marker `needs_tool`; see requirements.py."""

from __future__ import annotations

import pytest

from tests.requirements import require_tool


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tools are missing before its fixtures are set up; under CI it fails."""
    for marker in item.iter_markers("needs_tool"):
        for name in marker.args:
            require_tool(name)
