"""A run is continued by the code that began it, by other code only where that is asked for, and says so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness import code_hash
from harness.code_hash import Code, running_code
from harness.launch import main as launch_command
from jobs.__main__ import main
from jobs.after.grading import finish
from jobs.run import codes, submissions, trace_files
from jobs.run.codes import CodeChanged
from jobs.run.folder import RunFolder
from jobs.run.submissions import Submission
from jobs.submission import dispatch, snapshot, submit
from jobs.submission.together import Request, dispatch_together
from jobs.watch.status import status
from jobs.work.worker import run_shard
from tests.jobs.runs import finished_ids, plan, planned_ids
from tests.jobs.slurm.fake import FakeSlurm
from warehouse.compare import compare_runs
from warehouse.comparison import show
from warehouse.database import reader
from warehouse.load import load_run
from warehouse.render import warnings
from warehouse.summary import summary

Edit = Callable[[str], Code]


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Edit:
    """Return a function that edits a file of the running code; only the hash sees it."""
    before = running_code()

    def edited(path: str) -> Code:
        now = Code({**before.digests, path: "edited"})
        for module in (codes, code_hash):
            monkeypatch.setattr(module, "running_code", lambda: now)
        monkeypatch.setattr("jobs.work.attempt.running_code", lambda: now)
        return now

    return edited


def jobs(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def attempts(run: RunFolder) -> list[dict[str, object]]:
    return [json.loads(trace_files.read_metadata(path)["attempt"]) for path in run.trace_files()]


def hashes(run: RunFolder) -> list[str]:
    return [record.code_hash for record in codes.read(run)]


def test_an_attempt_records_the_code_that_made_it(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    [attempt] = attempts(run)
    assert attempt["code_hash"] == running_code().hash
    assert (attempt["code_archive"], attempt["other_codes"]) == (None, [])
    assert hashes(run) == [running_code().hash]


def test_an_attempt_of_a_job_records_the_archive_and_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    monkeypatch.setenv(snapshot.CODE, str(Path(snapshot.__file__).resolve().parents[2]))
    monkeypatch.setenv(snapshot.HASH, running_code().hash)
    monkeypatch.setenv(snapshot.ARCHIVE, "a" * 64)
    run_shard(str(run.path), 0)
    assert attempts(run)[0]["code_archive"] == "a" * 64
    monkeypatch.setenv(snapshot.HASH, "another")
    with pytest.raises(snapshot.WrongCode, match="files in it were changed or removed"):
        run_shard(str(run.path), 0)


def test_a_worker_with_other_code_refuses_in_one_line(tmp_path: Path, edit: Edit) -> None:
    run = plan(tmp_path, shards=2)
    before = running_code()
    run_shard(str(run.path), 0)
    now = edit("harness/methods/speccot.py")
    result = jobs("worker", run.path, "1")
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert f"was begun by code {before.hash}" in line
    assert f"this is code {now.hash}" in line
    assert "harness/methods/speccot.py differs" in line
    assert "--tag NAME" in line
    assert "--accept-code-change" in line
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
    assert result.stderr.startswith(f"CODE CHANGED: code {now.hash}")
    assert finished_ids(run) == planned_ids(run)
    assert hashes(run) == [before.hash, now.hash]
    assert [(a["code_hash"], a["other_codes"]) for a in attempts(run)] == [
        (before.hash, []),
        (now.hash, [before.hash]),
    ]
    assert status(run).codes == [str(record) for record in codes.read(run)]
    database = tmp_path / "warehouse.duckdb"
    for loaded in (run, other):
        finish(loaded)
        load_run(loaded, database)
    summaries = summary(database, [run.path.name, other.path.name])
    assert [code.num_samples for code in summaries[0].codes] == [12, 12]
    assert [any("MIXED CODE" in line for line in warnings(one)) for one in summaries] == [True, False]
    comparison = compare_runs([run.path.name, other.path.name], database)
    [warning] = [line for line in show.warnings(comparison) if "MIXED CODE" in line]
    assert warning.startswith(run.path.name)
    assert before.hash in warning
    assert now.hash in warning
    [difference] = [line for line in show.difference_lines(comparison) if line.startswith("code (")]
    assert f"{', '.join(sorted([before.hash, now.hash]))} ({run.path.name})" in difference
    with reader(database) as connection:
        rows = connection.execute(
            "SELECT code_hash, num_samples, is_mixed FROM run_code WHERE run_id = ? ORDER BY first_used_at",
            [run.path.name],
        ).fetchall()
    assert rows == [(before.hash, 12, True), (now.hash, 12, True)]


def test_code_that_completed_no_sample_is_named_too(tmp_path: Path, edit: Edit, journals_stay: None) -> None:
    run = plan(tmp_path)
    before = running_code()
    run_shard(str(run.path), 0)
    [journal] = run.journals()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:6]))  # a worker that was killed before any sample had ended
    now = edit("grading/grade.py")
    assert jobs("worker", run.path, "0", "--accept-code-change").exit_code == 0
    assert jobs("finalize", run.path).exit_code == 0
    [found] = summary(tmp_path / "warehouse.duckdb", [run.path.name])
    assert {code.code_hash: code.num_samples for code in found.codes} == {before.hash: 0, now.hash: 24}


def test_a_run_of_which_nothing_was_done_yet_goes_to_the_new_code(tmp_path: Path, edit: Edit) -> None:
    run = plan(tmp_path)
    codes.claim(run)
    now = edit("harness/chain.py")
    assert codes.check(run) is None
    assert codes.claim(run) == []
    assert hashes(run) == [now.hash]


def test_while_jobs_of_the_other_code_may_wait_it_is_not_replaced(tmp_path: Path, edit: Edit) -> None:
    run = plan(tmp_path)
    before = running_code()
    codes.claim(run)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    edit("harness/chain.py")
    with pytest.raises(CodeChanged):
        codes.claim(run)
    with pytest.raises(CodeChanged):
        run_shard(str(run.path), 0)
    assert codes.claim(run, accept=True) == [before.hash]


def test_a_job_of_replaced_code_that_runs_after_all_stops(tmp_path: Path, edit: Edit) -> None:
    run = plan(tmp_path)
    codes.claim(run)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    edit("harness/chain.py")
    codes.claim(run, is_queued=False)
    edit("harness/sample.py")
    with pytest.raises(CodeChanged):
        run_shard(str(run.path), 0)


def test_a_run_without_recorded_code_goes_on_and_says_what_is_unknown(tmp_path: Path) -> None:
    run = plan(tmp_path, shards=2)
    run_shard(str(run.path), 0)
    run.codes_path.unlink()
    forget_code(run)
    notice = codes.check(run)
    assert notice is not None
    assert "was not recorded" in notice
    run_shard(str(run.path), 1)
    assert hashes(run) == [codes.UNKNOWN, running_code().hash]
    assert [attempt.get("code_hash") for attempt in attempts(run)] == [None, running_code().hash]
    load_run(run, tmp_path / "warehouse.duckdb")
    [found] = summary(tmp_path / "warehouse.duckdb", [run.path.name])
    assert [code.code_hash for code in found.codes] == [codes.UNKNOWN, running_code().hash]
    [line] = [line for line in warnings(found) if "CODE" in line]
    assert line.startswith("CODE PARTLY UNKNOWN: not every attempt recorded its code. unknown")


def test_a_finished_run_without_recorded_code_is_not_warned_of(tmp_path: Path) -> None:
    run = plan(tmp_path)
    run_shard(str(run.path), 0)
    run.codes_path.unlink()
    forget_code(run)
    assert jobs("finalize", run.path).exit_code == 0
    [found] = summary(tmp_path / "warehouse.duckdb", [run.path.name])
    assert not [line for line in warnings(found) if "CODE" in line]
    assert not run.codes_path.exists()


def forget_code(run: RunFolder) -> None:
    """Make the trace files those of a version that did not record its code."""
    for path in run.trace_files():
        metadata = trace_files.read_metadata(path)
        attempt = json.loads(metadata["attempt"])
        for name in ("code_hash", "code_archive", "other_codes"):
            del attempt[name]
        rows = trace_files.read_rows(path)
        trace_files.write_table(path, trace_files.TRACES, rows, {**metadata, "attempt": json.dumps(attempt)})


@pytest.fixture
def sbatch(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were submitted to a cluster with an empty queue."""
    slurm.prints(squeue="", scontrol="MaxArraySize = 4", sacct="")
    taken: list[str] = []

    def array(run: RunFolder, *_: object) -> str:
        taken.append(run.path.name)
        return str(len(taken))

    monkeypatch.setattr(submit, "submit_array", array)
    monkeypatch.setattr(submit, "submit_shared_array", array)
    monkeypatch.setattr(submit, "submit_finalizer", lambda *_: "9")
    monkeypatch.setattr(snapshot, "take", lambda run: "code-0.zip")
    return taken


