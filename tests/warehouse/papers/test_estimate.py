"""Every run of every suite has one estimate, near the latency that its paper publishes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

import pytest

from harness.hardware import Hardware, Speeds
from harness.launch_options import Launch
from warehouse.papers import published, suite
from warehouse.papers.conditions import num_problems
from warehouse.papers.estimate import Estimate, Machine, estimate, from_history, papers_machine
from warehouse.papers.published import Setting, num_gpus
from warehouse.papers.suite import Planned, Suite

CONTRADICTIONS = {
    # Tables 1 and 4 have 10.94 s and 33.13 s for what takes 4.5 s and 10.6 s in table 2.
    ("speccot-table1", "Distill-Qwen", "b1"),
    ("speccot-table2", "RQwen-1.5B", "gsm8k"),
    ("speccot-table2", "RQwen-1.5B", "math500"),
    ("speccot-table4", "RQwen-1.5B", "gsm8k_4"),
    ("speccot-table4", "RQwen-1.5B", "math500_4"),
}
Run = tuple[Suite, Planned, Launch, Setting]


@lru_cache(maxsize=1)
def every_run() -> tuple[Run, ...]:
    return tuple(_every_run())


def _every_run() -> Iterator[Run]:
    for name in suite.names():
        loaded = suite.load(name)
        for plan in suite.planned(loaded):
            if not plan.row.awaits:
                launch = suite.launch_of(plan.flags)
                yield loaded, plan, launch, published.setting(loaded, plan, launch)


def estimated(loaded: Suite, launch: Launch, own: Setting, machine: Machine | None = None) -> Estimate:
    result = estimate(launch, own, own, published.everything(), machine or papers_machine(loaded))
    assert result is not None
    return result


def the_run(name: str, label: str, column: str) -> Run:
    return next(run for run in every_run() if (run[0].name, run[1].row.label, run[1].column) == (name, label, column))


def test_suites_that_share_a_run_agree_on_what_it_takes() -> None:
    hours: dict[tuple[Setting, int], set[float]] = defaultdict(set)
    suites: dict[tuple[Setting, int], set[str]] = defaultdict(set)
    for loaded, _, launch, own in every_run():
        key = (own, num_problems(launch) * launch.samples)
        hours[key].add(estimated(loaded, launch, own).gpu_hours)
        suites[key].add(loaded.name)
    assert sum(len(names) > 1 for names in suites.values()) >= 25
    assert [suites[key] for key, values in hours.items() if len(values) > 1] == []


def test_an_estimate_is_within_a_quarter_of_what_the_published_latency_implies() -> None:
    checked = 0
    for loaded, plan, launch, own in every_run():
        # Where a paper prints a time under another dataset's name, the run is that other column's.
        column = next((key for key, c in loaded.columns.items() if c.costs_of == plan.column), plan.column)
        cell = plan.row.values.get(column, {})
        seconds = next((cell[m] for m in cell if loaded.metrics[m].measure == "latency_seconds"), None)
        if seconds is None:
            continue
        thought_alone = loaded.name == "scot-table1"
        whole = seconds + answer_seconds(plan) if thought_alone else seconds
        samples = num_problems(launch) * launch.samples
        implied = whole * samples / launch.concurrency * num_gpus(launch) / 3600
        hours = estimated(loaded, launch, own).gpu_hours
        key = (loaded.name, plan.row.label, plan.column)
        if key in CONTRADICTIONS:
            assert "the paper contradicts itself" in estimated(loaded, launch, own).source, key
        else:
            assert hours == pytest.approx(implied, rel=0.25), key
        checked += 1
    assert checked >= 65


def answer_seconds(plan: Planned) -> float:
    """Seconds of the answers of SCoT's table 3, at the speed of the target's thought in table 1."""
    first, third = (suite.load(f"scot-table{number}").rows for number in (1, 3))
    place = [row.label for row in first].index(plan.row.label)
    alone = first[0].values[plan.column]
    return third[place].values[plan.column]["tokens"] * alone["latency"] / alone["target_tokens"]


def test_two_gpus_cost_two_gpus() -> None:
    for gpus, seconds in ((2, 51.86), (4, 33.5)):
        loaded, _, launch, own = the_run("speccot-table4", "QwQ-32B", f"gsm8k_{gpus}")
        assert estimated(loaded, launch, own).gpu_hours == pytest.approx(gpus * seconds * 6595 / 3600, rel=0.01)


def test_an_answer_s_length_is_not_taken_for_that_of_the_whole_sample() -> None:
    """SCoT's table 3 has 314 tokens of answer; the run, which table 1 shares, writes 302 more before it."""
    loaded, _, launch, own = the_run("scot-table3", "Deepseek-R1-Distill-Qwen-32B", "gsm8k")
    other = Machine(papers_machine(loaded).hardware, is_papers=False)
    assert estimated(loaded, launch, own, other).source == "model: 616 tokens, scot-table1, scot-table3"


