"""A run from plan to grades with scripted engines, and the identity of its samples."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from harness.engines import scripted
from jobs.run import trace_files
from jobs.run.endings import compact
from jobs.work.worker import run_shard
from tests.jobs.runs import ENGINES, plan, planned_ids, texts


def test_engines_that_take_turns_write_the_same_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(scripted.SCRIPTED_SECONDS, "0.002")
    freely, in_turn = plan(tmp_path), plan(tmp_path, engine=replace(ENGINES, take_turns=True))
    assert freely.path != in_turn.path, "another run: its times mean something else"
    for run in (freely, in_turn):
        run_shard(str(run.path), 0)
        compact(run)
    assert texts(freely) == texts(in_turn)
    spans = sorted(
        (call["submitted_at"] + call["queued_seconds"], call["submitted_at"] + call["end_seconds"], call["model"])
        for part in in_turn.trace_files()
        for row in trace_files.read_rows(part)
        for call in row["calls"]
    )
    together = [
        (mine, other)
        for i, (_, end, mine) in enumerate(spans)
        for begin, _, other in spans[i + 1 :]
        if begin < end - 0.001
    ]
    assert ("draft", "draft") in together, "samples still share an engine"
    assert {(mine, other) for mine, other in together if mine != other} == set()


def test_a_run_that_looks_ahead_draws_the_same_samples_in_a_folder_of_its_own(tmp_path: Path) -> None:
    without, ahead = (plan(tmp_path, method="specreason", lookahead=chosen) for chosen in (False, True))
    assert without.path != ahead.path
    assert planned_ids(without) == planned_ids(ahead)
    for run in (without, ahead):
        run_shard(str(run.path), 0)
    assert texts(without) == texts(ahead)
    purposes = [
        Counter(c["purpose"] for part in run.trace_files() for r in trace_files.read_rows(part) for c in r["calls"])
        for run in (without, ahead)
    ]
    assert purposes[1].pop("lookahead") > 0
    assert purposes[0] == purposes[1]


def test_a_run_from_before_a_parameter_of_speed_keeps_its_name(tmp_path: Path) -> None:
    spec = plan(tmp_path, method="specreason").spec()
    older = replace(spec, params={name: value for name, value in spec.params.items() if name != "lookahead"})
    assert spec.params["lookahead"] is False
    assert older.run_id == spec.run_id
