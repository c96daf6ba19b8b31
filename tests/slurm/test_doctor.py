"""The doctor checks a node, in a job."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jobs.slurm import client
from tests.slurm.conftest import doctor

pytestmark = pytest.mark.slurm
ON_NODE = ("--on-node", "--engine", "scripted", "--dataset", "demo", "--json")


def test_options_that_sbatch_rejects_are_failures_in_its_own_words(tmp_path: Path) -> None:
    result = doctor(*ON_NODE, "--partition", "no-such", cwd=tmp_path)
    assert result.returncode == 1
    tables = json.loads(result.stdout)
    [here] = [check for check in tables["here"]["checks"] if check["subject"] == "sbatch"]
    [node] = tables["node"]["checks"]
    assert (here["status"], node["status"]) == ("failure", "failure")
    assert all("invalid partition" in check["text"].lower() for check in (here, node))


def test_a_job_that_does_not_start_is_reported_and_cancelled(tmp_path: Path) -> None:
    result = doctor(*ON_NODE, "--slurm", "begin=now+1hour", "--wait", "8", cwd=tmp_path)
    [check] = json.loads(result.stdout)["node"]["checks"]
    assert (check["status"], "PENDING BeginTime" in check["text"]) == ("failure", True), check
    assert "harness-doctor" not in client.ask("squeue", "-h", "-o", "%j %V %T", "-t", "PENDING")
