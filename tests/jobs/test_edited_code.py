"""Commands under code that was edited since a run began stop, unless they are told to go on with both codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import harness
from harness.code_hash import running_code
from harness.launch import main as launch_command
from harness.settings import layers
from jobs.run import submissions, trace_files
from jobs.run.codes import CodeChanged
from jobs.run.folder import RunFolder
from jobs.submission import code_archive, submit
from jobs.submission.dispatch import Request, dispatch_together
from jobs.work.worker import run_shard
from tests.jobs.conftest import Edit
from tests.jobs.runs import dispatch_alone, finished_ids, hashes, jobs, plan, planned_ids
from tests.jobs.slurm.fake import FakeSlurm


@pytest.fixture
def sbatch(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs that were submitted to a cluster with an empty queue."""
    slurm.prints(squeue="", scontrol="MaxArraySize = 4", sacct="")
    taken: list[str] = []

    def array(run: RunFolder, *_: object) -> str:
        taken.append(run.path.name)
        return str(len(taken))

    monkeypatch.setattr(submit, "submit_array", array)
    monkeypatch.setattr(submit, "submit_finalizer", lambda *_: "9")
    monkeypatch.setattr(code_archive, "take", lambda run: "code-0.zip")
    return taken


def test_resume_stops_under_other_code_and_goes_on_where_it_is_accepted(
    tmp_path: Path, edit: Edit, sbatch: list[str]
) -> None:
    run = plan(tmp_path, shards=2)
    dispatch_alone(run, {})
    run_shard(str(run.path), 0)
    edit("harness/chain/chain.py")
    for command in ("resume", "retry-failed"):
        result = jobs(command, run.path)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "--accept-code-change" in result.stderr
        assert len(sbatch) == 1
    assert not run.events("retries")
    result = jobs("resume", run.path, "--accept-code-change")
    assert result.exit_code == 0, result.output
    assert len(sbatch) == 2
    assert jobs("resume", run.path).exit_code == 0, "it is accepted from now on"


def test_a_launch_after_an_edit_does_not_pass_over_jobs_that_still_wait(
    tmp_path: Path, edit: Edit, sbatch: list[str], slurm: FakeSlurm
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
    assert len(sbatch) == 2


FLAGS: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "scripted", "samples": 1, "limit": 4}


def launch(folder: Path, *further: str) -> Result:
    words = layers.arguments({**FLAGS, "cluster": "debug", "shards": 2, "output": str(folder)})
    return CliRunner().invoke(launch_command, [*words, *further])


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
