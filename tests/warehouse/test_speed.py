"""Speed: every definition of latency, against numbers worked out here from the same calls."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from harness.trace import Trace
from jobs.run.folder import RunFolder
from jobs.run.spec import units
from tests.warehouse import runs
from tests.warehouse.cells import select
from tests.warehouse.conftest import LATENCIES, Ask, Loaded, views
from warehouse.database import reader
from warehouse.loading.runs import load_runs
from warehouse.statistics.ratios import ratio

OWN = [10.0, 12.0, 16.0]
BASE = [statistics.mean(LATENCIES[0::3]), statistics.mean(LATENCIES[1::3]), LATENCIES[2]]
"""Latencies by problem of the speculative run and of its baseline, without the sample that the former has not run."""
TIMED = slice(0, 3)
"""Of the five finished samples the fourth was resumed and the fifth failed."""


def test_the_parts_of_latency_sum_to_it(loaded: Loaded, ask: Ask) -> None:
    parts = {row["part"]: row for row in ask("latency_split", loaded.speculative)}
    calls = [call for trace in loaded.traces[TIMED] for call in trace.calls]

    def running(purpose: str) -> float:
        return sum(c.end_seconds - c.queued_seconds for c in calls if c.purpose == purpose)

    seconds = {purpose: running(purpose) for purpose in ("guidance", "verdict", "fallback", "answer")}
    seconds |= {"drafting": running("draft"), "queueing": sum(c.queued_seconds for c in calls)}
    seconds["overhead"] = 38 - sum(c.end_seconds for c in calls)
    found = {part: row["seconds_per_sample"] for part, row in parts.items()}
    assert found == pytest.approx({part: value / 3 for part, value in seconds.items()})
    assert sum(found.values()) == pytest.approx(38 / 3)
    assert sum(row["share"] for row in parts.values()) == pytest.approx(1)


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[Ask]:
    """Two samples that looked ahead: used and 10 s, discarded and 12 s."""
    folder = runs.create(tmp_path, replace(runs.SPEC, method="specreason", params={"lookahead": True}))
    used, refused = runs.planned(folder)[:2]
    with views(folder, [runs.lookahead(used), runs.lookahead(refused, refused=True, latency=12.0)]) as ask:
        yield ask


def test_what_overlaps_counts_once_in_the_latency_split(ahead: Ask) -> None:
    """Each call queues for 0.25 s; a draft of 1.5 s begun under a verdict of 1 s was waited for 0.5 s, its queueing
    not."""
    seconds = {row["part"]: row["seconds_per_sample"] for row in ahead("latency_split")}
    assert seconds == {
        "drafting": pytest.approx((1.75 + 0.5 + 1.75 + 1.25) / 2),
        "verdict": pytest.approx(4 * 0.75 / 2),
        "fallback": pytest.approx(1.75 / 2),
        "queueing": pytest.approx(8 * 0.25 / 2),
        "overhead": pytest.approx((22 - (2 + 1 + 0.5 + 1) - (2 + 1 + 2 + 1.5 + 1)) / 2),
    }
    assert sum(seconds.values()) == pytest.approx(11)


def test_a_discarded_lookahead_is_spent_and_not_on_the_critical_path(ahead: Ask) -> None:
    [split] = [row for row in ahead("token_split") if row["model"] == "draft"]
    assert split["spent_tokens"] == 6 + 4 + 6 + 5 + 4
    assert split["critical_path_tokens"] == 6 + 4 + 6 + 4
    assert split["emitted_tokens"] == 6 + 4 + 4
    purposes = {row["purpose"]: row["num_calls"] for row in ahead("call_total") if row["model"] == "draft"}
    assert purposes == {"draft": 4, "lookahead": 1}
    [speed] = [row for row in ahead("call_speed") if row["model"] == "draft"]
    assert (speed["output_tokens"], speed["call_seconds"]) == pytest.approx((25, 1.75 + 1.25 + 1.75 + 2.75 + 1.25))


def test_throughput_is_without_start_and_tail_and_a_straggler_is_no_lower_load(tmp_path: Path) -> None:
    """Two slots, six samples of 10 s each in turn; the last of one slot takes 110 s."""

    def run_of(samples: int, tag: str) -> RunFolder:
        folder = runs.create(tmp_path, replace(runs.VANILLA, concurrency=2, samples=samples, tag=tag))
        planned = runs.planned(folder)
        traces = [runs.vanilla(unit, 40, 110.0 if unit is planned[-1] else 10.0) for unit in planned]
        for place, trace in enumerate(traces):
            trace.started_at += 10 * (place // 2)
        return runs.write(folder, traces)

    enough, few = run_of(4, "enough"), run_of(2, "few")
    list(load_runs([enough, few], tmp_path / "w.duckdb"))
    with reader(tmp_path / "w.duckdb") as connection:
        [row] = Ask(connection)("run_throughput", enough)
        assert Ask(connection)("run_throughput", few)[0]["samples_per_second"] is None, "three per slot"
    assert row["samples_per_second"] == pytest.approx((11 + 10 / 110) / 60)
    assert row["emitted_tokens_per_second"] == pytest.approx(40 * (11 + 10 / 110) / 60)
    assert row["median_samples_in_flight"] == 2


def test_which_engines_are_at_work(loaded: Loaded, ask: Ask, ahead: Ask) -> None:
    """Against a count in steps of 1/64 s; all times are multiples of 1/4 s."""
    calls = [call for trace in loaded.traces[TIMED] for call in trace.calls]
    spans = [(c.model, c.submitted_at + c.queued_seconds, c.submitted_at + c.end_seconds) for c in calls]
    begin, end = min(span[1] for span in spans), max(span[2] for span in spans)
    moments = [begin + (i + 0.5) / 64 for i in range(round((end - begin) * 64))]
    seen = [frozenset(str(model) for model, start, stop in spans if start < moment < stop) for moment in moments]
    [row] = ask("engine_overlap", loaded.speculative)
    for column, engines in (
        ("share_draft_alone", {"draft"}),
        ("share_target_alone", {"target"}),
        ("share_both", {"draft", "target"}),
        ("share_idle", set()),
    ):
        assert row[column] == pytest.approx(seen.count(frozenset(engines)) / len(seen)), column
    assert row["wall_seconds"] == pytest.approx(end - begin)
    assert ahead("engine_overlap")[0]["share_both"] > 0


def test_the_speed_up_is_paired_by_problem_and_has_the_ratio_of_means_beside_it(loaded: Loaded, ask: Ask) -> None:
    """The sample that was not run counts in neither run. Emitted tokens: 18 each against 41.5, 42.5, 42."""
    [row] = ask("speed_up", loaded.speculative)
    logs = [math.log(base / own) for base, own in zip(BASE, OWN, strict=True)]
    lengths = [math.log(18 / tokens) for tokens in (41.5, 42.5, 42)]
    assert (row["baseline_run_id"], row["n"], row["regime"]) == (loaded.vanilla.path.name, 3, "latency")
    assert row["speed_up"] == pytest.approx(math.exp(statistics.mean(logs)))
    of_both = ratio([np.array(BASE)], [np.array(OWN)])
    interval, means = of_both.geometric_mean, of_both.of_means
    assert (row["low_95"], row["high_95"]) == pytest.approx((interval.low, interval.high))
    assert (row["interval_kind"], row["run_factor"]) == ("t", None), "three problems are too few to resample"
    assert (row["num_runs"], row["num_runs_of_baseline"]) == (1, 1)
    assert row["chain_length_ratio"] == pytest.approx(math.exp(statistics.mean(lengths)))
    assert row["speed_up"] == pytest.approx(row["rate_ratio"] / row["chain_length_ratio"])
    assert row["ratio_of_means"] == pytest.approx(92 / 38), "as papers publish it"
    assert (row["ratio_of_means_low_95"], row["ratio_of_means_high_95"]) == pytest.approx((means.low, means.high))
    assert row["same_versions"]
    assert ask("speed_up", loaded.vanilla) == []


ONE_PROBLEM = replace(runs.VANILLA, num_problems=1, samples=4)


def values(ask: Ask, folder: RunFolder, stopwatch: str) -> dict[str, float]:
    """The values of a run's problems by one definition of latency."""
    rows = [row for row in ask("problem_stopwatch", folder) if row["stopwatch"] == stopwatch]
    return {row["problem_id"]: row["value"] for row in rows}


