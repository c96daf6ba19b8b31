"""A run to which nothing happens completes; its failed samples are retried by a separate job, and each counts once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.run import trace_files
from tests.slurm.conftest import Launched, assert_whole, harness, wait_for, warehouse

pytestmark = pytest.mark.slurm


def test_an_undisturbed_run_completes_and_its_failed_samples_are_retried(
    launch: Callable[..., Launched], undisturbed: dict[str, str]
) -> None:
    launched = launch(seconds=0.02, shards=4)
    wait_for(launched.has_ended, "the end", 180)
    now = launched.status()
    assert (now.finished, now.planned, now.states["finished"]) == (80, 80, 4)
    assert_whole(launched.run, undisturbed)
    trace_file = launched.run.trace_files()[0]
    rows = trace_files.read_rows(trace_file)
    for row in rows[:2]:
        row["stop_reason"] = "error"
    trace_files.write_table(trace_file, trace_files.TRACES, rows, trace_files.read_metadata(trace_file))
    assert launched.status().failed == 2
    output = harness("jobs", "retry-failed", str(launched.run.path), environment=launched.environment)
    assert {"2", "Submitted", "1"} <= set(output.split())
    wait_for(launched.has_ended, "the retry's end", 120)
    assert (launched.status().finished, launched.status().failed) == (80, 0)
    assert_whole(launched.run, undisturbed)
    assert warehouse(launched.run, "SELECT count(*) FROM sample WHERE stop_reason = 'error'") == [(0,)]
    output = harness("jobs", "retry-failed", str(launched.run.path), environment=launched.environment)
    assert "Submitted" not in output
