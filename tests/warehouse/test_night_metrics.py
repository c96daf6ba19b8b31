"""The metrics of a night beside accuracy: fallback rate, times and speed-up, screened and confirmed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.warehouse.drawn_nights import (
    NEW,
    OLD,
    batch,
    night,
)
from warehouse.nightly.cells import Batch, CellNight
from warehouse.nightly.judge import CellVerdict, replay
from warehouse.nightly.metrics import FALLBACK, METRICS, SPEED_UP, TOKEN_TIME, TRUNCATED
from warehouse.nightly.words import as_record, remarks

LEVELS = {FALLBACK.name: 0.3, TRUNCATED.name: 0.1, TOKEN_TIME.name: -4.0, SPEED_UP.name: 0.5}
SPREADS = {FALLBACK.name: 0.01, TRUNCATED.name: 0.005, TOKEN_TIME.name: 0.03, SPEED_UP.name: 0.04}


def measured(rng: np.random.Generator, change: Mapping[str, float] | None = None) -> Batch:
    values = {name: level + SPREADS[name] * rng.standard_normal() for name, level in LEVELS.items()}
    return batch(rng, measures={name: value + (change or {}).get(name, 0.0) for name, value in values.items()})


def measured_nights(rng: np.random.Generator, number: int, first: int = 0, **more: Any) -> list[list[CellNight]]:
    cells = [f"cell{cell}" for cell in range(6)]
    return [[night(first + i, measured(rng), cell, **more) for cell in cells] for i in range(number)]


def changed_night(rng: np.random.Generator, index: int, change: Mapping[str, float], **more: Any) -> list[CellNight]:
    [cells] = measured_nights(rng, 1, index, **more)
    return [replace(cells[0], first=measured(rng, change), reruns=(measured(rng, change),)), *cells[1:]]


def last_cell(nights: Sequence[Sequence[CellNight]]) -> CellVerdict:
    return replay(nights)[-1].cells[0]


@pytest.mark.parametrize(
    ("change", "verdict", "phrase"),
    [
        ({FALLBACK.name: 0.1}, "FAIL", "fallback rate: 30."),
        ({FALLBACK.name: -0.1}, "WARN", "fallback rate: "),
        ({SPEED_UP.name: float(np.log(0.75))}, "FAIL", "speed-up: 1.6"),
        ({SPEED_UP.name: 0.4}, "PASS", None),
        ({TOKEN_TIME.name: 0.3}, "FAIL", "time per token: 0.01"),
        ({TRUNCATED.name: 0.05}, "FAIL", "samples cut off: "),
        ({}, "PASS", None),
    ],
    ids=str,
)
def test_what_speculation_is_for_is_screened_and_confirmed(
    change: dict[str, float], verdict: str, phrase: str | None
) -> None:
    rng = np.random.default_rng(8)
    before = measured_nights(rng, 7)
    cell = last_cell([*before, changed_night(rng, 7, change)])
    assert cell.verdict == verdict, cell.reasons
    if phrase is not None:
        assert cell.reasons[0].startswith(phrase)
        assert cell.reasons[0].endswith("against 7 nights, confirmed by a re-run")
        assert [as_record(metric)["verdict"] for metric in cell.metrics].count(verdict) == 1


def without(nights: Sequence[CellNight], *names: str, **more: Any) -> list[CellNight]:
    """The night with its first cell measured by fewer metrics."""
    kept = {name: value for name, value in nights[0].first.measures.items() if name not in names}
    return [replace(nights[0], first=replace(nights[0].first, measures=kept), **more), *nights[1:]]


def test_a_metric_that_is_absent_tonight_warns_unless_the_conditions_changed() -> None:
    rng = np.random.default_rng(8)
    *before, tonight = measured_nights(rng, 8, environment=OLD)
    cell = last_cell([*before, without(tonight, FALLBACK.name, SPEED_UP.name, baseline="cell3")])
    assert cell.verdict == "WARN"
    assert cell.reasons == (
        "no fallback rate tonight, which 7 nights before had under the same conditions: look at run run",
        "no speed-up tonight, which 7 nights before had under the same conditions: look at run run",
    )
    [alone] = last_cell([*before, without(tonight, SPEED_UP.name)]).reasons
    assert alone.endswith("the target alone has no complete run in this night that is comparable")
    assert last_cell([*before, without(tonight, FALLBACK.name, environment=NEW)]).verdict == "PASS"
    never = [without(cells, FALLBACK.name) for cells in (*before, tonight)]
    assert last_cell(never).verdict == "PASS"


def test_what_a_gate_names_is_named_once_and_needs_no_re_run() -> None:
    rng = np.random.default_rng(8)
    before = measured_nights(rng, 7)
    [tonight] = measured_nights(rng, 1, 7)
    cut_off = replace(measured(rng, {TRUNCATED.name: 0.3}), verdicts={"truncated": 200})
    cell = last_cell([*before, [replace(tonight[0], first=cut_off), *tonight[1:]]])
    assert (cell.verdict, cell.needs_rerun) == ("FAIL", False)
    assert [reason.startswith("samples cut off: ") for reason in cell.reasons] == [True]


def test_a_suspicious_speed_up_asks_for_a_re_run_of_its_baseline_too() -> None:
    rng = np.random.default_rng(9)
    before = measured_nights(rng, 7)
    tonight = [replace(n, reruns=()) for n in changed_night(rng, 7, {SPEED_UP.name: -0.4})]
    tonight[0] = replace(tonight[0], baseline="cell3")
    verdict = replay([*before, tonight])[-1]
    assert (verdict.exit_code, [cell.cell for cell in verdict.to_confirm]) == (4, ["cell0", "cell3"])
    assert "the speed-up of another cell is suspicious" in verdict.cells[3].reasons[0]


def test_a_new_engine_that_halves_the_speed_up_fails_and_other_devices_are_not_compared() -> None:
    rng = np.random.default_rng(10)
    before = measured_nights(rng, 7, environment=OLD | {"devices": "A"})
    slow = changed_night(rng, 7, {SPEED_UP.name: float(np.log(0.5))}, environment=NEW | {"devices": "A"})
    cell = last_cell([*before, slow])
    assert cell.verdict == "FAIL"
    assert any("against 7 nights of the environment before, confirmed by a re-run; if" in r for r in cell.reasons)
    elsewhere = [replace(n, environment=NEW | {"devices": "B"}) for n in slow]
    cell = last_cell([*before, elsewhere])
    assert cell.verdict == "PASS"
    assert SPEED_UP not in [metric.metric for metric in cell.metrics]


def test_times_under_other_conditions_are_not_compared_and_that_is_said() -> None:
    rng = np.random.default_rng(10)
    before = measured_nights(rng, 7, times={"samples in flight": "8"})
    slow = changed_night(rng, 7, {SPEED_UP.name: float(np.log(0.5))}, times={"samples in flight": "1"})
    cell = last_cell([*before, slow])
    assert (cell.verdict, cell.reasons) == (
        "PASS",
        ("times are not compared yet, because of samples in flight: 8 → 1",),
    )


def test_every_night_says_which_changes_it_would_have_found() -> None:
    lines = list(remarks(replay(measured_nights(np.random.default_rng(1), 10))[-1]))
    assert len(lines) == len(LEVELS)
    assert lines[-1].startswith("speed-up: a fall of ")
    assert lines[-1].endswith(" % would be found with 80 % chance in 6 cells")
    assert sum(metric.alpha + metric.alpha_other for metric in METRICS) == pytest.approx(0.0017)