def test_resume_stops_under_other_code_and_goes_on_where_it_is_accepted(
    tmp_path: Path, edit: Edit, sbatch: list[str]
) -> None:
    run = plan(tmp_path, shards=2)
    dispatch.dispatch(run, {})
    run_shard(str(run.path), 0)
    edit("harness/chain.py")
    for command in ("resume", "retry-failed"):
        result = jobs(command, run.path)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "--accept-code-change" in result.stderr
        assert len(sbatch) == 1
    assert not run.retries_path.exists()
    result = jobs("resume", run.path, "--accept-code-change")
    assert result.exit_code == 0, result.output
    assert "CODE CHANGED" in result.stderr
    assert len(sbatch) == 2
    assert jobs("resume", run.path).exit_code == 0, "it is accepted from now on"


def test_a_launch_after_an_edit_does_not_pass_over_jobs_that_still_wait(
    tmp_path: Path, edit: Edit, sbatch: list[str], slurm: FakeSlurm
) -> None:
    run, other = plan(tmp_path, shards=2), plan(tmp_path, drafts=3, shards=2)
    third = plan(tmp_path, drafts=2, shards=2)
    dispatch.dispatch(run, {})
    name = submissions.read(run)[0].name
    slurm.prints(squeue="\n".join(f"{name}|{index}|7|7|PENDING||Resources" for index in range(2)))
    edit("harness/chain.py")
    result = jobs("resume", run.path)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "is running or queued with code" in result.stderr
    assert f"cancel them (python -m jobs cancel {run.path})" in result.stderr
    with pytest.raises(CodeChanged):
        dispatch_together([Request(of, {}) for of in (run, other, third)])
    assert jobs("resume", run.path, "--accept-code-change").exit_code == 0
    slurm.prints(squeue="")  # canceled
    assert jobs("resume", run.path).exit_code == 0
    assert len(hashes(run)) == 1, "of the first code nothing was done"
    assert len(sbatch) == 2


