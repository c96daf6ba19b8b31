"""The simulation's table in small; its whole one is in docs/statistics.md."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from tools.simulate import error_rates, nights
from tools.simulate.__main__ import main


def test_every_kind_of_line_has_a_cell_per_size() -> None:
    chosen = {
        line.what: replace(line, sizes=line.sizes[:1], variants=line.variants[:1]) for line in error_rates.lines()
    }
    rows = list(error_rates.table(list(chosen.values()), 4))
    assert len(rows) == len(chosen) + 3
    assert {row.count("|") for row in rows[:-1]} == {7}
    assert rows[-1].startswith("\nLines that miss their goal: ")


def test_the_command_prints_the_lines_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nights, "seconds", lambda *_: 0.0)  # a year of nights
    shown = CliRunner().invoke(main, ["--only", "AUROC", "--repetitions", "4"]).output
    assert shown.count(", k 1, 4 |") == 3
