"""Output about a run: durations, and a table of shards."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.cli.number_format import duration
from harness.cli.screen import Screen
from jobs.slurm.client import Task
from jobs.watch.status import RunStatus, ShardStatus, page


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (89.4, "89 s"), (90, "2 min"), (12 * 60, "12 min"), (90 * 60, "1 h 30 min"), (12_000, "3 h 20 min")],
)
def test_a_duration_has_the_unit_that_fits(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def printed(status: RunStatus) -> str:
    text = io.StringIO()
    Screen(Console(file=text, width=120)).show(page(status))
    return text.getvalue()


def a_run(shards: list[ShardStatus]) -> RunStatus:
    return RunStatus("demo-speccot-13723b16", shards)


def test_a_stopped_shard_is_listed_with_its_task_and_its_last_error() -> None:
    task = Task("run.0", 1, "40_1", "FAILED", "n7", elapsed_seconds=120)
    text = printed(
        a_run([ShardStatus(0, 8, 8, 0, "finished"), ShardStatus(1, 8, 3, 1, "stopped", task, "MemoryError")])
    )
    assert "11 of 16 samples finished (69%) · 1 failed" in text
    assert "shards: 1 finished, 1 stopped" in text
    assert "  node  elapsed  last error or reason" in text
    [row] = [line for line in text.splitlines() if "stopped" in line and "shards:" not in line]
    assert row.split() == ["1", "3/8", "1", "stopped", "40_1", "n7", "2", "min", "MemoryError"]


def test_samples_of_workers_that_have_ended_are_not_in_flight() -> None:
    shards = [
        ShardStatus(0, 8, 3, 0, "running", num_begun=2, has_worker=True),
        ShardStatus(1, 8, 3, 0, "stopped", num_begun=2),
        ShardStatus(2, 8, 3, 0, "queued", num_begun=2),
    ]
    assert "9 of 24 samples finished (38%) · 2 in flight" in printed(a_run(shards))


def test_of_many_shards_only_those_that_stopped_are_listed() -> None:
    shards = [ShardStatus(number, 1, state="queued") for number in range(99)]
    text = printed(a_run([*shards, ShardStatus(99, 1, state="stopped")]))
    assert "shards: 99 queued, 1 stopped" in text
    assert [line.split()[0] for line in text.splitlines()[2:]] == ["shard", "99"]
