"""`python -m warehouse.regress`: the verdict on a night, from numbers and from a warehouse."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from jobs.run.spec import RunSpec
from tests.warehouse import cells, runs
from tools.simulate.night_scenarios import Setting
from tools.simulate.nights import Tally, history
from warehouse.load import load_run
from warehouse.nightly.cells import Batch, CellNight
from warehouse.nightly.judge import EXIT_CODES, CellVerdict, NightVerdict, replay
from warehouse.regress import main

FIRST = date(2026, 1, 1)
USUAL, K = 40, 16
RNG = np.random.default_rng(7)
CHANCES = RNG.beta(0.4, 0.4, USUAL)
DAY = 86_400.0


def batch(rng: np.random.Generator, chances: np.ndarray[Any, Any] = CHANCES, **more: Any) -> Batch:
    correct = rng.binomial(K, chances).astype(np.int64)
    return Batch("run", correct, np.full(len(chances), K), **more)


def night(index: int, first: Batch, cell: str = "a", **more: Any) -> CellNight:
    return CellNight(cell, FIRST + timedelta(index), first, **more)


def usual_nights(number: int, **more: Any) -> list[list[CellNight]]:
    rng = np.random.default_rng(1)
    return [[night(i, batch(rng), **more)] for i in range(number)]


def last(nights: Sequence[Sequence[CellNight]]) -> tuple[NightVerdict, CellVerdict]:
    verdict = replay(nights)[-1]
    return verdict, verdict.cells[0]


def worse(points: float) -> np.ndarray[Any, Any]:
    return np.clip(CHANCES - points / 100, 0, 1)


def test_a_night_like_the_others_passes() -> None:
    verdict, cell = last(usual_nights(8))
    assert (verdict.verdict, verdict.exit_code, cell.reasons, cell.num_baseline) == ("PASS", 0, (), 7)
    assert cell.detectable_drop is not None
    assert 0.02 < cell.detectable_drop < 0.08


def test_nights_that_are_all_the_same_tell_no_detectable_drop() -> None:
    always = np.ones(len(CHANCES))
    rng = np.random.default_rng(1)
    _, cell = last([[night(i, batch(rng, always))] for i in range(8)])
    assert (cell.verdict, cell.num_baseline, cell.detectable_drop) == ("PASS", 7, None)


def test_the_first_nights_are_inconclusive() -> None:
    assert [verdict.verdict for verdict in replay(usual_nights(5))] == ["INCONCLUSIVE"] * 3 + ["PASS"] * 2


def test_a_drop_asks_for_a_re_run_and_fails_once_the_re_run_confirms_it() -> None:
    rng = np.random.default_rng(2)
    dropped = night(8, batch(rng, worse(12)))
    verdict, cell = last([*usual_nights(8), [dropped]])
    assert (verdict.verdict, cell.needs_rerun, [c.cell for c in verdict.to_confirm]) == ("INCONCLUSIVE", True, ["a"])
    verdict, cell = last([*usual_nights(8), [replace(dropped, reruns=(batch(rng, worse(12)),))]])
    assert (verdict.verdict, verdict.exit_code, cell.needs_rerun) == ("FAIL", 1, False)
    assert "confirmed by a re-run" in cell.reasons[0]
    assert cell.p_holm is not None
    assert cell.p_holm < 0.01


def test_an_unlucky_night_passes_once_the_re_run_does_not_confirm_it() -> None:
    rng = np.random.default_rng(3)
    unlucky = night(8, batch(rng, worse(4)), reruns=(batch(rng, np.clip(CHANCES + 0.02, 0, 1)),))
    verdict, cell = last([*usual_nights(8), [unlucky]])
    assert (verdict.verdict, cell.needs_rerun) == ("PASS", False)


def test_a_re_run_that_is_not_whole_confirms_nothing() -> None:
    rng = np.random.default_rng(2)
    dropped = night(8, batch(rng, worse(12)), reruns=(batch(rng, worse(12), num_missing=3),))
    assert last([*usual_nights(8), [dropped]])[0].verdict == "INCONCLUSIVE"


def test_an_improvement_that_is_too_large_is_an_alarm() -> None:
    rng, better = np.random.default_rng(4), np.clip(CHANCES + 0.15, 0, 1)
    risen = night(8, batch(rng, better), reruns=(batch(rng, better),))
    verdict, cell = last([*usual_nights(8), [risen]])
    assert (verdict.verdict, verdict.exit_code) == ("WARN", EXIT_CODES["WARN"])
    assert "too good" in cell.reasons[0]


def test_a_drop_that_stays_keeps_failing_because_it_never_enters_the_baseline() -> None:
    rng = np.random.default_rng(5)
    after = [[night(8 + i, batch(rng, worse(12)), reruns=(batch(rng, worse(12)),))] for i in range(12)]
    verdicts = replay([*usual_nights(8), *after])[8:]
    assert {verdict.verdict for verdict in verdicts} == {"FAIL"}
    assert {verdict.cells[0].num_baseline for verdict in verdicts} == {8}


@pytest.mark.parametrize(
    ("verdict", "usual", "tonight", "expected"),
    [
        ("no_answer", 10, 12, "PASS"),
        ("no_answer", 10, 60, "FAIL"),
        ("unparsable", 0, 40, "FAIL"),
        ("truncated", 100, 110, "PASS"),
        ("truncated", 100, 200, "FAIL"),
        ("truncated", 200, 20, "PASS"),
        ("error", 0, 12, "FAIL"),
        ("grader_timeout", 0, 12, "FAIL"),
        ("bad_gold", 0, 16, "FAIL"),
    ],
)
def test_gates_fail_on_what_hardly_varies(verdict: str, usual: int, tonight: int, expected: str) -> None:
    rng = np.random.default_rng(1)
    nights = [[night(i, batch(rng, verdicts={verdict: usual}))] for i in range(7)]
    night_verdict = last([*nights, [night(7, batch(rng, verdicts={verdict: tonight}))]])[0]
    assert night_verdict.verdict == expected


def test_changed_inputs_fail_once_and_begin_a_new_segment() -> None:
    rng = np.random.default_rng(1)
    before = [[night(i, batch(rng), inputs={"prompts": "p"})] for i in range(6)]
    after = [[night(6 + i, batch(rng), inputs={"prompts": "q"})] for i in range(5)]
    verdicts = replay([*before, *after])[6:]
    assert [verdict.verdict for verdict in verdicts] == ["FAIL", "INCONCLUSIVE", "INCONCLUSIVE", "PASS", "PASS"]
    assert "prompts: p → q" in verdicts[0].cells[0].reasons[0]


def test_a_changed_environment_begins_a_new_segment_and_is_named() -> None:
    rng = np.random.default_rng(1)
    before = [[night(i, batch(rng), environment={"vllm": "0.31"})] for i in range(6)]
    after = [[night(6 + i, batch(rng), environment={"vllm": "0.32"})] for i in range(4)]
    verdicts = replay([*before, *after])[6:]
    assert [verdict.verdict for verdict in verdicts] == ["PASS"] * 4
    assert verdicts[0].cells[0].reasons == (
        "environment changed: vllm: 0.31 → 0.32; compared with 6 nights before, until 2026-01-06",
    )
    assert [verdict.cells[0].num_baseline for verdict in verdicts] == [6, 6, 6, 3]
    assert verdicts[3].cells[0].reasons == ()


def test_a_slow_drift_warns_where_no_night_fails() -> None:
    rng = np.random.default_rng(6)
    nights = [[night(i, batch(rng, worse(0.35 * i)))] for i in range(25)]
    verdict, cell = last(nights)
    assert verdict.verdict in ("WARN", "INCONCLUSIVE")
    assert any(reason.startswith("drift: −") for reason in cell.reasons)


def test_a_night_that_failed_is_no_drift_of_the_nights_after_it() -> None:
    rng = np.random.default_rng(5)
    failed = [[night(8, batch(rng, worse(30)), reruns=(batch(rng, worse(30)),))]]
    after = [[night(9 + i, batch(rng))] for i in range(6)]
    verdicts = replay([*usual_nights(8), *failed, *after])[8:]
    assert [verdict.verdict for verdict in verdicts] == ["FAIL"] + ["PASS"] * 6


def test_greedy_decoding_that_emits_other_tokens_warns() -> None:
    rng = np.random.default_rng(1)
    nights = [[night(i, batch(rng, emitted_tokens=500.0))] for i in range(6)]
    assert last([*nights, [night(6, batch(rng, emitted_tokens=505.0))]])[0].verdict == "PASS"
    assert last([*nights, [night(6, batch(rng, emitted_tokens=560.0))]])[0].verdict == "WARN"


def test_incomplete_and_missing_cells_are_inconclusive() -> None:
    rng = np.random.default_rng(1)
    nights = [[night(i, batch(rng)), night(i, batch(rng), "b")] for i in range(6)]
    verdict, _ = last([*nights, [night(6, batch(rng))]])
    assert verdict.verdict == "INCONCLUSIVE"
    assert verdict.cells[1].reasons == (
        "did not run; it last ran on 2026-01-06: python -m jobs nightly --suite FILE --date 2026-01-07 "
        "launches what is missing",
    )
    for num_not_run, command in ((5, "resume"), (1, "resume"), (0, "finalize")):
        lacking = batch(rng, num_missing=5, num_not_run=num_not_run)
        verdict, cell = last([*usual_nights(6), [night(6, lacking)]])
        assert (verdict.verdict, cell.reasons) == (
            "INCONCLUSIVE",
            (f"5 of 640 samples are not run or not graded: python -m jobs {command} run",),
        )


def test_the_worst_cell_decides_and_holm_covers_all_cells() -> None:
    """A p-value that would fail alone does not among many cells."""
    rng = np.random.default_rng(8)
    points = next(p for p in np.arange(3, 9, 0.25).tolist() if _single(p) == "FAIL" and _among(p, 200) == "PASS")
    assert points > 0
    dropped = [night(8, batch(rng, worse(12)), reruns=(batch(rng, worse(12)),)), night(8, batch(rng), "b")]
    nights = [[*cells, replace(cells[0], cell="b")] for cells in usual_nights(8)]
    assert last([*nights, dropped])[0].verdict == "FAIL"


def _single(points: float) -> str:
    return _among(points, 1)


def _among(points: float, number: int) -> str:
    rng = np.random.default_rng(9)
    first, again = batch(rng, worse(points)), batch(rng, worse(points))
    others = [f"b{i}" for i in range(number - 1)]
    nights = [[*cells, *(replace(cells[0], cell=cell) for cell in others)] for cells in usual_nights(5)]
    calm = nights[-1][0].first
    tonight = [night(5, first, reruns=(again,)), *(night(5, calm, cell) for cell in others)]
    return replay([*nights, tonight])[-1].cells[0].verdict


def test_simulated_nights_raise_no_alarm_and_a_drop_is_detected() -> None:
    """A small piece of tools/simulate/nights.py, whose tables are in warehouse/statistics/README.md."""
    tally = Tally()
    history(np.random.default_rng(1), Setting("40 problems, AMC23-like", 12, drop=6.0, speed_up=np.log(0.7)), tally)
    assert tally.num_false_nights == 0
    assert tally.found


def nightly(where: Path, day: int, correct: Sequence[int], seed: int = 0, tag: str | None = None, **more: Any) -> str:
    spec: RunSpec = replace(cells.SPEC, seed=1000 * day + seed, tag=tag)
    started_at = runs.START + day * DAY + seed * 3600
    folder = cells.finished(where, spec, correct, started_at=started_at, **more)
    load_run(folder, where / "w.duckdb")
    return folder.path.name


def regress(where: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--database", str(where / "w.duckdb"), *arguments])


@pytest.fixture(scope="module")
def loaded_nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("nights")
    for day in range(4):
        nightly(where, day, [3, 4, 4, 4, 2, 3, 4, 4, 4, 3 + day % 2, 4, 3])
    return where


@pytest.fixture
def four_nights(tmp_path: Path, loaded_nights: Path) -> Path:
    """Four calm nights in a warehouse of the test's own."""
    shutil.copy(loaded_nights / "w.duckdb", tmp_path)
    return tmp_path


