"""A run is continued by the code that began it, by other code only where that is asked for, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.code_hash import running_code
from jobs.finished.grading import finish
from jobs.run import codes, submissions, trace_files
from jobs.run.codes import CodeChanged
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.submission import code_archive
from jobs.watch.status import status
from jobs.work.worker import run_shard
from tests.jobs.conftest import Edit
from tests.jobs.runs import finished_ids, hashes, jobs, plan, planned_ids
from warehouse.comparison import show
from warehouse.comparison.contrasts import compare_runs
from warehouse.database import reader
from warehouse.loading.runs import load_run
from warehouse.report.summary import summary


def attempts(run: RunFolder) -> list[dict[str, object]]:
    return [json.loads(trace_files.read_metadata(path)["attempt"]) for path in run.trace_files()]


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
