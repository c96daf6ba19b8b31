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


@pytest.fixture
def no_teleporter(monkeypatch: pytest.MonkeyPatch) -> str:
    tool = requirements.Tool(lambda: False, "ask engineering")
    monkeypatch.setattr(requirements, "TOOLS", {"teleporter": tool})
    return "teleporter"


@pytest.mark.parametrize("value", [None, "", "0", "false"])
def test_a_missing_tool_is_a_skip_that_says_how_to_get_it(
    no_teleporter: str, value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    if value is not None:
        monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.skip.Exception, match=r"needs teleporter \(ask engineering\)"):
        requirements.require_tool(no_teleporter)


@pytest.mark.parametrize("value", ["true", "1"])
def test_a_missing_tool_is_a_failure_under_ci(no_teleporter: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.fail.Exception, match=f"ask engineering.*CI={value}"):
        requirements.require_tool(no_teleporter)


def test_the_marker_asks_for_every_tool_it_names(
    request: pytest.FixtureRequest, no_teleporter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CI", "true")
    request.node.add_marker(pytest.mark.needs_tool(no_teleporter))
    with pytest.raises(pytest.fail.Exception, match="teleporter"):
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