def test_a_warehouse_of_nights_is_judged_screened_and_confirmed(four_nights: Path) -> None:
    assert regress(four_nights).exit_code == 0
    run_id = nightly(four_nights, 4, [1, 0, 1, 2, 0, 1, 2, 1, 0, 1, 1, 2])
    result = regress(four_nights, "--format", "json")
    verdict = json.loads(result.stdout)
    assert (result.exit_code, verdict["verdict"], verdict["confirm"]) == (4, "INCONCLUSIVE", [run_id])
    nightly(four_nights, 4, [1, 1, 1, 2, 0, 1, 1, 1, 0, 1, 1, 2], seed=1)
    result = regress(four_nights, "--format", "json")
    verdict = json.loads(result.stdout)
    assert (result.exit_code, verdict["verdict"], verdict["confirm"]) == (1, "FAIL", [])
    assert verdict["cells"][0]["num_baseline_nights"] == 4
    assert regress(four_nights, "--format", "json").stdout == result.stdout


def test_an_older_night_can_be_judged_again_and_nights_can_be_forgotten(four_nights: Path) -> None:
    nightly(four_nights, 4, [0] * 12)
    evening = date.fromisoformat(json.loads(regress(four_nights, "--format", "json").stdout)["night"])
    assert regress(four_nights, "--night", str(evening - timedelta(1))).exit_code == 0
    result = regress(four_nights, "--since", str(evening))
    assert (result.exit_code, "0 of 3 nights of baseline" in result.stdout) == (4, True)


