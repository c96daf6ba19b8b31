"""What a night is measured by: segments that open, alternate and are repaired; effects that all cells share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.warehouse.drawn_nights import (
    FIRST,
    NEW,
    OLD,
    batch,
    calm,
    dropped,
    exit_codes,
    lower,
    night,
)
from warehouse.nightly.cells import CellNight
from warehouse.nightly.judge import CellVerdict, NightVerdict, replay
from warehouse.nightly.verdict import ordered
from warehouse.nightly.words import remarks


def test_a_drop_that_comes_with_a_new_environment_is_reported_from_its_opening_night_on() -> None:
    rng = np.random.default_rng(1)
    before = calm(rng, 6, environment=OLD)
    unconfirmed = replay([*before, [night(6, batch(rng, 12), environment=NEW)]])[-1]
    assert (unconfirmed.exit_code, [cell.cell for cell in unconfirmed.to_confirm]) == (4, ["a"])
    after = [dropped(rng, 6 + i, 12, environment=NEW) for i in range(6)]
    verdicts = replay([*before, *after])[6:]
    assert exit_codes(verdicts) == [1] * 6
    [named, drop] = verdicts[0].cells[0].reasons
    assert named.startswith("environment changed: vllm: 0.32 → 0.33; compared with 6 nights before")
    assert "against 6 nights before, until 2026-01-06, confirmed by a re-run; if the change is intended" in drop
    assert "--since 2026-01-07 " in drop
    assert "--since 2026-01-07 " in verdicts[-1].cells[0].reasons[1], "the first night of the change, not the last"


def test_without_a_segment_of_three_nights_nothing_is_measured() -> None:
    rng = np.random.default_rng(1)
    nights = [[night(i, batch(rng), environment={"vllm": str(i)})] for i in range(5)]
    verdicts = replay(nights)
    assert exit_codes(verdicts) == [4] * 5
    assert verdicts[1].cells[0].reasons == ("environment changed: vllm: 0 → 1", "0 of 3 nights of baseline")


def test_two_types_of_nodes_that_alternate_have_a_segment_each() -> None:
    rng = np.random.default_rng(2)
    nights = [[night(i, batch(rng), environment={"devices": "AB"[i % 2]})] for i in range(12)]
    verdicts = replay([*nights, dropped(rng, 12, 12, environment={"devices": "A"})])
    assert exit_codes(verdicts) == [4] * 6 + [0] * 6 + [1]
    assert [verdict.cells[0].num_baseline for verdict in verdicts[-3:]] == [5, 5, 6]


def test_types_of_nodes_that_differ_and_alternate_from_the_start_are_each_accepted_by_any_since() -> None:
    by_type = lower(0), lower(51)
    nights = [
        [night(i, by_type[i % 2], reruns=(by_type[i % 2],), environment={"devices": "AB"[i % 2]})] for i in range(14)
    ]
    for since in range(4):
        verdicts = replay(nights[since:])
        assert exit_codes(verdicts) == [4] * 6 + [0] * (8 - since)
        assert verdicts[4].cells[0].reasons[-1] == "2 of 3 nights of baseline"
    worse = night(14, lower(60), reruns=(lower(60),), environment={"devices": "A"})
    assert exit_codes(replay([*nights, [worse]]))[-1] == 1, "51 of 640 fewer is healthy on the other type only"


def test_an_upgrade_on_one_type_of_node_is_measured_by_the_nights_on_that_type() -> None:
    rng = np.random.default_rng(2)
    nights = [[night(i, batch(rng), environment={"devices": "AB"[i % 2], **OLD})] for i in range(8)]
    upgraded = replay([*nights, dropped(rng, 8, 12, environment={"devices": "A", **NEW})])[-1]
    assert upgraded.cells[0].reasons[0] == (
        "environment changed: vllm: 0.32 → 0.33; compared with 4 nights before, until 2026-01-07"
    )


def test_a_fault_of_one_of_few_cells_that_comes_and_goes_is_no_effect_that_all_share() -> None:
    for others in (0, 1):
        rng = np.random.default_rng(1)
        nights = []
        for i in range(24):
            points = 12.0 if i >= 7 and i % 3 == 0 else 0.0
            calm_cells = [night(i, batch(rng), f"b{cell}") for cell in range(others)]
            nights.append([*dropped(rng, i, points), *calm_cells])
        verdicts = replay(nights)
        assert [verdict.cells[0].verdict for verdict in verdicts[9::3]] == ["FAIL"] * 5
        assert verdicts[-1].factors == {}


def test_after_a_repair_no_night_is_an_alarm() -> None:
    rng = np.random.default_rng(3)
    bad = [dropped(rng, 8 + i, 12) for i in range(2)]
    healthy = [[night(10 + i, batch(rng), reruns=(batch(rng),))] for i in range(8)]
    assert exit_codes(replay([*calm(rng, 8), *bad, *healthy])[8:]) == [1, 1] + [0] * 8


def test_a_drop_that_no_night_confirms_stays_out_of_the_baseline() -> None:
    rng = np.random.default_rng(4)
    nights = [*calm(rng, 8), *([night(8 + i, batch(rng, 5))] for i in range(20))]
    verdicts = replay(nights)
    assert {verdict.verdict for verdict in verdicts[8:]} <= {"INCONCLUSIVE", "WARN", "PASS"}
    first, last = (verdicts[index].cells[0].baseline_score for index in (8, -1))
    assert first is not None
    assert last == pytest.approx(first, abs=0.006)
    assert verdicts[-1].cells[0].num_baseline < 14


def test_a_suspicion_that_a_re_run_refutes_enters_the_baseline_with_both_runs() -> None:
    before, after = [[night(i, lower(0))] for i in range(8)], [night(9, lower(0))]
    [*_, alone, _] = replay([*before, [night(8, lower(20))], after])
    assert (alone.exit_code, alone.cells[0].needs_rerun) == (4, True)
    [*_, refuted, last] = replay([*before, [night(8, lower(20), reruns=(lower(-20),))], after])
    assert (refuted.verdict, last.cells[0].num_baseline) == ("PASS", 9)
    assert refuted.cells[0].reasons == ("+0.0 points with the re-run: the re-run refutes the suspicion",)
    assert last.cells[0].baseline_score == pytest.approx(lower(0).score)
    [*_, unsure, last] = replay([*before, [night(8, lower(20), reruns=(lower(12),))], after])
    assert (unsure.verdict, last.cells[0].num_baseline) == ("PASS", 8)
    [why] = unsure.cells[0].reasons
    assert why.endswith("neither confirms nor refutes it: the night stays out of the baseline")


def test_three_nights_together_show_what_none_of_them_does() -> None:
    before = [[night(i, lower(0))] for i in range(12)]

    def verdicts(fewer: int) -> list[str]:
        after = [[night(12 + i, lower(fewer), reruns=(lower(fewer),))] for i in range(3)]
        return [verdict.verdict for verdict in replay([*before, *after])[12:]]

    fewest_in_three = next(fewer for fewer in range(60) if verdicts(fewer)[2] == "FAIL")
    assert verdicts(fewest_in_three)[0] == "PASS"
    assert verdicts(2 * fewest_in_three) == ["FAIL"] * 3
    after = [[night(12 + i, lower(fewest_in_three), reruns=(lower(fewest_in_three),))] for i in range(3)]
    *_, first, _, last = replay([*before, *after])
    assert not any("nights together" in reason for reason in first.cells[0].reasons)
    assert " over 3 nights together against 1" in last.cells[0].reasons[0]


def test_a_re_run_that_is_not_finished_is_named_and_so_is_one_under_other_conditions() -> None:
    before = [[night(i, lower(0))] for i in range(8)]
    part = replace(lower(40), run_id="again", num_missing=3, num_not_run=1)
    elsewhere = "re-run other does not count: it ran on A100, this night on H200"
    verdict = replay([*before, [night(8, lower(40), reruns=(part,), uncounted=(elsewhere,))]])[-1]
    suspicious, *why = verdict.cells[0].reasons
    assert (verdict.exit_code, "is suspicious" in suspicious, why[0]) == (4, True, elsewhere)
    assert why[1].startswith("re-run again does not count: it is not finished (3 of 640 samples are not run or not")
    assert "python -m jobs resume again" in why[1]


def test_a_cell_that_stops_running_says_on_which_night_it_is_forgotten() -> None:
    rng = np.random.default_rng(1)
    nights = [[night(0, batch(rng)), night(0, batch(rng), "b")], *([night(i, batch(rng))] for i in range(1, 9))]
    missing = [[cell.reasons[0] for cell in verdict.cells if cell.cell == "b"] for verdict in replay(nights)[1:]]
    assert [len(reasons) for reasons in missing] == [1] * 7 + [0]
    assert "--date 2026-01-02 " in missing[0][0]
    assert ["forgotten" in reasons[0] for reasons in missing[:7]] == [False] * 6 + [True]


def all_cells(rng: np.random.Generator, index: int, points: float) -> list[CellNight]:
    return [night(index, batch(rng, points), f"cell{cell}") for cell in range(6)]


def test_an_effect_that_all_cells_share_is_named_and_allowed_for() -> None:
    rng = np.random.default_rng(6)
    nights = [all_cells(rng, i, 4 * rng.standard_normal()) for i in range(25)]
    verdict = replay(nights)[-1]
    assert verdict.factors["pass@1"].standard_deviation == pytest.approx(0.04, abs=0.02)
    assert any("pass@1 of all cells together differs" in line for line in remarks(verdict))
    quiet = replay([all_cells(rng, i, 0) for i in range(12)])[-1]
    detectable = [cell.detectable_drop for cell in (verdict.cells[0], quiet.cells[0])]
    assert quiet.factors == {}
    assert detectable[0] is not None
    assert detectable[1] is not None
    assert detectable[0] > 2 * detectable[1]


def test_a_drop_of_all_cells_is_no_night_effect() -> None:
    rng = np.random.default_rng(7)
    before = [all_cells(rng, i, 0) for i in range(8)]
    after = [[replace(n, reruns=(batch(rng, 8),)) for n in all_cells(rng, 8 + i, 8)] for i in range(8)]
    verdicts = replay([*before, *after])[8:]
    assert exit_codes(verdicts) == [1] * 8
    assert verdicts[-1].factors == {}


def test_cells_that_failed_come_first_and_the_others_by_dataset_and_method() -> None:
    cells = [
        CellVerdict("b x", "PASS"),
        CellVerdict("a y", "WARN"),
        CellVerdict("c", "FAIL"),
        CellVerdict("a x", "PASS"),
    ]
    verdict = ordered(NightVerdict(FIRST, "FAIL", cells))
    assert [cell.cell for cell in verdict.cells] == ["c", "a x", "a y", "b x"]
