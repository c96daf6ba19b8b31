"""What a killed worker has finished lies in its journal; commands that read finished samples compact it first."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.chain.chain_scores import RewardModel
from harness.engines.scripted import ScriptedEngine
from jobs.__main__ import main
from jobs.finished import scoring
from jobs.finished.scoring import score
from jobs.run import trace_files
from jobs.run.endings import read_endings
from jobs.run.files import RunDamaged
from jobs.run.folder import RunFolder
from jobs.work.target_logprobs import Scored
from jobs.work.worker import run_shard
from tests.jobs.runs import SLOW_WORKER, plan


@pytest.fixture
def killed(tmp_path: Path) -> RunFolder:
    """A run of SpecReason whose only worker was killed after several samples."""
    return killed_run(plan(tmp_path, method="specreason", samples=4), 6)


def killed_run(run: RunFolder, num_finished: int) -> RunFolder:
    """Kill the worker of a run once it has finished so many samples."""
    worker = subprocess.Popen([sys.executable, "-c", SLOW_WORKER, str(run.path)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(read_endings(run).finished) < num_finished:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert not run.trace_files()
    return run


def jobs(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def test_the_target_and_a_reward_model_score_it_and_a_probe_draws_from_it(killed: RunFolder) -> None:
    probe = ("probe", str(killed.path), "--cluster", "debug", "--points", "6", "--rollouts", "1")
    code, told = jobs(*probe, "--dry-run")
    assert code == 2
    assert killed.path.name in told
    finished = set(read_endings(killed).finished.to_pylist())
    assert jobs("target-logprobs", str(killed.path))[0] == 0
    engine = ScriptedEngine(lambda prompt, sampling: [""], lambda prompt, labels: [0.3, 0.1])
    assert asyncio.run(score(killed, RewardModel(engine), "toy@1/1"))[0]
    for kind in ("target_logprobs", "scores"):
        rows = [row for path in killed.derived(kind) for row in trace_files.read_rows(path)]
        assert {row["sample_id"] for row in rows} == finished
    assert jobs(*probe)[0] == 0
    assert list(killed.path.parent.glob("probe-*"))


def test_its_tokens_are_compared(tmp_path: Path) -> None:
    run, baseline = (plan(tmp_path / name, method="vanilla", samples=1, temperature=0.0) for name in ("a", "b"))
    run_shard(str(run.path), 0)
    killed_run(baseline, 3)
    both = len(read_endings(baseline).finished)
    code, told = jobs("lossless", str(run.path), str(baseline.path))
    assert (code, told.split()[0]) == (0, str(both))
    assert baseline.trace_files(), "its journal was compacted"


def test_tokens_of_a_run_that_may_not_be_written_are_compared_by_its_trace_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, baseline = (plan(tmp_path / name, method="vanilla", samples=1, temperature=0.0) for name in ("a", "b"))
    run_shard(str(run.path), 0)
    killed_run(baseline, 3)

    def refuse(run: RunFolder) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(run.path))

    monkeypatch.setattr("jobs.run.endings.compact", refuse)
    code, told = jobs("lossless", str(run.path), str(baseline.path))
    assert code == 1
    assert told.startswith("0 samples in both runs: 0 with identical tokens\n")
    assert "0 of its 8 samples compared; the others are unfinished in one of the runs" in told
    code, told = jobs("probe", str(baseline.path), "--cluster", "debug")
    assert code == 2
    assert str(baseline.path) in told


def test_a_journal_that_cannot_be_compacted_keeps_no_other_run_from_being_scored(
    killed: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = plan(killed.path.parent, samples=1)
    run_shard(str(other.path), 0)

    def refuse(run: RunFolder) -> int:
        raise RunDamaged(f"{run.path} cannot be read")

    monkeypatch.setattr("jobs.run.endings.compact", refuse)
    runs = [killed, other]
    refused, scored = scoring.score_each(runs, None)
    assert isinstance(refused, RunDamaged)
    assert isinstance(scored, Scored)
    assert scored.num_samples == 8