def test_where_nights_are_tagged_no_other_run_is_a_night(tmp_path: Path) -> None:
    """Whoever launches a suite into the folder of the nights changes no verdict."""
    calm = [3, 4, 4, 4, 2, 3, 4, 4, 4, 3, 4, 3]
    for day in range(5):
        nightly(tmp_path, day, calm, tag=f"2026-01-0{day + 1}")
    before = regress(tmp_path, "--format", "json").stdout
    nightly(tmp_path, 4, [0] * 12, seed=1)
    nightly(tmp_path, 9, [0] * 12, tag="experiment")
    assert regress(tmp_path, "--format", "json").stdout == before
    nightly(tmp_path, 4, [0] * 12, seed=2, tag="2026-01-05.confirm")
    assert regress(tmp_path, "--format", "json").stdout != before


def test_another_device_is_another_segment(four_nights: Path) -> None:
    nightly(four_nights, 4, [0] * 12, device="NVIDIA A100")
    result = regress(four_nights)
    assert result.exit_code == 4
    assert "environment changed: devices: NVIDIA H100 → NVIDIA A100" in result.stdout


def test_a_mistake_gets_one_line_and_exit_code_2(tmp_path: Path, four_nights: Path) -> None:
    for arguments, message in (
        (("--night", "2020-01-01"), "nothing ran in the night of 2020-01-01; the newest nights are: "),
        (("--night", "soon"), "is not a date of the form YYYY-MM-DD"),
        (("--since", "2100-01-01"), "no night"),
    ):
        result = regress(four_nights, *arguments)
        assert (result.exit_code, message in result.stderr.strip().splitlines()[-1]) == (2, True)
    assert regress(tmp_path / "elsewhere").exit_code == 2
