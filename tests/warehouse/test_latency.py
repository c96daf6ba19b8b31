"""The latency model recovers the speeds that generated the calls, and reports its errors on other calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness import project
from harness.latency import LatencyModel, ModelSpeed, Work
from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse import latency
from warehouse.database import WarehouseError, reader, rows
from warehouse.latency_fit import SPLITS, TimedCall, TimedSample, fit, timed_samples, validate
from warehouse.latency_transfer import Transfer, transfers
from warehouse.load import load_run

TRUTH = LatencyModel(
    {
        "draft": ModelSpeed(call=0.2, prompt_token=0.001, output_token=0.01, output_token_per_request=0.002),
        "target": ModelSpeed(call=0.1, prompt_token=0.004, output_token=0.05),
    },
    sample_overhead_seconds=0.5,
)


def samples(number: int, noise: float = 0.0, seed: int = 1) -> list[TimedSample]:
    """Made by TRUTH, each call's time multiplied by a random factor around 1."""
    draw = random.Random(seed)
    made = []
    for _ in range(number):
        calls = []
        for _ in range(draw.randint(2, 8)):
            for role in ("draft", "target"):
                work = Work(
                    "draft" if role == "draft" else "target",
                    1,
                    draw.randint(0, 300),
                    draw.randint(1, 200),
                    further_requests=draw.randint(0, 5),
                )
                seconds = TRUTH.speeds[work.model].seconds(work) * draw.lognormvariate(0, noise)
                calls.append(TimedCall(work, seconds, "draft"))
        made.append(TimedSample(tuple(calls), 0.5 + sum(call.seconds for call in calls)))
    return made


def test_a_fit_finds_the_speeds_that_made_the_calls() -> None:
    model = fit(samples(20))
    assert model.sample_overhead_seconds == pytest.approx(0.5)
    assert model.speeds["draft"].output_token == pytest.approx(0.01, rel=1e-3)
    assert model.speeds["draft"].output_token_per_request == pytest.approx(0.002, rel=1e-3)
    assert model.speeds["target"].prompt_token == pytest.approx(0.004, rel=1e-3)
    assert model.speeds["target"].output_token_per_request == pytest.approx(0, abs=1e-6)


def test_half_of_noisy_samples_predict_the_other_halfs_median() -> None:
    checked = validate(samples(40, noise=0.3))
    assert checked.typical is not None
    assert checked.typical < 0.15
    assert len(checked.errors) == SPLITS


def test_times_that_do_not_follow_from_the_work_are_not_predicted() -> None:
    """A fit on short samples does not predict calls whose time has another cause."""
    draw = random.Random(3)
    unrelated = [
        TimedSample((TimedCall(Work("draft", 1, 100, 50), seconds, "draft"),), seconds)
        for seconds in (draw.lognormvariate(0, 2) for _ in range(12))
    ]
    largest = validate(unrelated).largest
    assert largest is not None
    assert largest > 0.15


def test_few_samples_are_not_cross_validated() -> None:
    assert validate(samples(3)).errors == ()


