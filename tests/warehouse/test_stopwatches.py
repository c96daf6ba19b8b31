"""Every paper's definition of latency, against numbers worked out by hand from the same calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from harness.trace import Trace
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import units
from tests.warehouse import runs
from tests.warehouse.conftest import LATENCIES, Ask, Loaded
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run

ONE_PROBLEM = replace(runs.VANILLA, num_problems=1, samples=4)


def values(ask: Ask, folder: RunFolder, stopwatch: str) -> dict[str, float]:
    """The values of a run's problems by one definition."""
    rows = [row for row in ask("problem_stopwatch", folder) if row["stopwatch"] == stopwatch]
    return {row["problem_id"]: row["value"] for row in rows}


def results(ask: Ask, folder: RunFolder) -> dict[str, float]:
    """The value of a run by every definition that has one."""
    return {row["stopwatch"]: row["value"] for row in ask("run_stopwatch", folder)}


def measured(where: Path, folder: RunFolder, attempts: Mapping[str, list[Trace]]) -> dict[str, float]:
    """The values of a run whose attempts started one after the other."""
    for place, (name, traces) in enumerate(attempts.items()):
        attempt = replace(runs.attempt(folder.path.name, name), started_at=runs.START + 1000 * place)
        trace_files.write_table(
            folder.trace_files_dir / f"{name}.parquet",
            trace_files.TRACES,
            [asdict(trace) for trace in traces],
            {"attempt": json.dumps(asdict(attempt))},
        )
    load_run(folder, where / "w.duckdb")
    with reader(where / "w.duckdb") as connection:
        return results(Ask(connection), folder)


def test_measured_time_is_a_mean_of_problem_means(loaded: Loaded, ask: Ask) -> None:
    assert results(ask, loaded.speculative)["measured"] == pytest.approx((10 + 12 + 16) / 3)
    assert values(ask, loaded.vanilla, "measured") == {"toy/0": 22.0, "toy/1": 30.0, "toy/2": 38.0}


def test_scot_leaves_the_final_answer_out(loaded: Loaded, ask: Ask) -> None:
    """The answers are calls of 1.5 s."""
    assert values(ask, loaded.speculative, "scot") == {"toy/0": 8.5, "toy/1": 10.5, "toy/2": 14.5}
    assert results(ask, loaded.vanilla)["scot"] == pytest.approx(30)  # these chains have no </think>


def test_an_answer_in_the_same_call_takes_its_share_of_the_tokens_time(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, runs.VANILLA)
    trace = runs.vanilla(runs.planned(folder)[0], latency=20.0)
    trace.steps = [runs.step("target", "chain", "30 characters of a thought</think>" + "a" * 11, 40, 20.0)]
    outcome = measured(tmp_path, folder, {"a0": [trace]})
    share = 11 / len(trace.steps[0].text)
    assert outcome["scot"] == pytest.approx(20 - share * (19 - 0.35))


def test_rates_are_a_mean_over_problems_or_of_all_tokens(loaded: Loaded, ask: Ask) -> None:
    """18 tokens in each of 10, 12 and 16 s."""
    outcome = results(ask, loaded.speculative)
    assert outcome["lookahead"] == pytest.approx((18 / 10 + 18 / 12 + 18 / 16) / 3)
    assert outcome["speculative_thinking"] == pytest.approx(54 / 38)


def test_splitreason_counts_the_prompt_of_a_method_and_not_of_a_baseline(loaded: Loaded, ask: Ask) -> None:
    """The first call of every sample has a prompt of 100 tokens."""
    assert results(ask, loaded.speculative)["splitreason"] == pytest.approx((10 + 12 + 16) / 3 / (18 + 100))
    seconds_per_token = [seconds / (40 + i) for i, seconds in enumerate(LATENCIES)]
    assert results(ask, loaded.vanilla)["splitreason"] == pytest.approx(sum(seconds_per_token) / 6)


def test_relaygen_drops_a_problems_fastest_and_slowest_sample(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, ONE_PROBLEM)
    times = zip(runs.planned(folder), (10.0, 50.0, 20.0, 24.0), strict=True)
    outcome = measured(tmp_path, folder, {"a0": [runs.vanilla(unit, latency=seconds) for unit, seconds in times]})
    assert outcome["relaygen"] == pytest.approx(22)
    assert outcome["measured"] == pytest.approx(26)
    assert outcome["glimprouter"] == pytest.approx(104)


def test_glimprouter_adds_nothing_for_what_an_earlier_attempt_finished(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    planned = units(ONE_PROBLEM, runs.PROBLEMS[:1])
    folder.create(ONE_PROBLEM, runs.PROBLEMS[:1], [planned])
    first, second, third, failed = [runs.vanilla(unit, latency=20.0) for unit in planned]
    second.num_attempts, second.latency_seconds = 2, 30.0
    runs.ended(failed, "error", "RequestRefused: too long")
    outcome = measured(tmp_path, folder, {"a0": [first], "a1": [second, third, failed]})
    assert outcome["glimprouter"] == pytest.approx(0 + 30 + 20 + 20)
    assert outcome["measured"] == pytest.approx(20)  # the first and the third
    assert "rsd" not in outcome  # the second was resumed
    with reader(tmp_path / "w.duckdb") as connection:
        [serial] = rows(connection, "FROM problem_stopwatch WHERE stopwatch = 'glimprouter'")
        timed = rows(connection, "SELECT sample_id FROM timed_sample")
    assert serial["num_samples"] == 4
    assert {row["sample_id"] for row in timed} == {first.sample_id, third.sample_id}


def test_rsd_has_one_clock_for_every_worker_and_pauses_do_not_count(tmp_path: Path) -> None:
    """Calls of 19 s at 0 s and 5 s, which overlap, and of 9 s at 5,000 s by a second worker; a failed one counts."""
    folder = runs.create(tmp_path, replace(runs.VANILLA, num_problems=1, samples=3))
    first, second, third = [runs.vanilla(unit, latency=20.0) for unit in runs.planned(folder)]
    second.calls = [runs.call("chain", "target", 0, 40, at=5.0, seconds=19.0)]
    third.calls = [runs.call("chain", "target", 0, 40, at=5000.0, seconds=9.0)]
    runs.ended(second, "error", "RequestRefused: too long")
    outcome = measured(tmp_path, folder, {"a0": [first, second], "a1": [third]})
    assert outcome["rsd"] == pytest.approx(24 + 9)