def results(ask: Ask, folder: RunFolder | None = None) -> dict[str, float]:
    """The value of a run by every definition that has one."""
    return {row["stopwatch"]: row["value"] for row in ask("run_stopwatch", folder)}


def measured(folder: RunFolder, attempts: Mapping[str, list[Trace]]) -> dict[str, float]:
    """The values of a run whose attempts started one after the other."""
    for place, (name, traces) in enumerate(attempts.items()):
        runs.write_part(folder, traces, name, started_at=runs.START + 1000 * place)
    with views(folder) as ask:
        return results(ask)


def test_every_papers_latency_of_a_run_and_of_its_baseline(loaded: Loaded, ask: Ask) -> None:
    """Of the run 10, 12 and 16 s, 18 tokens in each; its answers are calls of 1.5 s, and its first prompts 100
    tokens. The baseline's chains have no </think>, and splitreason counts no prompt of a baseline."""
    own, base = results(ask, loaded.speculative), results(ask, loaded.vanilla)
    assert {name: own[name] for name in ("measured", "lookahead", "speculative_thinking", "splitreason")} == {
        "measured": pytest.approx(38 / 3),
        "lookahead": pytest.approx((18 / 10 + 18 / 12 + 18 / 16) / 3),
        "speculative_thinking": pytest.approx(54 / 38),
        "splitreason": pytest.approx(38 / 3 / (18 + 100)),
    }
    seconds_per_token = [seconds / (40 + i) for i, seconds in enumerate(LATENCIES)]
    assert [base["scot"], base["splitreason"]] == pytest.approx([30, sum(seconds_per_token) / 6])
    assert values(ask, loaded.speculative, "scot") == {"toy/0": 8.5, "toy/1": 10.5, "toy/2": 14.5}
    assert values(ask, loaded.vanilla, "measured") == {"toy/0": 22.0, "toy/1": 30.0, "toy/2": 38.0}


