"""Three places decide which record of a sample counts: jobs.run.trace_files, jobs.run.endings and loading in SQL."""

from __future__ import annotations

import shutil
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.trace import StopReason
from jobs.run import retries
from jobs.run.endings import read_endings
from jobs.run.trace_files import FAILED, counting_records
from tests.warehouse import runs
from warehouse.database import writer
from warehouse.loading.runs import load_into

NUM_SAMPLES = 6
REASONS: list[StopReason] = ["answered", "budget", "error"]
TRACE_FILES = st.lists(
    st.tuples(st.dictionaries(st.integers(0, NUM_SAMPLES - 1), st.sampled_from(REASONS)), st.booleans()), max_size=4
)
"""Of each trace file: the stop reasons of the samples in it, and whether the file is damaged."""


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=TRACE_FILES, num_grants=st.integers(0, 2))
def test_all_three_agree_on_retries_and_damaged_files(
    tmp_path: Path, contents: list[tuple[dict[int, StopReason], bool]], num_grants: int
) -> None:
    shutil.rmtree(tmp_path / "runs", ignore_errors=True)
    folder = runs.create(tmp_path / "runs")
    units = runs.planned(folder)
    expected: dict[str, tuple[str, str]] = {}
    num_failures: dict[str, int] = {}
    for number, (reasons, is_damaged) in enumerate(contents):
        traces = [runs.ended(runs.vanilla(units[index]), reason) for index, reason in reasons.items()]
        path = runs.write_part(folder, traces, f"a{number}")
        if is_damaged:
            runs.truncated(path)
            continue
        for trace in traces:
            assert trace.stop_reason is not None
            num_failures[trace.sample_id] = num_failures.get(trace.sample_id, 0) + (trace.stop_reason == FAILED)
            counting = expected.setdefault(trace.sample_id, (f"a{number}", trace.stop_reason))
            if counting[1] == FAILED != trace.stop_reason:
                expected[trace.sample_id] = (f"a{number}", trace.stop_reason)
    failed = {sample for sample, (_, reason) in expected.items() if reason == FAILED}

    assert {row["sample_id"]: row["stop_reason"] for row in counting_records(folder, [])} == {
        sample: reason for sample, (_, reason) in expected.items()
    }
    assert {row["sample_id"] for row in counting_records(folder, [], failed=False)} == expected.keys() - failed
    endings = read_endings(folder)
    assert set(endings.finished.to_pylist()) == expected.keys()
    assert set(endings.failed.to_pylist()) == failed
    with writer(tmp_path / "warehouse.duckdb") as connection:
        load_into(connection, folder)
        sql = "SELECT sample_id, attempt_id, stop_reason FROM sample WHERE stop_reason IS NOT NULL"
        loaded = {sample: (attempt, reason) for sample, attempt, reason in connection.execute(sql).fetchall()}
    assert loaded == expected

    for _ in range(num_grants):
        retries.grant(folder, read_endings(folder).failed.to_pylist(), NUM_SAMPLES)
    to_retry = {sample for sample in failed if num_failures[sample] <= num_grants}
    assert set(read_endings(folder).failed.to_pylist()) == failed - to_retry
    assert {row["sample_id"] for row in counting_records(folder, [])} == expected.keys()
