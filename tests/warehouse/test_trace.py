"""One sample for a person."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner, Result
from syrupy.assertion import SnapshotAssertion

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse.loading.runs import load_run
from warehouse.trace import main


def trace(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--database", str(database), *arguments])


def test_control_characters_and_markup_are_shown_not_obeyed(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    hostile = "[bold]no[/bold]\x1b]0;title\x07\r\u2066\n── step 9: by nobody"
    runs.write_part(folder, [runs.speculative(runs.planned(folder)[0], text=hostile)])
    load_run(folder, database)
    shown = trace(database, folder.path.name, "toy/0", "0").output
    assert not {"\x1b", "\x07", "\r", "\u2066"} & set(shown)
    assert "[bold]no[/bold]\\x1b]0;title\\x07\\r\\u2066" in shown
    assert not any(line.startswith("── step 9") for line in shown.splitlines())


def test_errors_unfinished_samples_and_what_is_not_there_are_told(loaded: Loaded, snapshot: SnapshotAssertion) -> None:
    name, told = loaded.speculative.path.name, {}
    for words in ("RUN toy/1 1", "RUN toy/2 1", "none toy/0 0", "RUN none 0", "RUN toy/0 9"):
        result = trace(loaded.database, *words.replace("RUN", name).split())
        lines = [line for line in result.output.splitlines() if "error" in line or "not finished" in line]
        told[words] = (result.exit_code, [re.sub(r"-[0-9a-f]{8}", "", line) for line in lines])
    assert told == snapshot
