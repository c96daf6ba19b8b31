"""Output folders that nothing can be written to, and data that nobody can read: one line before anything starts."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.launch import main as launch
from jobs.__main__ import main as jobs
from tests.jobs.runs import plan


def launched(output: Path, *arguments: str) -> Result:
    flags = ["--method", "vanilla", "--dataset", "demo", "--limit", "1", "--samples", "1", "--engine", "scripted"]
    return CliRunner().invoke(launch, [*flags, "--cluster", "debug", "--output", str(output), *arguments])


def test_an_output_folder_below_a_file_or_in_proc_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    for output in (file / "runs", tmp_path / "gone" / "runs", Path("/proc/runs")):
        result = launched(output)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert result.stderr.startswith(f"error: --output {output}: ")


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_a_read_only_or_full_file_system_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(**_: object) -> None:
        raise OSError(number, "no")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refuse)
    result = launched(tmp_path / "runs")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert str(tmp_path) in result.stderr
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
    assert len([line for line in result.stderr.splitlines() if line.startswith("error")]) == 1
    with monkeypatch.context() as patched:  # files open, and the kernel finds no room; its error names no file
        patched.setattr("jobs.run.files.opened", lambda path, flags: os.open("/dev/full", os.O_WRONLY))
        result = CliRunner().invoke(jobs, ["finalize", str(run.path)])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert str(run.path / "derived") in result.stderr
    assert CliRunner().invoke(jobs, ["finalize", str(run.path)]).exit_code == 0
