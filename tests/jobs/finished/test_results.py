"""`results.json` in the folder of a finished run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs import after
from jobs.__main__ import main
from jobs.finished import grading
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_run, plan
from warehouse.report.summary import summary


@pytest.fixture
def finished(tmp_path: Path) -> RunFolder:
    return finished_run(tmp_path, samples=1)


def test_whatever_concludes_a_run_writes_its_results_unless_they_are_as_they_were(finished: RunFolder) -> None:
    assert after.conclude(str(finished.path))
    first, before = finished.results_path.read_bytes(), finished.results_path.stat()
    found = json.loads(first)
    assert (found["run_id"], found["state"], found["finished"]) == (finished.path.name, "finished", 8)
    assert "SCRIPTED" in found["warnings"][0]
    [run] = summary(finished.path.parent / "warehouse.duckdb", [finished.path.name])
    assert first == run.to_json()
    after.conclude(str(finished.path))
    later = finished.results_path.stat()  # whose time of access reading changes
    assert (later.st_ino, later.st_mtime_ns, later.st_ctime_ns) == (
        before.st_ino,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )
    finished.results_path.unlink()
    assert grading.missing(finished, read_endings(finished))
    assert CliRunner().invoke(main, ["finalize", str(finished.path)]).exit_code == 0
    assert finished.results_path.read_bytes() == first


def test_a_run_that_is_under_way_has_none(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    assert not after.conclude(str(run.path))
    assert not run.results_path.exists()


def test_results_go_where_failed_samples_are_to_be_retried(
    finished: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    after.conclude(str(finished.path))
    database = finished.path.parent / "warehouse.duckdb"
    retried = [run.model_copy(update={"state": "under way"}) for run in summary(database, [finished.path.name])]
    monkeypatch.setattr("warehouse.report.summary.summary", lambda *_: retried)
    after.conclude(str(finished.path))
    assert not finished.results_path.exists()
