"""What a launch is likely to take: from finished runs like it, else from the run itself, else nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.settings.launch_settings import Launch
from jobs.forecast import Forecast
from jobs.run.spec import EngineSpec, RunSpec
from tests.warehouse import runs
from warehouse.loading.runs import load_runs
from warehouse.suites.run_cost import forecast

SPEC = replace(runs.VANILLA, engine=EngineSpec("vllm"))
LAUNCH = Launch.from_flags({"method": "vanilla", "dataset": "demo", "concurrency": 1})


def recorded(folder: Path, *made: tuple[RunSpec, float, str]) -> list[str]:
    """Load finished runs of 6 samples of this latency; a worker's wall time is a second less. Returns their names."""
    folders = [runs.create(folder, spec) for spec, _, _ in made]
    for run, (_, latency, device) in zip(folders, made, strict=True):
        runs.write_part(run, [runs.vanilla(unit, latency=latency) for unit in runs.planned(run)], device=device)
    list(load_runs(folders, folder / "warehouse.duckdb"))
    return [run.path.name for run in folders]


def asked(folder: Path, own: Forecast | None = None, **changes: object) -> Forecast | None:
    spec = replace(SPEC, seed=9, **changes)  # type: ignore[arg-type]
    return forecast(LAUNCH, spec, 60, folder / "warehouse.duckdb", own)


def test_runs_of_the_same_settings_tell_what_a_launch_takes_with_their_spread(tmp_path: Path) -> None:
    recorded(
        tmp_path,
        (SPEC, 19.0, "H100"),
        (replace(SPEC, seed=1), 37.0, "H100"),
        (replace(SPEC, seed=2, samples=1), 1000.0, "A100"),
        (replace(SPEC, token_budget=99), 5000.0, "H100"),
    )
    found = asked(tmp_path)
    assert found is not None
    assert "1 × H100" in found.source, "a mean over two kinds of devices is that of none"
    assert found.num_gpus == 1
    assert found.hours == pytest.approx(60 * (18 + 36) / 12 / 3600)
    assert (found.low, found.high) == pytest.approx((60 * 18 / 6 / 3600, 60 * 36 / 6 / 3600))


def test_nothing_is_claimed_where_nothing_is_known(tmp_path: Path) -> None:
    assert asked(tmp_path) is None, "no database"
    recorded(tmp_path, (SPEC, 19.0, "H100"))
    assert asked(tmp_path, token_budget=999) is None
    own = Forecast(1.0, 1.0, 1.0, 0, "history: this run")
    assert asked(tmp_path, own=own, token_budget=999) == own


def test_samples_that_are_timed_one_at_a_time_are_counted_or_said_not_to_be(tmp_path: Path) -> None:
    batches = replace(SPEC, concurrency=8)
    launch = LAUNCH.changed(concurrency=8, latency_sample=10)
    recorded(tmp_path, (batches, 19.0, "H100"))

    def told(number: int = 60) -> Forecast:
        spec = replace(batches, seed=9)
        found = forecast(launch, spec, number, tmp_path / "warehouse.duckdb", to_time=10)
        assert found is not None
        return found

    without = told()
    assert without.not_timed == 10
    assert without.hours == pytest.approx(60 * 18 / 6 / 3600)
    [name] = recorded(tmp_path, (SPEC, 37.0, "H100"))
    timed = told()
    assert timed.not_timed == 0
    assert f"history: {name}" in timed.source
    assert timed.hours == pytest.approx((60 * 18 + 10 * 36) / 6 / 3600), "a run with one sample in flight tells"
    assert told(number=0).hours == pytest.approx(10 * 36 / 6 / 3600), "of a run that has only its timing left"
