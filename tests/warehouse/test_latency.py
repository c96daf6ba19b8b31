"""The latency model recovers the speeds that generated the calls."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from harness.latency import LatencyModel, ModelSpeed, Work
from tests.warehouse import runs
from tests.warehouse.conftest import Loaded
from warehouse.database import WarehouseError, reader
from warehouse.latency_at_one import TimedCall, TimedSample, fit, timed_samples
from warehouse.load import load_run

TRUTH = LatencyModel(
    {
        "draft": ModelSpeed(call=0.2, prompt_token=0.001, output_token=0.01, output_token_per_request=0.002),
        "target": ModelSpeed(call=0.1, prompt_token=0.004, output_token=0.05),
    },
    sample_overhead_seconds=0.5,
)


def samples(number: int) -> list[TimedSample]:
    """Made by TRUTH."""
    draw = random.Random(1)
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
                seconds = TRUTH.speeds[work.model].seconds(work)
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
