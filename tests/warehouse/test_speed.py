"""Speed: the views against numbers computed here from the same calls."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jobs.run.folder import RunFolder
from tests.warehouse import runs
from tests.warehouse.conftest import LATENCIES, Ask, Loaded
from warehouse.database import reader
from warehouse.loading.runs import load_run, load_runs
from warehouse.statistics.ratios import ratio

OWN = [10.0, 12.0, 16.0]
BASE = [statistics.mean(LATENCIES[0::3]), statistics.mean(LATENCIES[1::3]), LATENCIES[2]]
"""Latencies by problem of the speculative run and of its baseline, without the sample that the former has not run."""
TIMED = slice(0, 3)
"""Of the five finished samples the fourth was resumed and the fifth failed."""


def test_the_parts_of_latency_sum_to_it(loaded: Loaded, ask: Ask) -> None:
    parts = {row["part"]: row for row in ask("latency_split", loaded.speculative)}
    calls = [call for trace in loaded.traces[TIMED] for call in trace.calls]
    names = {
        "guidance": "guidance",
        "drafting": "draft",
        "verdict": "verdict",
        "fallback": "fallback",
        "answer": "answer",
    }
    for part, purpose in names.items():
        seconds = sum(c.end_seconds - c.queued_seconds for c in calls if c.purpose == purpose)
        assert parts[part]["seconds_per_sample"] == pytest.approx(seconds / 3)
    assert parts["queueing"]["seconds_per_sample"] == pytest.approx(sum(c.queued_seconds for c in calls) / 3)
    assert parts["overhead"]["seconds_per_sample"] == pytest.approx((38 - sum(c.end_seconds for c in calls)) / 3)
    assert set(parts) == {*names, "queueing", "overhead"}
    assert sum(row["seconds_per_sample"] for row in parts.values()) == pytest.approx(38 / 3)
    assert sum(row["share"] for row in parts.values()) == pytest.approx(1)


@pytest.fixture
def ahead(tmp_path: Path) -> Iterator[tuple[Ask, RunFolder]]:
    """Two samples that looked ahead: used and 10 s, discarded and 12 s."""
    folder = runs.create(tmp_path, replace(runs.SPEC, method="specreason", params={"lookahead": True}))
    used, refused = runs.planned(folder)[:2]
    runs.write_part(folder, [runs.lookahead(used), runs.lookahead(refused, refused=True, latency=12.0)])
    load_run(folder, tmp_path / "w.duckdb")
    with reader(tmp_path / "w.duckdb") as connection:
        yield Ask(connection), folder


def test_what_overlaps_counts_once_in_the_latency_split(ahead: tuple[Ask, RunFolder]) -> None:
    """Each call queues for 0.25 s; a draft of 1.5 s begun under a verdict of 1 s was waited for 0.5 s, its queueing
    not."""
    ask, folder = ahead
    seconds = {row["part"]: row["seconds_per_sample"] for row in ask("latency_split", folder)}
    assert seconds == {
        "drafting": pytest.approx((1.75 + 0.5 + 1.75 + 1.25) / 2),
        "verdict": pytest.approx(4 * 0.75 / 2),
        "fallback": pytest.approx(1.75 / 2),
        "queueing": pytest.approx(8 * 0.25 / 2),
        "overhead": pytest.approx((22 - (2 + 1 + 0.5 + 1) - (2 + 1 + 2 + 1.5 + 1)) / 2),
    }
    assert sum(seconds.values()) == pytest.approx(11)


def test_a_discarded_lookahead_is_spent_and_not_on_the_critical_path(ahead: tuple[Ask, RunFolder]) -> None:
    ask, folder = ahead
    split = {row["model"]: row for row in ask("token_split", folder)}
    assert split["draft"]["spent_tokens"] == 6 + 4 + 6 + 5 + 4
    assert split["draft"]["critical_path_tokens"] == 6 + 4 + 6 + 4
    assert split["draft"]["emitted_tokens"] == 6 + 4 + 4
    purposes = {row["purpose"]: row["num_calls"] for row in ask("call_total", folder) if row["model"] == "draft"}
    assert purposes == {"draft": 4, "lookahead": 1}
    speeds = {row["model"]: row for row in ask("call_speed", folder)}
    assert speeds["draft"]["output_tokens"] == 25
    assert speeds["draft"]["call_seconds"] == pytest.approx(1.75 + 1.25 + 1.75 + 2.75 + 1.25)


def test_throughput_is_without_start_and_tail_and_a_straggler_is_no_lower_load(tmp_path: Path) -> None:
    """Two slots, six samples of 10 s each in turn; the last of one slot takes 110 s."""

    def run_of(samples: int, tag: str) -> RunFolder:
        folder = runs.create(tmp_path, replace(runs.VANILLA, concurrency=2, samples=samples, tag=tag))
        units = runs.planned(folder)
        traces = [runs.vanilla(unit, 40, 110.0 if unit is units[-1] else 10.0) for unit in units]
        for place, trace in enumerate(traces):
            trace.started_at += 10 * (place // 2)
        runs.write_part(folder, traces)
        return folder

    enough, few = run_of(4, "enough"), run_of(2, "few")
    list(load_runs([enough, few], tmp_path / "w.duckdb"))
    with reader(tmp_path / "w.duckdb") as connection:
        [row] = Ask(connection)("run_throughput", enough)
        assert Ask(connection)("run_throughput", few)[0]["samples_per_second"] is None, "three per slot"
    assert row["samples_per_second"] == pytest.approx((11 + 10 / 110) / 60)
    assert row["emitted_tokens_per_second"] == pytest.approx(40 * (11 + 10 / 110) / 60)
    assert row["median_samples_in_flight"] == 2


def test_which_engines_are_at_work(loaded: Loaded, ask: Ask, ahead: tuple[Ask, RunFolder]) -> None:
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
    look, folder = ahead
    assert look("engine_overlap", folder)[0]["share_both"] > 0


def test_the_speed_up_is_paired_by_problem(loaded: Loaded, ask: Ask) -> None:
    """The sample that was not run counts in neither run. Emitted tokens: 18 each against 41.5, 42.5, 42."""
    [row] = ask("speed_up", loaded.speculative)
    logs = [math.log(base / own) for base, own in zip(BASE, OWN, strict=True)]
    lengths = [math.log(18 / tokens) for tokens in (41.5, 42.5, 42)]
    assert (row["baseline_run_id"], row["n"], row["regime"]) == (loaded.vanilla.path.name, 3, "latency")
    assert row["speed_up"] == pytest.approx(math.exp(statistics.mean(logs)))
    interval = ratio([np.array(BASE)], [np.array(OWN)]).geometric_mean
    assert (row["low_95"], row["high_95"]) == pytest.approx((interval.low, interval.high))
    assert (row["interval_kind"], row["run_factor"]) == ("t", None), "three problems are too few to resample"
    assert (row["num_runs"], row["num_runs_of_baseline"]) == (1, 1)
    assert row["chain_length_ratio"] == pytest.approx(math.exp(statistics.mean(lengths)))
    assert row["speed_up"] == pytest.approx(row["rate_ratio"] / row["chain_length_ratio"])
    assert row["same_versions"]
    assert ask("speed_up", loaded.vanilla) == []


def test_the_speed_up_has_the_ratio_of_means(loaded: Loaded, ask: Ask) -> None:
    """As papers publish it: 92 / 3 s on average against 38 / 3 s."""
    [row] = ask("speed_up", loaded.speculative)
    means = ratio([np.array(BASE)], [np.array(OWN)]).of_means
    assert row["ratio_of_means"] == pytest.approx(92 / 38)
    assert row["ratio_of_means_low_95"] == pytest.approx(means.low)
    assert row["ratio_of_means_high_95"] == pytest.approx(means.high)
