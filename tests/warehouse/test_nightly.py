"""The nights: the spread that cells tell, what is judged and compared, and what waits for a re-run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
from junitparser import JUnitXml, Skipped, TestCase
from scipy import linalg, stats
from syrupy.assertion import SnapshotAssertion

from warehouse.nightly.judge import SPEED_UP, CellNight, CellVerdict, NightVerdict, Run, replay
from warehouse.nightly.verdict import junit
from warehouse.statistics.intervals import Counts
from warehouse.statistics.night import ESTIMATED, KNOWN, Look, Series, Spread, Value, _Nights, fitted, looks

FIRST = date(2026, 1, 1)
K = 16
CHANCES = np.random.default_rng(7).beta(0.4, 0.4, 40)
OLD, NEW = {"vllm": "0.32"}, {"vllm": "0.33"}
LEVELS = {"fallback_rate": 0.3, "truncated": 0.1, "seconds_per_token": -4.0, "speed_up": 0.5}
SPREADS = {"fallback_rate": 0.01, "truncated": 0.005, "seconds_per_token": 0.03, "speed_up": 0.03}


def run_of(correct: Counts, values: Mapping[str, float] | None = None, **more: Any) -> Run:
    """A run with these numbers of right answers by problem."""
    p = correct / K
    scores = {"pass_at_1": float(p.mean()), **(values or {})}
    variances = {"pass_at_1": float((p * (1 - p)).sum()) / (K - 1) / len(p) ** 2}
    return Run("run", scores, variances, num_problems=len(p), num_samples=K * len(p), **more)


def batch(rng: np.random.Generator, points: float = 0.0, **more: Any) -> Run:
    return run_of(rng.binomial(K, np.clip(CHANCES - points / 100, 0, 1)), **more)


def lower(fewer: int) -> Run:
    """The usual counts with so many right answers fewer, spread over the problems that are sometimes right."""
    correct = np.rint(K * CHANCES).astype(np.int64)
    unsure = np.flatnonzero((correct >= 3) & (correct <= K - 3))
    for i in range(abs(fewer)):
        correct[unsure[i % len(unsure)]] -= int(np.sign(fewer))
    return run_of(correct)


def night(index: int, first: Run, cell: str = "a", **more: Any) -> CellNight:
    return CellNight(cell, FIRST + timedelta(index), first, **more)


def calm(number: int, seed: int = 1, **more: Any) -> list[list[CellNight]]:
    rng = np.random.default_rng(seed)
    return [[night(i, batch(rng), **more)] for i in range(number)]


def dropped(rng: np.random.Generator, index: int, points: float, **more: Any) -> list[CellNight]:
    """A night with a drop and the re-run that shows it too."""
    return [night(index, batch(rng, points), reruns=(batch(rng, points),), **more)]


def last(nights: Sequence[Sequence[CellNight]]) -> tuple[NightVerdict, CellVerdict]:
    verdict = replay(nights)[-1]
    return verdict, verdict.cells[0]


def exit_codes(nights: Sequence[Sequence[CellNight]]) -> list[int]:
    return [verdict.exit_code for verdict in replay(nights)]


def cases(verdict: NightVerdict) -> list[TestCase]:
    [suite] = JUnitXml.fromstring(junit(verdict))
    return list(suite)


def test_a_cell_is_inconclusive_for_seven_nights_and_then_judged() -> None:
    verdicts = replay(calm(9))
    assert [verdict.verdict for verdict in verdicts] == ["INCONCLUSIVE"] * 7 + ["PASS"] * 2
    cell = verdicts[-1].cells[0]
    assert (cell.num_baseline, cell.accuracy is not None and 0.02 < cell.accuracy.detectable_change < 0.09) == (8, True)
    [case] = cases(verdicts[1])
    [skipped] = case.result
    assert isinstance(skipped, Skipped)
    assert (skipped.message,) == verdicts[1].cells[0].reasons


def test_a_drop_asks_for_a_re_run_and_fails_once_the_re_run_confirms_it(snapshot: SnapshotAssertion) -> None:
    rng = np.random.default_rng(2)
    [confirmed] = dropped(rng, 8, 14)
    verdict, cell = last([*calm(8), [replace(confirmed, reruns=())]])
    assert (verdict.exit_code, cell.needs_rerun, [c.cell for c in verdict.to_confirm]) == (4, True, ["a"])
    verdict, cell = last([*calm(8), [confirmed]])
    assert (verdict.exit_code, cell.needs_rerun) == (1, False)
    assert cell.reasons == snapshot


def test_a_re_run_that_does_not_confirm_lets_the_night_pass_and_into_the_baseline_with_both_runs() -> None:
    before, after = [[night(i, lower(0))] for i in range(8)], night(9, lower(0))
    unlucky = night(8, lower(40), reruns=(lower(-30),))
    [*_, refuted, following] = replay([*before, [unlucky], [after]])
    assert (refuted.verdict, following.cells[0].num_baseline) == ("PASS", 9)
    elsewhere = "another device"
    [*_, waiting, following] = replay([*before, [replace(unlucky, reruns=(), uncounted=(elsewhere,))], [after]])
    assert (waiting.exit_code, following.cells[0].num_baseline) == (4, 8)
    assert waiting.cells[0].reasons[1:] == (elsewhere,), "a re-run that does not count is named"


def test_a_rise_that_is_too_large_is_a_warning() -> None:
    rng = np.random.default_rng(4)
    verdict, cell = last([*calm(8), dropped(rng, 8, -18)])
    assert verdict.verdict == "WARN"
    [case] = cases(verdict)
    assert case.is_passed
    assert f"WARN: {cell.reasons[0]}" in str(case.system_out)


def test_a_drop_that_stays_keeps_failing_because_it_never_becomes_usual_and_ends_with_its_repair() -> None:
    rng = np.random.default_rng(5)
    bad = [dropped(rng, 8 + i, 14) for i in range(12)]
    healthy = [[night(20 + i, batch(rng), reruns=(batch(rng),))] for i in range(6)]
    verdicts = replay([*calm(8), *bad, *healthy])[8:]
    assert [verdict.verdict for verdict in verdicts] == ["FAIL"] * 12 + ["PASS"] * 6
    assert {verdict.cells[0].num_baseline for verdict in verdicts[:12]} == {8}


def test_three_nights_together_show_what_none_of_them_does_without_a_re_run() -> None:
    rng = np.random.default_rng(8)
    verdicts = replay([*calm(14), *([night(14 + i, batch(rng, 6))] for i in range(3))])[14:]
    assert (verdicts[2].verdict, verdicts[2].cells[0].num_baseline) == ("FAIL", 14)


@pytest.mark.parametrize(
    ("verdict", "usual", "tonight", "expected"),
    [
        ("no_answer", 10, 12, "PASS"),
        ("no_answer", 10, 60, "FAIL"),
        ("unparsable", 0, 40, "FAIL"),
        ("error", 0, 12, "FAIL"),
        ("grader_timeout", 0, 12, "FAIL"),
        ("bad_gold", 0, 16, "FAIL"),
        ("error", 16, 0, "PASS"),
    ],
)
def test_gates_fail_on_what_hardly_varies(verdict: str, usual: int, tonight: int, expected: str) -> None:
    rng = np.random.default_rng(1)
    for number, otherwise in ((7, "PASS"), (2, "INCONCLUSIVE")):
        nights = [[night(i, batch(rng, verdicts={verdict: usual}))] for i in range(number)]
        found = last([*nights, [night(number, batch(rng, verdicts={verdict: tonight}))]])[0]
        assert found.verdict == (expected if expected == "FAIL" else otherwise)


def test_a_rare_event_in_a_small_run_is_no_alarm() -> None:
    """One unreadable answer of 30 after 14 nights without: 2.5 % of such nights if the rate is 0.2 %."""
    runs = [Run("run", {"pass_at_1": 0.6}, {}, {"no_answer": n}, num_samples=30, num_problems=30) for n in (0, 1, 20)]
    earlier = [[night(i, runs[0])] for i in range(14)]
    said = [" ".join(last([*earlier, [night(14, tonight)]])[1].reasons) for tonight in runs[1:]]
    assert ["readable answer" in text for text in said] == [False, True]


def test_changed_inputs_fail_once_and_begin_anew() -> None:
    rng = np.random.default_rng(1)
    before = [[night(i, batch(rng), inputs={"prompts": "p"})] for i in range(8)]
    after = [[night(8 + i, batch(rng), inputs={"prompts": "q"})] for i in range(9)]
    verdicts = replay([*before, *after])[8:]
    assert [verdict.verdict for verdict in verdicts] == ["FAIL"] + ["INCONCLUSIVE"] * 6 + ["PASS"] * 2
    assert "prompts: p → q" in verdicts[0].cells[0].reasons[0]


def test_a_drop_that_comes_with_a_new_environment_fails_from_its_first_night_on_until_it_is_accepted(
    snapshot: SnapshotAssertion,
) -> None:
    rng = np.random.default_rng(1)
    before = calm(8, environment=OLD)
    unconfirmed = replay([*before, [night(8, batch(rng, 14), environment=NEW)]])[-1]
    assert (unconfirmed.exit_code, [cell.cell for cell in unconfirmed.to_confirm]) == (4, ["a"])
    verdicts = replay([*before, *(dropped(rng, 8 + i, 14, environment=NEW) for i in range(4))])[8:]
    assert [verdict.exit_code for verdict in verdicts] == [1] * 4
    assert verdicts[-1].cells[0].reasons == snapshot, "with the first night of the change, not the last"


def test_a_new_environment_is_compared_with_the_one_before_until_it_has_nights_of_its_own() -> None:
    rng = np.random.default_rng(1)
    after = [[night(8 + i, batch(rng), environment=NEW)] for i in range(8)]
    verdicts = replay([*calm(8, environment=OLD), *after])[8:]
    assert [verdict.verdict for verdict in verdicts] == ["PASS"] * 8
    assert [verdict.cells[0].num_baseline for verdict in verdicts] == [8] * 7 + [7]
    assert verdicts[-1].cells[0].reasons == ()


def test_two_types_of_nodes_that_alternate_are_each_compared_with_their_own_nights() -> None:
    by_type = lower(0), lower(51)
    nights = [
        [night(i, by_type[i % 2], reruns=(by_type[i % 2],), environment={"devices": "AB"[i % 2], **OLD})]
        for i in range(18)
    ]
    assert exit_codes(nights) == [4] * 14 + [0] * 4
    worse = night(18, lower(60), reruns=(lower(60),), environment={"devices": "A", **OLD})
    assert exit_codes([*nights, [worse]])[-1] == 1, "51 of 640 fewer is healthy on the other type only"
    upgraded = night(18, lower(0), environment={"devices": "A", **NEW})
    _, cell = last([*nights, [upgraded]])
    assert (cell.num_baseline, "vllm: 0.32 → 0.33" in cell.reasons[0]) == (9, True)


def test_cells_that_did_not_run_are_named_and_the_others_decide() -> None:
    rng = np.random.default_rng(1)
    nights = [[night(i, batch(rng)), night(i, batch(rng), "b")] for i in range(8)]
    verdicts = replay([*nights, *([night(i, batch(rng))] for i in range(8, 16))])[8:]
    assert [verdict.verdict for verdict in verdicts] == ["PASS"] * 8
    missing = [[cell for cell in verdict.cells if cell.cell == "b"] for verdict in verdicts]
    assert [len(cells) for cells in missing] == [1] * 7 + [0]
    assert {cell.verdict for cells in missing for cell in cells} == {"INCONCLUSIVE"}
    assert missing[0][0].reasons[0].endswith(" --date 2026-01-09")


def test_a_cell_that_is_not_complete_is_inconclusive_and_so_is_a_night_of_such_cells() -> None:
    lacking = batch(np.random.default_rng(1), lacking="5 of 640 samples are not run: python -m jobs resume run")
    verdict, cell = last([*calm(8), [night(8, lacking)]])
    assert (verdict.verdict, cell.reasons) == ("INCONCLUSIVE", (lacking.lacking,))


def measured(rng: np.random.Generator, change: Mapping[str, float] | None = None) -> Run:
    values = {name: level + SPREADS[name] * rng.standard_normal() for name, level in LEVELS.items()}
    return batch(rng, values={name: value + (change or {}).get(name, 0.0) for name, value in values.items()})


def measured_nights(rng: np.random.Generator, number: int, first: int = 0, **more: Any) -> list[list[CellNight]]:
    return [[night(first + i, measured(rng), f"cell{cell}", **more) for cell in range(6)] for i in range(number)]


def changed_night(rng: np.random.Generator, index: int, change: Mapping[str, float], **more: Any) -> list[CellNight]:
    [cells] = measured_nights(rng, 1, index, **more)
    return [replace(cells[0], first=measured(rng, change), reruns=(measured(rng, change),)), *cells[1:]]


@pytest.mark.parametrize(
    ("change", "verdict", "phrase"),
    [
        ({"fallback_rate": 0.1}, "FAIL", "fallback rate: 30."),
        ({"fallback_rate": -0.1}, "WARN", "fallback rate: "),
        ({"speed_up": float(np.log(0.75))}, "FAIL", "speed-up: 1.6"),
        ({"speed_up": 0.4}, "PASS", None),
        ({"seconds_per_token": 0.3}, "FAIL", "time per token: 0.01"),
        ({"truncated": 0.05}, "FAIL", "samples cut off: "),
        ({}, "PASS", None),
    ],
    ids=str,
)
def test_what_speculation_is_for_is_screened_and_confirmed(
    change: dict[str, float], verdict: str, phrase: str | None
) -> None:
    rng = np.random.default_rng(8)
    _, cell = last([*measured_nights(rng, 8), changed_night(rng, 8, change)])
    assert cell.verdict == verdict, cell.reasons
    if phrase is not None:
        assert cell.reasons[0].startswith(phrase)
        assert [metric.verdict for metric in cell.metrics].count(verdict) == 1


def test_a_metric_that_is_absent_tonight_warns_unless_the_conditions_changed() -> None:
    *before, tonight = measured_nights(np.random.default_rng(1), 9, environment=OLD)
    kept = {name: value for name, value in tonight[0].first.values.items() if name != "fallback_rate"}
    lacking = replace(tonight[0], first=replace(tonight[0].first, values=kept))
    verdict, cell = last([*before, [lacking, *tonight[1:]]])
    assert (verdict.verdict, cell.verdict, "fallback rate" in cell.reasons[0]) == ("WARN", "WARN", True)
    assert last([*before, [replace(lacking, environment=NEW), *tonight[1:]]])[0].verdict == "PASS"


def test_a_suspicious_speed_up_asks_for_a_re_run_of_its_baseline_too() -> None:
    rng = np.random.default_rng(9)
    before = measured_nights(rng, 8)
    tonight = [replace(n, reruns=()) for n in changed_night(rng, 8, {"speed_up": -0.4})]
    tonight[0] = replace(tonight[0], baseline="cell3")
    verdict = replay([*before, tonight])[-1]
    assert (verdict.exit_code, [cell.cell for cell in verdict.to_confirm]) == (4, ["cell0", "cell3"])


def test_a_new_engine_that_halves_the_speed_up_fails_and_other_devices_are_not_compared() -> None:
    rng = np.random.default_rng(10)
    before = measured_nights(rng, 8, environment=OLD | {"devices": "A"})
    slow = changed_night(rng, 8, {"speed_up": float(np.log(0.5))}, environment=NEW | {"devices": "A"})
    assert last([*before, slow])[1].verdict == "FAIL"
    _, cell = last([*before, [replace(n, environment=NEW | {"devices": "B"}) for n in slow]])
    assert cell.verdict == "PASS"
    assert SPEED_UP not in [metric.measure for metric in cell.metrics]


def test_times_under_other_conditions_are_not_compared_and_that_is_said(snapshot: SnapshotAssertion) -> None:
    rng = np.random.default_rng(10)
    before = measured_nights(rng, 8, times={"samples in flight": "8"})
    slow = changed_night(rng, 8, {"speed_up": float(np.log(0.5))}, times={"samples in flight": "1"})
    _, cell = last([*before, slow])
    assert cell.verdict == "PASS"
    assert cell.reasons == snapshot


@pytest.mark.parametrize("cell", ['a <b> & "c"', "bell \a, escape \x1b[31m and ]]>"])
def test_no_name_of_a_cell_breaks_the_junit_document(cell: str) -> None:
    [case] = cases(replay(calm(2, cell=cell))[-1])
    assert case.classname == cell.replace("\a", "\\x07").replace("\x1b", "\\x1b")


def wandering(rng: np.random.Generator, cells: int, nights: int, deviation: float, rho: float) -> np.ndarray:
    covariance = deviation**2 * rho ** np.abs(np.subtract.outer(range(nights), range(nights)))
    return rng.multivariate_normal(np.zeros(nights), covariance, size=cells)


def series(values: np.ndarray, tonight: float, variance: float = 0.0, day: int | None = None) -> Series:
    earlier = [Value(i, float(value), variance) for i, value in enumerate(values)]
    value = Value(len(values) if day is None else day, tonight, variance)
    return Series(earlier, value, value, earlier[-2:])


@pytest.mark.parametrize(("deviation", "rho"), [(0.0, 0.0), (1.0, 0.0), (1.0, 0.8)])
def test_the_spread_of_many_nights_is_that_which_they_were_drawn_with(deviation: float, rho: float) -> None:
    rng = np.random.default_rng(1)
    levels = rng.normal(0, 50, 400)[:, None]
    values = levels + wandering(rng, 400, 14, deviation, rho) + rng.normal(0, 0.5, (400, 14))
    nights = _Nights.of([[Value(i, float(v), 0.25) for i, v in enumerate(row)] for row in values])
    found = fitted(nights, np.ones(400))
    assert found.deviation == pytest.approx(deviation, abs=0.12)
    if deviation:
        assert found.autocorrelation == pytest.approx(rho, abs=0.06)


def test_without_autocorrelation_a_night_is_compared_with_the_mean_as_students_t_is() -> None:
    rng = np.random.default_rng(2)
    values = rng.normal(0, 1, (30, 10))
    spreads, found = looks([series(row, 3.0) for row in values])
    spread = spreads[""]
    assert spread.autocorrelation == 0
    t = (3.0 - values[0].mean()) / (spread.deviation * (1 + 1 / 10) ** 0.5)
    assert found[0].tonight == pytest.approx(-stats.norm.ppf(stats.t.sf(t, 30 * 9)), rel=1e-6)
    assert found[0].usual == pytest.approx(values[0].mean())


def test_a_prediction_is_that_of_generalized_least_squares() -> None:
    """The error of the best linear unbiased prediction, from the inverse of the whole covariance."""
    rng = np.random.default_rng(3)
    rows = wandering(rng, 20, 12, 1.0, 0.8)
    spreads, found = looks([series(row, 2.0, 0.01, day=14) for row in rows])
    spread = spreads[""]
    days = np.array([*range(12), 14])
    covariance = spread.deviation**2 * spread.autocorrelation ** np.abs(np.subtract.outer(days, days))
    covariance += 0.01 * np.eye(13)
    weights = linalg.solve(covariance, np.ones(13))
    precision = linalg.inv(covariance) - np.outer(weights, weights) / weights.sum()
    t = (precision @ np.append(rows[0], 2.0))[12] / precision[12, 12] ** 0.5
    degrees = spread.degrees * (1 + 0.01 / spread.deviation**2) ** 2
    assert found[0].tonight == pytest.approx(-stats.norm.ppf(stats.t.sf(t, degrees)), rel=1e-6)


def test_the_last_nights_together_show_what_none_of_them_does() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(0, 1, (12, 16))
    rows[0, -2:] = 4.0
    _, [changed, *others] = looks([series(row, 4.0 if i == 0 else 0.0) for i, row in enumerate(rows)])
    assert abs(changed.tonight) < ESTIMATED[0]
    assert (changed.is_by_window, changed.side(is_confirmed=False)) == (True, 1)
    assert not any(look.side(is_confirmed=True) for look in others)
    _, [repaired, *_] = looks([series(row, 0.0) for row in rows])
    assert not repaired.is_by_window, "tonight is as usual"


@pytest.mark.parametrize(
    ("screened", "tonight", "is_confirmed", "side"),
    [(5.0, 5.0, False, 0), (5.0, 5.0, True, 1), (-5.0, -4.2, True, -1), (5.0, 3.4, True, 0), (2.0, 5.0, True, 0)],
)
def test_a_suspicion_is_confirmed_by_both_runs_together(
    screened: float, tonight: float, is_confirmed: bool, side: int
) -> None:
    assert Look(KNOWN, 0.0, screened, tonight, 0.0, 0.0, 1.0).side(is_confirmed=is_confirmed) == side


def test_nights_that_are_all_the_same_say_so_of_any_other() -> None:
    spreads, [same] = looks([series(np.ones(8), 1.0)])
    assert spreads == {"": Spread(0.0, 0.0, 7.0)}
    assert same.tonight == 0
    assert looks([series(1e8 * np.ones(8), 1e8), series(np.ones(14), 1.0)])[1][0].tonight == 0
    assert looks([replace(series(np.ones(8), 1.0001), floor=0.01)])[1][0].tonight < 1