def test_recorded_calls_become_work(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        timed = timed_samples(connection, loaded.vanilla.path.name)
        assert [s.latency_seconds for s in timed]
        assert sorted(s.latency_seconds for s in timed) == sorted(t.latency_seconds for t in loaded.baseline)
        assert {c.work.new_prompt_tokens for s in timed for c in s.calls} == {50.0}
        with pytest.raises(WarehouseError, match="no timed samples of a run 'none'"):
            timed_samples(connection, "none")


def test_samples_that_were_interrupted_are_left_out(loaded: Loaded) -> None:
    with reader(loaded.database) as connection:
        timed = timed_samples(connection, loaded.speculative.path.name)
    assert len(timed) == 3  # of the five finished samples one was resumed and one failed


def test_a_draft_begun_ahead_is_work_under_its_verdict_and_a_discarded_one_none(tmp_path: Path) -> None:
    folder = runs.create(tmp_path)
    used, refused = runs.planned(folder)[:2]
    runs.write_part(folder, [runs.lookahead(used), runs.lookahead(refused, refused=True, latency=12.0)])
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        by_latency = {sample.latency_seconds: sample for sample in timed_samples(connection, folder.path.name)}
    first, verdict, ahead, _ = by_latency[10.0].work
    assert (first.begun_under, ahead.begun_under) == (None, verdict)
    assert len(by_latency[12.0].calls) == len(by_latency[12.0].work) + 1
    assert all(work.begun_under is None for work in by_latency[12.0].work)
    assert fit(list(by_latency.values())).sample_overhead_seconds == pytest.approx((10 - 4.5 + 12 - 7.5) / 2)


def timed_runs(where: Path, seconds: Callable[[int, int], float], numbers: Sequence[int]) -> Path:
    """A database of runs of the target alone; `seconds` of a call are from its output tokens and requests in flight."""
    for number in numbers:
        folder = runs.create(where, replace(runs.VANILLA, concurrency=number, samples=8))
        traces = []
        for i, unit in enumerate(runs.planned(folder)):
            tokens = 20 + 7 * (i % 11)
            trace = runs.vanilla(unit, tokens, seconds(tokens, number) + 1)
            trace.calls[0].in_flight = number
            traces.append(trace)
        runs.write_part(folder, traces)
        load_run(folder, where / "w.duckdb")
    return where / "w.duckdb"


def by_fit(database: Path) -> dict[tuple[int, tuple[int, ...]], Transfer]:
    with reader(database) as connection:
        run_ids = [str(row["run_id"]) for row in rows(connection, "SELECT run_id FROM run")]
        found = transfers(connection, {run_id: timed_samples(connection, run_id) for run_id in run_ids})
    return {(transfer.concurrency, transfer.fitted_on): transfer for transfer in found}


def test_two_concurrencies_predict_a_third_where_calls_slow_down_evenly(tmp_path: Path) -> None:
    found = by_fit(timed_runs(tmp_path, lambda tokens, number: tokens * (0.1 + 0.02 * (number - 1)), [1, 4, 12]))
    assert sorted(found) == sorted(
        (number, fitted) for number, fits in
        {1: [(4,), (12,), (4, 12)], 4: [(1,), (12,), (1, 12)], 12: [(1,), (4,), (1, 4)]}.items() for fitted in fits
    )  # fmt: skip
    for fitted_on in ((4, 12), (1, 12), (1, 4)):
        [transfer] = [t for (_, fitted), t in found.items() if fitted == fitted_on]
        assert transfer.error == pytest.approx(0, abs=0.01)
        assert transfer.projected_error == pytest.approx(0, abs=0.02)
    assert found[12, (1,)].error < -0.5  # one sample in flight says nothing of how calls slow each other down


def test_a_change_of_regime_is_not_predicted(tmp_path: Path) -> None:
    """One request alone is served three times as fast as the others' trend says, and no trend shows it."""
    found = by_fit(timed_runs(tmp_path, lambda tokens, number: tokens * (0.1 if number == 1 else 0.3), [1, 4, 12]))
    assert found[1, (4, 12)].error > 1.5


def test_runs_that_differ_in_more_than_concurrency_do_not_predict_each_other(loaded: Loaded) -> None:
    result = CliRunner().invoke(latency.main, ["--database", str(loaded.database), "--across"])
    assert result.exit_code == 0, result.output
    assert "no two of these runs differ only in the number of samples in flight" in result.output


def test_the_command_prints_the_predictions_across_concurrencies(tmp_path: Path) -> None:
    database = timed_runs(tmp_path, lambda tokens, number: tokens * 0.1 * number, [1, 4, 12])
    result = CliRunner().invoke(latency.main, ["--database", str(database), "--across"])
    assert result.exit_code == 0, result.output
    assert "4 and 12" in result.output


def test_the_command_prints_every_run_with_its_error(loaded: Loaded) -> None:
    result = CliRunner().invoke(latency.main, ["--database", str(loaded.database), "--speeds"])
    assert result.exit_code == 0, result.output
    assert "fitted on a random half, predicted on the other" in result.output


def test_an_unknown_run_is_one_line_and_exit_code_2(loaded: Loaded) -> None:
    result = CliRunner().invoke(latency.main, ["none", "--database", str(loaded.database)])
    assert result.exit_code == 2
    assert "'none'" in result.output


def test_a_run_is_projected_onto_other_hardware(loaded: Loaded, tmp_path: Path) -> None:
    """50 new prompt tokens and 40 to 45 output tokens a sample, at 100 and 10 a second: 0.5 s + 4 to 4.5 s."""
    file = tmp_path / "fast.toml"
    file.write_text(
        'name = "fast"\nsource = "made up"\ngpus = 4\n'
        "[target]\noutput_tokens_per_second = 10\nprompt_tokens_per_second = 100\n"
    )
    arguments = [str(loaded.vanilla.path), "--hardware", str(file)]
    result = CliRunner().invoke(project.main, arguments)
    assert result.exit_code == 0, result.output
    assert "mean 4.75 s, median 4.75 s per sample" in result.output
    assert "projected onto: fast; 1 in flight, 1 worker\n" in result.output
    assert "samples timed\n" in result.output
    assert "whole run, projected  28 s of wall time, 0.0317 GPU-hours" in result.output
    halved = CliRunner().invoke(project.main, [*arguments, "--workers", "2"])
    assert "whole run, projected  14 s" in halved.output


def test_a_projection_without_the_drafts_speeds_is_refused(loaded: Loaded, tmp_path: Path) -> None:
    file = tmp_path / "half.toml"
    file.write_text(
        'name = "half"\nsource = "made up"\ngpus = 1\n'
        "[target]\noutput_tokens_per_second = 10\nprompt_tokens_per_second = 100\n"
    )
    result = CliRunner().invoke(project.main, [str(loaded.speculative.path), "--hardware", str(file)])
    assert result.exit_code == 2
    assert "no table [draft]" in result.output
