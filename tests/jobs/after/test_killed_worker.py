"""What a killed worker has finished lies in its journal; commands that read trace files compact it first."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from jobs.__main__ import main
from jobs.run import trace_files
from jobs.run.endings import read_endings
from jobs.run.folder import RunFolder
from tests.jobs.runs import SLOW_WORKER, plan


@pytest.fixture
def killed(tmp_path: Path) -> RunFolder:
    """A run of SpecReason whose only worker was killed after several samples."""
    run = plan(tmp_path, method="specreason", samples=4)
    worker = subprocess.Popen([sys.executable, "-c", SLOW_WORKER, str(run.path)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(read_endings(run).finished) < 6:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert not run.trace_files()
    return run


def jobs(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def test_target_logprobs_scores_it(killed: RunFolder) -> None:
    code, told = jobs("target-logprobs", str(killed.path))
    assert (code, "scored already" in told) == (0, False)
    rows = [row for path in killed.target_logprobs_dir.glob("*.parquet") for row in trace_files.read_rows(path)]
    assert {row["sample_id"] for row in rows} == set(read_endings(killed).finished.to_pylist())


def test_a_probe_draws_from_it_and_its_dry_run_says_what_is_missing(killed: RunFolder) -> None:
    words = ("probe", str(killed.path), "--cluster", "debug", "--points", "6", "--rollouts", "1")
    code, told = jobs(*words, "--dry-run")
    assert code == 2
    assert f"{killed.path.name} has no finished sample in its trace files yet: python -m jobs finalize" in told
    assert jobs(*words)[0] == 0
    assert list(killed.path.parent.glob("probe-*"))
