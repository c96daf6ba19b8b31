"""One sample for a person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse.load import load_run
from warehouse.trace import _ranges, main


def trace(database: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--database", str(database), *arguments])


def test_a_trace_shows_prompt_steps_candidates_verdict_and_calls(loaded: Loaded) -> None:
    shown = trace(loaded.database, loaded.speculative.path.name, "toy/1", "0").output
    for part in (
        "draft prompt <think>",
        "step 1: fallback by target, 6 tokens",
        "rejected candidate 1 (option 1), 5 tokens",
        "verdict (choice): rejected",
        "1 12.5 %  2 25.0 %  ▶3 62.5 %  (all options 80.0 %)",
        "? Which one?",
        "draft by draft × 2, 100 prompt (50 cached), 11 output tokens",
        "verdict: wrong; answer '2', gold '4'",
    ):
        assert part in shown
    assert "✔ accepted candidate 0" in trace(loaded.database, loaded.speculative.path.name, "toy/0", "0").output


def test_a_candidate_with_the_accepted_text_is_not_called_rejected(tmp_path: Path) -> None:
    folder, database = runs.create(tmp_path), tmp_path / "w.duckdb"
    sample = runs.speculative(runs.planned(folder)[0])
    sample.steps[1].candidates.append(replace(sample.steps[1].candidates[0], accepted=False))
    runs.write_part(folder, [sample])
    load_run(folder, database)
    shown = trace(database, folder.path.name, "toy/0", "0").output
    assert "= same text as the accepted one: candidate 2 (option 0)" in shown
    assert "✘ rejected candidate 1 (option 1)" in shown


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


def test_a_run_is_named_by_its_id_a_prefix_or_its_folder(loaded: Loaded) -> None:
    folder = loaded.speculative.path
    by_id = trace(loaded.database, folder.name, "toy/0", "0")
    assert by_id.exit_code == 0
    for name in (folder.name[:-1], str(folder)):
        assert trace(loaded.database, name, "toy/0", "0").output == by_id.output


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


def test_the_samples_of_a_problem_are_named_as_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _ranges([0, 1, 2, 5, 7, 8]) == "0 to 2, 5, 7 to 8"
    assert _ranges([0]) == "0"
    monkeypatch.setattr("warehouse.trace._MOST_NAMED", 1)
    assert _ranges([0, 2, 4]) == "0, and 2 more"
