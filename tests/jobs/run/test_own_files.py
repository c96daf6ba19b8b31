"""Which of a sample's records counts: for grading, scoring, drafts and comparisons of tokens alike."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from harness.chain.chain_scores import RewardModel
from harness.engines.scripted import ScriptedEngine
from jobs.finished.scoring import score
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.trace_files import counting_records
from tests.jobs.runs import finished_run


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """Two trace files."""
    return finished_run(tmp_path, samples=1, shards=2)


def files(run: RunFolder) -> list[Path]:
    paths = run.trace_files()
    assert paths
    return paths


def change(file: Path, number: int, **fields: Any) -> str:
    """Change one row and return the id of its sample."""
    rows = trace_files.read_rows(file)
    rows[number].update(fields)
    trace_files.write_table(file, trace_files.TRACES, rows, trace_files.read_metadata(file))
    return str(rows[number]["sample_id"])


def damage(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def test_the_first_record_without_an_error_counts_else_the_first(run: RunFolder) -> None:
    first, second = files(run)
    later = trace_files.read_rows(second)
    failed = change(first, 0, stop_reason="error", error="early")
    trace_files.write_table(second, trace_files.TRACES, [*later, {**later[0], "sample_id": failed, "seed": 5}])
    hopeless = change(first, 1, stop_reason="error", error="both times")
    rows = {row["sample_id"]: row for row in counting_records(run, ["seed", "error"])}
    assert len(rows) == 8
    assert (rows[failed]["seed"], rows[failed]["error"]) == (5, None)
    assert rows[hopeless]["error"] == "both times"
    assert {row["sample_id"] for row in counting_records(run, [], failed=False)} == rows.keys() - {hopeless}


def test_a_damaged_file_costs_its_samples_and_nothing_else(run: RunFolder) -> None:
    first, second = files(run)
    readable_ids = {row["sample_id"] for row in trace_files.read_rows(second)}
    damage(first)
    assert {row["sample_id"] for row in counting_records(run, [])} == readable_ids
    model = RewardModel(ScriptedEngine(lambda prompt, sampling: [""], lambda prompt, labels: [0.3, 0.1]))
    asyncio.run(score(run, model, "toy@1/1"))
    [scored] = run.derived("scores")
    assert {row["sample_id"] for row in trace_files.read_rows(scored)} == readable_ids
