"""`--latency-sample`: refused in one line where it makes no sense, no part of the run's identity, resumable."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.launch import main
from jobs.run import timing as folder
from jobs.run.folder import RunFolder

COMMON = ("--method", "speccot", "--dataset", "demo", "--limit", "4", "--samples", "2", "--engine", "scripted")
SMALL = (*COMMON, "--cluster", "debug", "--token-budget", "600")


def launch(output: Path, *arguments: str) -> RunFolder:
    run = main([*SMALL, *arguments, "--output", str(output)], standalone_mode=False)
    assert isinstance(run, RunFolder)
    return run


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--latency-sample", "9"), "--latency-sample 9: the run has only 8 samples"),
        (("--latency-sample", "0"), "--latency-sample 0: Input should be greater than or equal to 1"),
        (("--latency-sample", "4", "--concurrency", "1"), "every sample already runs alone"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [*SMALL, *arguments, "--output", str(tmp_path / "runs")])
    assert done.exit_code == 2, done.output
    assert why in done.output
    assert not (tmp_path / "runs").exists()


def test_it_is_no_part_of_the_run_times_one_that_is_finished_and_draws_once(tmp_path: Path) -> None:
    before = launch(tmp_path)
    spec = before.spec_path.read_bytes()
    run = launch(tmp_path, "--latency-sample", "4")
    assert run.path == before.path
    assert run.spec_path.read_bytes() == spec
    assert folder.progress(run) == folder.Progress(4, 4)
    launch(tmp_path, "--latency-sample", "4")
    assert folder.progress(run) == folder.Progress(4, 4)
    done = CliRunner().invoke(main, [*SMALL, "--latency-sample", "5", "--output", str(tmp_path)])
    assert done.exit_code == 2, done.output
    assert "valid: 4" in done.output
