"""Every run of every suite whose latency follows from published ones has one estimate, near it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

import pytest

from harness.settings.launch_settings import Launch
from jobs.forecast import Forecast
from warehouse.suites import costs
from warehouse.suites import published as papers
from warehouse.suites.costs import Setting, from_published, num_gpus
from warehouse.suites.published import Planned, Suite, num_problems

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
    for name in papers.names():
        loaded = papers.load(name)
        for plan in papers.planned(loaded):
            launch = papers.launch_of(plan.flags)
            yield loaded, plan, launch, costs.setting(loaded, plan, launch)


def estimated(launch: Launch, own: Setting) -> Forecast:
    result = from_published(launch, own, costs.everything())
    assert result is not None
    return result


def test_suites_that_share_a_run_agree_on_what_it_takes() -> None:
    hours: dict[tuple[Setting, int], set[float]] = defaultdict(set)
    suites: dict[tuple[Setting, int], set[str]] = defaultdict(set)
    for loaded, _, launch, own in every_run():
        key = (own, num_problems(launch) * launch.samples)
        if found := from_published(launch, own, costs.everything()):
            hours[key].add(found.gpu_hours)
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
        samples = num_problems(launch) * launch.samples
        implied = seconds * samples / launch.concurrency * num_gpus(launch) / 3600
        hours = estimated(launch, own).gpu_hours
        key = (loaded.name, plan.row.label, plan.column)
        if key in CONTRADICTIONS:
            assert "contradicts" in estimated(launch, own).source, key
        else:
            assert hours == pytest.approx(implied, rel=0.25), key
        checked += 1
    assert checked >= 65
