"""A test without its tool is skipped, and fails under CI; a skip by design stays one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests import requirements
from tests.conftest import pytest_runtest_setup

TESTS = Path(__file__).parent
_SKIPS = {"pytest.skip", "pytest.importorskip", "pytest.xfail"} | {
    f"pytest.mark.{m}" for m in ("skip", "skipif", "xfail")
}


@pytest.mark.parametrize("value", ["", "0", "false", "true", "1"])
def test_a_missing_tool_of_a_marker_is_a_skip_that_says_how_to_get_it_and_under_ci_a_failure(
    value: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = "teleporter"
    monkeypatch.setattr(requirements, "TOOLS", {tool: requirements.Tool(lambda: False, "ask engineering")})
    monkeypatch.setenv("CI", value)
    request.node.add_marker(pytest.mark.needs_tool(tool))
    expected = pytest.fail.Exception if value in ("true", "1") else pytest.skip.Exception
    with pytest.raises(expected, match=r"needs teleporter \(ask engineering\)"):
        pytest_runtest_setup(request.node)


def test_every_marker_names_a_known_tool_and_there_is_no_other_way_of_skipping() -> None:
    named, others = set(), []
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "needs_tool":
                named |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
            elif isinstance(node, ast.Attribute) and ast.unparse(node) in _SKIPS:
                others.append(f"{path.name}:{node.lineno}")
    assert named
    assert named <= set(requirements.TOOLS)
    assert not [place for place in others if not place.startswith(("requirements.py", Path(__file__).name))]