def test_runs_that_share_jobs_stop_under_other_code(tmp_path: Path, edit: Edit, sbatch: list[str]) -> None:
    runs = [plan(tmp_path, drafts=drafts, shards=2) for drafts in (2, 3)]
    dispatch_together([Request(run, {}) for run in runs])
    run_shard(str(runs[1].path), 0)
    edit("harness/chain.py")
    with pytest.raises(CodeChanged, match=runs[1].path.name):
        dispatch_together([Request(run, {}) for run in runs])
    assert len(sbatch) == 1
    dispatch_together([Request(run, {}, accept_code_change=True) for run in runs])
    assert len(sbatch) == 2


def launch(folder: Path, *further: str) -> Result:
    arguments = ["--method", "speccot", "--dataset", "demo", "--engine", "scripted", "--samples", "1", "--limit", "4"]
    return CliRunner().invoke(
        launch_command, [*arguments, "--cluster", "debug", "--shards", "2", "--output", str(folder), *further]
    )


def test_the_same_command_after_an_edit_says_whose_numbers_it_prints(tmp_path: Path, edit: Edit) -> None:
    before = running_code()
    assert launch(tmp_path).exit_code == 0
    now = edit("harness/methods/speccot.py")
    result = launch(tmp_path)
    said = " ".join(result.output.split())
    assert result.exit_code == 0, result.output
    assert "All 4 samples are already finished." in said
    assert f"CODE CHANGED: these samples were made by code {before.hash}" in said
    assert f"not by code {now.hash}" in said
    assert "launch with --tag NAME" in said
    assert "CODE CHANGED" not in jobs("finalize", next(tmp_path.glob("demo-*"))).output
    again = launch(tmp_path, "--tag", "edited")
    assert again.exit_code == 0
    assert "CODE CHANGED" not in again.output
    assert len(list(tmp_path.glob("demo-*"))) == 2


def test_the_same_command_after_an_edit_does_not_go_on_unasked(tmp_path: Path, edit: Edit) -> None:
    assert launch(tmp_path).exit_code == 0
    [path] = tmp_path.glob("demo-*")
    run = RunFolder(path)
    [trace_file] = run.trace_files()
    rows, metadata = trace_files.read_rows(trace_file), trace_files.read_metadata(trace_file)
    trace_files.write_table(trace_file, trace_files.TRACES, rows[:1], metadata)
    edit("harness/methods/speccot.py")
    for further in ([], ["--dry-run"], ["--shards", "1"]):
        result = launch(tmp_path, *further)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "--accept-code-change" in result.stderr
    assert run.num_shards() == 2, "nothing is written"
    accepted = launch(tmp_path, "--accept-code-change")
    assert accepted.exit_code == 0, accepted.output
    assert "CODE CHANGED" in accepted.output
    assert "MIXED CODE" in accepted.output
    assert finished_ids(run) == planned_ids(run)


def test_a_torn_record_is_skipped(tmp_path: Path) -> None:
    run = plan(tmp_path)
    codes.claim(run)
    with run.codes_path.open("a") as out:
        out.write('{"code_hash": "torn')
    assert codes.claim(run) == []
    assert hashes(run) == [running_code().hash]


def test_a_night_under_other_code_offers_what_that_command_has(tmp_path: Path, edit: Edit) -> None:
    suite = tmp_path / "small.toml"
    suite.write_text(
        f'output = "{tmp_path}/runs"\ncluster = "debug"\nengine = "scripted"\ndataset = "demo"\nlimit = 2\n'
        "samples = 1\n[[run]]\nmethod = 'vanilla'\n"
    )
    night = ("nightly", "--suite", suite, "--date", "2026-01-01")
    assert jobs(*night).exit_code == 4, "no night before it"
    edit("harness/chain.py")
    finished = jobs(*night).output
    assert "For runs of this code, launch a night with another --date." in finished
    [part] = (tmp_path / "runs").glob("*/parts/*.parquet")
    (part.parent.parent / "journal" / f"{part.stem}.jsonl").touch()  # of a worker that was killed before its first step
    part.unlink()
    result = jobs(*night)
    assert result.exit_code == 2
    assert "launch a night with another --date; to go on with both in one run" in result.stderr
    assert result.stderr.endswith("add --accept-code-change\n")
    assert "--tag" not in finished + result.stderr