def test_a_run_of_several_samples_in_flight_has_the_published_tokens_and_not_the_latency_of_one() -> None:
    loaded, _, launch, own = the_run("speccot-figure3", "QwQ-32B", "gsm8k")
    assert launch.concurrency > 1
    assert estimated(loaded, launch, own).source == "model: 2,054 tokens, speccot-table2"


def test_fewer_samples_than_may_be_in_flight_take_as_long_as_one_of_them() -> None:
    loaded, _, launch, own = the_run("speccot-table6", "128", "gsm8k")
    start = papers_machine(loaded).hardware.start_seconds
    by_size = {
        limit: estimated(loaded, launch.model_copy(update={"limit": limit, "samples": 1}), own).worker_hours * 3600
        - start
        for limit in (1, 128, 256)
    }
    assert by_size[1] == pytest.approx(by_size[128])
    assert by_size[256] == pytest.approx(2 * by_size[128])


def test_token_level_speculation_has_an_estimate_that_says_what_it_leaves_out() -> None:
    loaded, _, launch, own = the_run("specreason-figure3", "SpecDecode", "gpqa")
    source = estimated(loaded, launch, own).source
    assert source.startswith("model: ")
    assert source.endswith("half of the token budget, a guess, without the gain of token-level speculation")


def test_an_estimate_follows_a_published_ratio_where_only_one_latency_is_published() -> None:
    """SpecReason's base model: 2.5 times the 69.2 s of figure 4."""
    loaded, _, launch, own = the_run("specreason-figure3", "base model", "math500")
    assert estimated(loaded, launch, own).gpu_hours == pytest.approx(2.5 * 69.2 * 1600 * 2 / 3600, rel=0.01)


def test_another_machine_s_speeds_replace_the_papers_latencies() -> None:
    speeds = Speeds(output_tokens_per_second=100, prompt_tokens_per_second=1e9)
    other = Machine(Hardware(name="m", source="s", gpus=2, draft=speeds, target=speeds), is_papers=False)
    loaded, _, launch, own = the_run("speccot-table2", "QwQ-32B", "gsm8k")
    hours = estimated(loaded, launch, own, other)
    assert hours.worker_hours == pytest.approx(2053.8 / 100 * 6595 / 3600, rel=0.001)
    assert hours.gpu_hours == pytest.approx(2 * hours.worker_hours)


def test_other_models_are_given_the_published_tokens_of_the_papers_models() -> None:
    loaded, plan, launch, of_paper = the_run("speccot-table2", "QwQ-32B", "gsm8k")
    ours = launch.changed(target="org/other")
    own = published.setting(loaded, plan, ours)
    result = estimate(ours, own, of_paper, published.everything(), papers_machine(loaded))
    assert result is not None
    assert result.source == "model: 2,054 tokens, speccot-table2"


def test_history_is_scaled_to_the_planned_samples() -> None:
    _, _, launch, _ = the_run("speccot-table2", "SpecCoT, QwQ-32B", "gsm8k")
    parallel = {"engine_draft_tensor_parallel": 4, "engine_target_tensor_parallel": 4}
    recorded = {"run_id": "r", "devices": "d", "wall_seconds": 7200.0, "num_finished": 2, "num_gpus": 4, **parallel}
    result = from_history(launch, recorded)
    assert result is not None
    assert result.worker_hours == pytest.approx(1.0 * num_problems(launch) * 5)
    assert result.gpu_hours == pytest.approx(4 * result.worker_hours)
    assert from_history(launch, {**recorded, "wall_seconds": None}) is None
    assert from_history(launch, {**recorded, "engine_target_tensor_parallel": 2}) is None
