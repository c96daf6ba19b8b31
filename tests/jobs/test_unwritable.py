"""Output folders that nothing can be written to, and data that nobody can read: one line before anything starts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.launch import main as launch
from jobs.__main__ import main as jobs
from jobs.run import submissions
from jobs.run.submissions import Submission
from tests.jobs.runs import plan
from tests.jobs.slurm.fake import FakeSlurm


def launched(output: Path, *arguments: str) -> Result:
    flags = ["--method", "vanilla", "--dataset", "demo", "--limit", "1", "--samples", "1", "--engine", "scripted"]
    return CliRunner().invoke(launch, [*flags, "--cluster", "debug", "--output", str(output), *arguments])


def test_an_output_folder_below_a_file_or_in_proc_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for output, reason in (
        (file / "runs", "is not a folder"),
        (tmp_path / "gone" / "runs", "is not a folder"),
        (Path("/proc/runs"), "cannot write in /proc"),
        (Path("/proc/self/fd/runs"), "cannot write in /proc/self/fd"),
    ):
        result = launched(output)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert result.stderr.startswith(f"error: --output {output}: ")
        assert reason in result.stderr


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_read_only_or_full_file_system_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    result = launched(tmp_path / "runs")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert f"cannot write in {tmp_path}" in result.stderr
    assert not (tmp_path / "runs").exists()


def test_a_disk_that_fills_while_grades_are_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    CliRunner().invoke(jobs, ["worker", str(run.path), "0"])

    def fill(path: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("jobs.run.events.write_atomically", fill)
        result = CliRunner().invoke(jobs, ["finalize", str(run.path)])
    assert result.exit_code == 1
    [line] = [line for line in result.stderr.splitlines() if line.startswith("error")]
    assert "No space left on device (is the disk full, or a quota?). Nothing finished is lost" in line
    assert CliRunner().invoke(jobs, ["finalize", str(run.path)]).exit_code == 0


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files of run folders open, and the kernel find no room for what is written; its error names no file."""
    monkeypatch.setattr("jobs.run.files.opened", lambda path, flags: os.open("/dev/full", os.O_WRONLY))


def test_finalize_on_a_full_disk_is_one_line_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = plan(tmp_path)
    CliRunner().invoke(jobs, ["worker", str(run.path), "0"])
    fill_the_disk(monkeypatch)
    result = CliRunner().invoke(jobs, ["finalize", str(run.path)])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert result.stderr.startswith(f"error: {run.path / 'derived' / 'grades-'}")
    assert "No space left on device (is the disk full, or a quota?). Nothing finished is lost" in result.stderr


def test_resume_on_a_full_disk_is_one_line(tmp_path: Path, slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    run = plan(tmp_path)
    submissions.record(run, Submission(0, "run.0", [[0]], 0.0))
    slurm.prints(squeue="", scontrol="MaxArraySize = 4")

    def pickled(*_: object) -> None:
        with Path("/dev/full").open("wb") as file:  # as submitit does
            file.write(b"job")

    monkeypatch.setattr("jobs.submission.submit.submit_array", pickled)
    result = CliRunner().invoke(jobs, ["resume", str(run.path)])
    assert result.exit_code == 1
    message = "No space left on device (is the disk full, or a quota?). Nothing finished is lost"
    assert result.stderr == f"error: {message}\n"


def test_a_dataset_nested_a_hundred_thousand_deep_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "demo.jsonl").write_text('{"problem": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    result = launched(tmp_path / "runs", "--data-dir", str(tmp_path))
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "demo.jsonl, line 1: JSON nested too deeply" in result.stderr


def test_a_shard_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(jobs, ["worker", str(plan(tmp_path).path), "99"])
    assert (result.exit_code, result.stderr) == (2, "error: SHARD 99: the run has 1 shard, numbered from 0\n")
