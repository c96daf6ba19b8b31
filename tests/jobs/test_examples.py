"""The files that an installation brings with it."""

from __future__ import annotations

import ast
import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.problems import benchmarks
from jobs import suite
from jobs.__main__ import main
from jobs.cli.launches import EXAMPLES, SUITES, suite_file
from tests.harness.problems.stand_ins import write_stand_ins


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_is_printed_as_it_is(kind: str) -> None:
    result = CliRunner().invoke(main, ["example", kind])
    assert (result.exit_code, result.stdout) == (0, EXAMPLES[kind].read_text(encoding="utf-8"))
    parsers: dict[str, Callable[[str], object]] = {"scrontab": str, "notebook": json.loads, "router": ast.parse}
    assert parsers.get(kind, tomllib.loads)(result.stdout)


def test_a_bundled_suite_is_named_and_a_file_of_its_name_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert suite_file(Path("demo")) == SUITES["demo"]
    assert suite_file(Path("other.toml")) == Path("other.toml")
    for words, valid in ((["suite", "other"], SUITES), (["example", "cluster"], EXAMPLES)):
        result = CliRunner().invoke(main, words)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert all(name in result.stderr for name in valid)
    Path("demo").touch()
    assert suite_file(Path("demo")) == Path("demo")


@pytest.mark.parametrize("name", SUITES)
def test_a_bundled_suite_is_valid(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    write_stand_ins(tmp_path / "data")
    monkeypatch.setenv(benchmarks.DATA_DIR_VARIABLE, str(tmp_path / "data"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "data"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    runs = [prepared.run.path for prepared in suite.prepare(suite.read(SUITES[name]), None)]
    assert len(set(runs)) == len(runs) >= 2
    assert not list((tmp_path / "here").iterdir())
