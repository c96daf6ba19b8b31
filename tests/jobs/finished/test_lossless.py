"""The first difference between two greedy runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from syrupy.assertion import SnapshotAssertion

from jobs.__main__ import main
from jobs.finished.lossless import first_divergence
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from tests.jobs.runs import finished_run, plan


@pytest.mark.parametrize(
    ("first", "second", "position"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1, 2, 3], 2), ([], [1], 0), ([], [], None)],
)
def test_the_first_difference_is_located(first: list[int], second: list[int], position: int | None) -> None:
    assert first_divergence(first, second) == position
    assert first_divergence(second, first) == position


def greedy(folder: Path) -> RunFolder:
    return finished_run(folder, samples=1, method="vanilla", temperature=0.0)


def lossless(run: RunFolder, baseline: RunFolder) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["lossless", str(run.path), str(baseline.path)])
    return result.exit_code, result.output


def changed(run: RunFolder, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    [part] = run.trace_files()
    rows = change(trace_files.read_rows(part))
    trace_files.write_table(part, trace_files.TRACES, rows, trace_files.read_metadata(part))


def another_token(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows[0]["steps"][0]["token_ids"][5] += 1
    return rows


def another_prompt(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "target_prompt": f"Monday. {row['target_prompt']}"} for row in rows]


def test_what_two_runs_have_in_common_and_the_first_difference_are_told(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    run, baseline = greedy(tmp_path / "a"), greedy(tmp_path / "b")
    told = {"equal": lossless(run, baseline)}
    changed(run, lambda rows: rows[:3])
    told["unfinished"] = lossless(run, baseline)
    changed(baseline, another_token)
    told["another token"] = lossless(run, baseline)
    changed(baseline, another_prompt)
    told["another prompt"] = lossless(run, baseline)
    told["sampled"] = lossless(plan(tmp_path, samples=1), plan(tmp_path, samples=2))
    assert {name: code for name, (code, _) in told.items()} == dict(zip(told, (0, 0, 1, 2, 2), strict=True))
    assert {name: re.sub(r"-[0-9a-f]{8}\b", "-HASH", output) for name, (_, output) in told.items()} == snapshot
