"""One sample for a person."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse.loading.runs import load_run
from warehouse.trace import main


def trace(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--database", str(database), *arguments])


def test_errors_and_unfinished_samples_say_so(loaded: Loaded) -> None:
    name = loaded.speculative.path.name
    assert "error: RequestRefused: too long" in trace(loaded.database, name, "toy/1", "1").output
    assert "not finished" in trace(loaded.database, name, "toy/2", "1").output


def test_an_unknown_problem_is_answered_with_those_there_are(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    name = loaded.speculative.path.name
    assert trace(loaded.database, name, "0", "0").stderr.endswith("there are: toy/0, toy/1, toy/2\n")
    monkeypatch.setattr("warehouse.trace._MOST_NAMED", 1)
    assert trace(loaded.database, name, "0", "0").stderr.endswith("there are: toy/0 and 2 more\n")


def test_control_characters_and_markup_are_shown_not_obeyed(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    hostile = "[bold]no[/bold]\x1b]0;title\x07\r\u2066\n── step 9: by nobody"
    runs.write_part(folder, [runs.speculative(runs.planned(folder)[0], text=hostile)])
    load_run(folder, database)
    shown = trace(database, folder.path.name, "toy/0", "0").output
    assert not {"\x1b", "\x07", "\r", "\u2066"} & set(shown)
    assert "[bold]no[/bold]\\x1b]0;title\\x07\\r\\u2066" in shown
    assert not any(line.startswith("── step 9") for line in shown.splitlines())


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("none", "toy/0", "0"), "'none' is not a run of this warehouse, which has: "),
        (("RUN", "none", "0"), "toy/0, toy/1"),
        (("RUN", "toy/0", "9"), "no sample 9 of toy/0 in"),
        (("RUN", "toy/0", "9"), "valid: 0 to 1\n"),
    ],
)
def test_what_is_not_there_is_one_line(loaded: Loaded, arguments: tuple[str, ...], hint: str) -> None:
    name = loaded.speculative.path.name
    result = trace(loaded.database, *(name if a == "RUN" else a for a in arguments))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert hint in result.stderr
