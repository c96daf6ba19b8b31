"""The option `--half` of these tests: two processes run each test once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_TESTS = """
import pytest

def test_reads_records(): ...

@pytest.mark.vllm
def test_starts_an_engine(): ...
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder with tests of two packages and this project's own conftest.py, in a process of their own."""
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\ntestpaths = ["tests"]\nmarkers = ["vllm: starts vLLM"]\n')
    for package in ("warehouse", "harness"):
        path = pytester.path / "tests" / package / f"test_{package}.py"
        path.parent.mkdir(parents=True)
        path.write_text(_TESTS)
    here = Path(__file__).parent
    for name in ("conftest.py", "requirements.py", "__init__.py"):
        (pytester.path / "tests" / name).write_text((here / name).read_text())
    return pytester


def _collected(project: pytest.Pytester, *arguments: str) -> Sequence[str]:
    result = project.runpytest_subprocess("--collect-only", "--quiet", "--import-mode=importlib", *arguments)
    return sorted(line for line in result.outlines if "::" in line)


def test_each_test_is_in_exactly_one_half(project: pytest.Pytester) -> None:
    engines, records = _collected(project, "--half=engines"), _collected(project, "--half=records")
    assert records == ["tests/warehouse/test_warehouse.py::test_reads_records"]
    assert sorted((*engines, *records)) == _collected(project)
    assert len(engines) == 3


def test_the_half_is_asked_of_a_folder_too(project: pytest.Pytester) -> None:
    collected = _collected(project, "--half=engines", "tests/warehouse")
    assert collected == ["tests/warehouse/test_warehouse.py::test_starts_an_engine"]


def test_a_half_that_is_none_names_the_halves(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess("--half=left")
    result.stderr.fnmatch_lines(["*--half: invalid choice: 'left'*engines*records*"])


def test_a_half_that_none_of_the_tests_is_in_succeeds(project: pytest.Pytester) -> None:
    only = project.path / "tests" / "warehouse" / "test_warehouse.py"
    only.write_text("def test_reads_records(): ...\n")
    assert project.runpytest_subprocess("--half=engines", "--import-mode=importlib", "tests/warehouse").ret == 0
    assert project.runpytest_subprocess("--import-mode=importlib", "tests/warehouse", "-k", "nothing").ret == 5