def test_an_answer_in_the_same_call_takes_its_share_of_the_tokens_time(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, runs.VANILLA)
    trace = runs.vanilla(runs.planned(folder)[0], latency=20.0)
    trace.steps = [runs.step("target", "chain", "30 characters of a thought</think>" + "a" * 11, 40, 20.0)]
    share = 11 / len(trace.steps[0].text)
    assert measured(folder, {"a0": [trace]})["scot"] == pytest.approx(20 - share * (19 - 0.35))


def test_relaygen_drops_a_problems_fastest_and_slowest_sample(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, ONE_PROBLEM)
    times = zip(runs.planned(folder), (10.0, 50.0, 20.0, 24.0), strict=True)
    outcome = measured(folder, {"a0": [runs.vanilla(unit, latency=seconds) for unit, seconds in times]})
    assert [outcome[name] for name in ("relaygen", "measured", "glimprouter")] == pytest.approx([22, 26, 104])


def test_glimprouter_adds_nothing_for_what_an_earlier_attempt_finished(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    planned = units(ONE_PROBLEM, runs.PROBLEMS[:1])
    folder.create(ONE_PROBLEM, runs.PROBLEMS[:1], [planned])
    first, second, third, failed = [runs.vanilla(unit, latency=20.0) for unit in planned]
    second.num_attempts, second.latency_seconds = 2, 30.0
    runs.ended(failed, "error", "RequestRefused: too long")
    outcome = measured(folder, {"a0": [first], "a1": [second, third, failed]})
    assert outcome["glimprouter"] == pytest.approx(0 + 30 + 20 + 20)
    assert outcome["measured"] == pytest.approx(20)  # the first and the third
    assert "rsd" not in outcome  # the second was resumed
    [serial] = select(tmp_path, "FROM problem_stopwatch WHERE stopwatch = 'glimprouter'")
    assert serial["num_samples"] == 4
    timed = {row["sample_id"] for row in select(tmp_path, "SELECT sample_id FROM timed_sample")}
    assert timed == {first.sample_id, third.sample_id}


def test_rsd_has_one_clock_for_every_worker_and_pauses_do_not_count(tmp_path: Path) -> None:
    """Calls of 19 s at 0 s and 5 s, which overlap, and of 9 s at 5,000 s by a second worker; a failed one counts."""
    folder = runs.create(tmp_path, replace(runs.VANILLA, num_problems=1, samples=3))
    first, second, third = [runs.vanilla(unit, latency=20.0) for unit in runs.planned(folder)]
    second.calls = [runs.call("chain", "target", 0, 40, at=5.0, seconds=19.0)]
    third.calls = [runs.call("chain", "target", 0, 40, at=5000.0, seconds=9.0)]
    runs.ended(second, "error", "RequestRefused: too long")
    assert measured(folder, {"a0": [first, second], "a1": [third]})["rsd"] == pytest.approx(24 + 9)


TARGET_TOKEN = (3 * 0.65 + 2.65 + 3 * 1.15) / (3 * 7 + 5 + 3 * 3)
"""Three timed samples: guidance of 8 tokens, one fallback of 6, answers of 4; first tokens come after 0.35 s."""
DRAFT_TOKEN = 3 * 1.65 / (3 * 5)
PREFILL = 0.1


def test_two_models_take_their_tokens_and_the_prefill_of_every_verdict(loaded: Loaded, ask: Ask) -> None:
    """As SpecReason's author models it. Refused drafts are in the time of the draft model; resumed, failed and
    unfinished samples have no row."""
    rows = {row["sample_id"]: row for row in ask("modelled_latency", loaded.speculative)}
    accepted, refused, cut_off = (trace.sample_id for trace in loaded.traces[:3])
    assert set(rows) == {accepted, refused, cut_off}
    drafted = 6 * DRAFT_TOKEN + PREFILL
    assert rows[accepted]["modelled_seconds"] == pytest.approx(drafted + (8 + 4) * TARGET_TOKEN)
    assert rows[refused]["modelled_seconds"] == pytest.approx(drafted + (8 + 6 + 4) * TARGET_TOKEN)
    assert rows[refused]["verdict_seconds"] == pytest.approx(PREFILL)
    assert rows[refused]["measured_seconds"] == 12.0


def test_one_model_takes_its_first_token_and_its_tokens(loaded: Loaded, ask: Ask) -> None:
    token = sum(latency - 1 - 0.35 for latency in LATENCIES) / sum(39 + i for i in range(6))
    rows = {row["sample_id"]: row for row in ask("modelled_latency", loaded.vanilla)}
    for i, trace in enumerate(loaded.baseline):
        assert rows[trace.sample_id]["modelled_seconds"] == pytest.approx(PREFILL + (40 + i) * token)
        assert rows[trace.sample_id]["verdict_seconds"] == 0


def test_a_discarded_lookahead_takes_no_modelled_time(tmp_path: Path) -> None:
    folder = runs.create(tmp_path, replace(runs.SPEC, method="specreason", params={"lookahead": True}))
    with views(folder, [runs.lookahead(runs.planned(folder)[0], refused=True)]) as ask:
        [row] = ask("modelled_latency")
    token = (1.65 + 1.15) / (5 + 3)  # drafts of 6 tokens in 2 s and of 4 tokens in 1.5 s
    found = [row[f"{part}_seconds"] for part in ("draft", "verdict", "target")]
    assert found == pytest.approx([(6 + 4) * token, 2 * PREFILL, 6 * 1.65 / 5])
