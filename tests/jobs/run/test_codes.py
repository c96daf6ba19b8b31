"""A run is continued by the code that began it, by other code only where that is asked for, and says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import harness
from harness.code_hash import running_code
from jobs.finished.grading import finish
from jobs.run import codes, submissions, trace_files
from jobs.run.codes import CodeChanged
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.submission import code_archive
from jobs.submission.dispatch import Request, dispatch_together
from jobs.watch.status import status
from jobs.work.worker import run_shard
from tests.jobs.conftest import Edit
from tests.jobs.runs import attempts, dispatch_alone, finished_ids, hashes, jobs, launched, plan, planned_ids
from tests.jobs.slurm.fake import Cluster, FakeSlurm
from warehouse.comparison import show
from warehouse.comparison.contrasts import compare_runs
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.report.summary import summary


def test_an_attempt_records_the_code_and_the_archive_that_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path, samples=1)
    monkeypatch.setenv(code_archive.CODE, "/scratch/code.zip")
    monkeypatch.setenv(code_archive.SHA256, "a" * 64)
    run_shard(str(run.path), 0)
    [attempt] = attempts(run)
    assert (attempt["code_hash"], attempt["code_archive"]) == (running_code().hash, "a" * 64)
    assert attempt["other_codes"] == []
    assert hashes(run) == [running_code().hash]


def test_a_worker_with_other_code_refuses_in_one_line(tmp_path: Path, edit: Edit) -> None:
    run = plan(tmp_path, shards=2)
    before = running_code()
    run_shard(str(run.path), 0)
    now = edit("harness/methods/speccot.py")
    result = jobs("worker", run.path, "1")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    for named in (before.hash, now.hash, "harness/methods/speccot.py", "--tag", "--accept-code-change"):
        assert named in line
    assert len(run.trace_files()) == 1
    assert hashes(run) == [before.hash]


def test_accepted_code_goes_on_and_every_place_says_that_two_codes_made_the_run(tmp_path: Path, edit: Edit) -> None:
    run, other = plan(tmp_path, shards=2), plan(tmp_path, method="vanilla")
    before = running_code()
    run_shard(str(run.path), 0)
    run_shard(str(other.path), 0)
    now = edit("harness/methods/speccot.py")
    result = jobs("worker", run.path, "1", "--accept-code-change")
    assert result.exit_code == 0, result.output
    assert before.hash in result.stderr.splitlines()[0]
    assert finished_ids(run) == planned_ids(run)
    assert hashes(run) == [before.hash, now.hash]
    assert [(a["code_hash"], a["other_codes"]) for a in attempts(run)] == [(before.hash, []), (now.hash, [before.hash])]
    assert status(run).codes == [str(record) for record in codes.read(run)]
    database = tmp_path / "warehouse.duckdb"
    for loaded in (run, other):
        finish(loaded)
        load_run(loaded, database)
    summaries = summary(database, [run.path.name, other.path.name])
    assert [code.num_samples for code in summaries[0].codes] == [12, 12]
    assert [any("MIXED CODE" in line for line in one.warnings) for one in summaries] == [True, False]
    comparison = compare_runs([run.path.name, other.path.name], database)
    [warning] = [line for line in show.warnings(comparison) if "MIXED CODE" in line]
    names = show.names(comparison)
    [difference] = [line for line in show.difference_lines(comparison.differences, names) if line.startswith("code (")]
    assert all(code.hash in line for code in (before, now) for line in (warning, difference))
    with reader(database) as connection:
        rows = connection.execute(
            "SELECT code_hash, num_samples, is_mixed FROM run_code WHERE run_id = ? ORDER BY first_used_at",
            [run.path.name],
        ).fetchall()
    assert rows == [(before.hash, 12, True), (now.hash, 12, True)]


def test_a_run_of_which_nothing_was_done_yet_goes_to_the_new_code(tmp_path: Path, edit: Edit) -> None:
    run = plan(tmp_path)
    codes.claim(run)
    now = edit("harness/chain/chain.py")
    assert codes.check(run) is None
    assert codes.claim(run) == []
    assert hashes(run) == [now.hash]


def test_while_jobs_of_the_other_code_may_wait_it_is_not_replaced(tmp_path: Path, edit: Edit) -> None:
    run = plan(tmp_path)
    before = running_code()
    codes.claim(run)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    edit("harness/chain/chain.py")
    with pytest.raises(CodeChanged):
        codes.claim(run)
    with pytest.raises(CodeChanged):
        run_shard(str(run.path), 0)
    assert codes.claim(run, accept=True) == [before.hash]
    codes.claim(run, is_queued=False)
    edit("harness/sample.py")
    with pytest.raises(CodeChanged):
        run_shard(str(run.path), 0)  # a job of replaced code that runs after all


def test_resume_stops_under_other_code_and_goes_on_where_it_is_accepted(
    tmp_path: Path, edit: Edit, cluster: Cluster
) -> None:
    run = plan(tmp_path, shards=2)
    dispatch_alone(run, {})
    run_shard(str(run.path), 0)
    edit("harness/chain/chain.py")
    for command in ("resume", "retry-failed"):
        result = jobs(command, run.path)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "--accept-code-change" in result.stderr
        assert len(cluster.own) == 1
    assert not run.events("retries")
    result = jobs("resume", run.path, "--accept-code-change")
    assert result.exit_code == 0, result.output
    assert len(cluster.own) == 2
    assert jobs("resume", run.path).exit_code == 0, "it is accepted from now on"


def test_a_launch_after_an_edit_does_not_pass_over_jobs_that_still_wait(
    tmp_path: Path, edit: Edit, cluster: Cluster, slurm: FakeSlurm
) -> None:
    run, other = plan(tmp_path, shards=2), plan(tmp_path, drafts=3, shards=2)
    third = plan(tmp_path, drafts=2, shards=2)
    dispatch_alone(run, {})
    name = submissions.read(run)[0].name
    slurm.prints(squeue="\n".join(f"{name}|{index}|7|7|PENDING||Resources" for index in range(2)))
    edit("harness/chain/chain.py")
    result = jobs("resume", run.path)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"jobs cancel {run.path}" in result.stderr
    with pytest.raises(CodeChanged):
        dispatch_together([Request(of, {}) for of in (run, other, third)])
    assert jobs("resume", run.path, "--accept-code-change").exit_code == 0
    slurm.prints(squeue="")  # canceled
    assert jobs("resume", run.path).exit_code == 0
    assert len(hashes(run)) == 1, "of the first code nothing was done"
    assert len(cluster.own) == 2


FLAGS: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "scripted", "samples": 1, "limit": 4}


def launch(folder: Path, *further: str) -> Result:
    return launched(folder, *further, **FLAGS, shards=2)


def test_after_an_edit_the_same_command_says_whose_numbers_it_prints_and_does_not_go_on_unasked(
    tmp_path: Path, edit: Edit
) -> None:
    before = running_code()
    assert launch(tmp_path).exit_code == 0
    [path] = tmp_path.glob("demo-*")
    run = RunFolder(path)
    now = edit("harness/methods/speccot.py")
    result = launch(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    [warning] = [line for line in json.loads(result.stdout)["warnings"] if line.startswith("CODE CHANGED")]
    assert all(part in warning for part in (before.hash, now.hash, "--tag"))
    with pytest.warns(UserWarning, match="CODE CHANGED: demo-"):
        harness.run(**FLAGS, shards=2, cluster="debug", output=tmp_path, quiet=True)
    assert "CODE CHANGED" not in jobs("finalize", path).output
    [trace_file] = run.trace_files()
    rows, metadata = trace_files.read_rows(trace_file), trace_files.read_metadata(trace_file)
    trace_files.write_table(trace_file, trace_files.TRACES, rows[:1], metadata)
    for further in ([], ["--dry-run"], ["--shards", "1"]):
        result = launch(tmp_path, *further)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "--accept-code-change" in result.stderr
    assert run.num_shards() == 2, "nothing is written"
    accepted = launch(tmp_path, "--accept-code-change", "--json")
    assert accepted.exit_code == 0, accepted.output
    assert {"CODE CHANGED", "MIXED CODE"} <= {
        line.partition(":")[0] for line in json.loads(accepted.stdout)["warnings"]
    }
    assert finished_ids(run) == planned_ids(run)
    again = launch(tmp_path, "--tag", "edited", "--dry-run")
    assert (again.exit_code, "CODE CHANGED" in again.output) == (0, False)
