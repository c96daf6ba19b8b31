"""A comparison in waves on a cluster: jobs look, submit the next wave, and stop, without anybody's help."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jobs.nights.record import NightRecord
from jobs.run import waves
from jobs.run.folder import run_folders
from tests.slurm.conftest import harness, wait_for

pytestmark = pytest.mark.slurm
SUITE = """
output = "{output}"
engine = "scripted"
cluster = "slurm"
dataset = "demo"
limit = 6
samples = 4
shards = 2
mem = "1G"

[[run]]
method = "vanilla"

[[run]]
method = "speccot"
drafts = 2
"""
ALL_EQUAL_AT_LOOK_2 = "52"
"""Margin in points at which six problems without a difference are decided by the second look, and not by the first."""


def test_waves_follow_each_other_until_the_comparison_is_decided(tmp_path: Path) -> None:
    suite = tmp_path / "small.toml"
    suite.write_text(SUITE.format(output=tmp_path / "runs"), encoding="utf-8")
    arguments = ["suite", str(suite), "--until-decided", "--margin", ALL_EQUAL_AT_LOOK_2]
    assert "The comparison is looked at by job" in harness("jobs", *arguments, environment={**os.environ})
    record = NightRecord(tmp_path / "runs" / "waves" / "small.jsonl")
    wait_for(lambda: record.is_concluded, "the last look", 300)
    assert [event["wave"] for event in record.events("looked")] == [1, 2]
    for run in run_folders([tmp_path / "runs"]):
        begun = waves.read(run)
        assert begun is not None
        assert begun.is_stopped
        assert run.num_planned() == 12
        result = json.loads(run.results_path.read_bytes())
        assert (result["planned"], result["finished"], result["stopped_by_decision"]) == (12, 12, True)
    assert (tmp_path / "runs" / "small.html").exists()
