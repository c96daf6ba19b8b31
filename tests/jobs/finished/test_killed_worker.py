"""What a killed worker has finished lies in its journal; commands that read finished samples compact it first."""

from __future__ import annotations

import asyncio
import errno
import re
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
from tests.jobs.runs import plan, slow_worker


def killed(run: RunFolder) -> RunFolder:
    """Kill the worker of a run whose samples have several steps once six are finished."""
    worker = slow_worker(run)
    deadline = time.monotonic() + 60
    while len(read_endings(run).finished) < 6:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker.kill()
    worker.wait()
    assert not run.trace_files()
    return run


def killed_at_its_end(run: RunFolder) -> RunFolder:
    """Run all samples of a run in a worker that ends before it has written a trace file."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("jobs.run.endings.compact_own", lambda run, path: None)
        run_shard(str(run.path), 0)
    assert not run.trace_files()
    return run


@pytest.fixture
def two_runs(tmp_path: Path) -> tuple[RunFolder, RunFolder]:
    """Two equal runs, the second of which is journals alone."""
    run, baseline = (plan(tmp_path / name, method="vanilla", samples=1, temperature=0.0) for name in ("a", "b"))
    run_shard(str(run.path), 0)
    return run, killed_at_its_end(baseline)


def jobs(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(words), catch_exceptions=False)
    return result.exit_code, result.output


def test_the_target_and_a_reward_model_score_it_and_a_probe_draws_from_it(tmp_path: Path) -> None:
    run = killed(plan(tmp_path, method="specreason", samples=4))
    probe = ("probe", str(run.path), "--cluster", "debug", "--points", "6", "--rollouts", "1")
    code, told = jobs(*probe, "--dry-run")
    assert code == 2
    assert run.path.name in told
    finished = set(read_endings(run).finished.to_pylist())
    assert jobs("target-logprobs", str(run.path))[0] == 0
    engine = ScriptedEngine(lambda prompt, sampling: [""], lambda prompt, labels: [0.3, 0.1])
    assert asyncio.run(score(run, RewardModel(engine), "toy@1/1"))[0]
    for kind in ("target_logprobs", "scores"):
        rows = [row for path in run.derived(kind) for row in trace_files.read_rows(path)]
        assert {row["sample_id"] for row in rows} == finished
    assert jobs(*probe)[0] == 0
    assert list(run.path.parent.glob("probe-*"))


def test_its_tokens_are_compared(two_runs: tuple[RunFolder, RunFolder]) -> None:
    run, baseline = two_runs
    code, told = jobs("lossless", str(run.path), str(baseline.path))
    assert (code, told.split()[0]) == (0, "8")
    assert baseline.trace_files(), "its journal was compacted"


def test_tokens_of_a_run_that_may_not_be_written_are_compared_by_its_trace_files(
    two_runs: tuple[RunFolder, RunFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(run: RunFolder) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(run.path))

    run, baseline = two_runs
    monkeypatch.setattr("jobs.run.endings.compact", refuse)
    code, told = jobs("lossless", str(run.path), str(baseline.path))
    first, *_ = told.splitlines()
    assert (code, re.findall(r"\d+", first)) == (1, ["0", "0"])
    assert set(re.findall(r"(\d+) of its (\d+)", told)) == {("0", "8")}
    code, told = jobs("probe", str(baseline.path), "--cluster", "debug")
    assert (code, str(baseline.path) in told) == (2, True)


def test_a_journal_that_cannot_be_compacted_keeps_no_other_run_from_being_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, other = killed_at_its_end(plan(tmp_path, drafts=3, samples=1)), plan(tmp_path, samples=1)
    run_shard(str(other.path), 0)

    def refuse(run: RunFolder) -> int:
        raise RunDamaged(f"{run.path} cannot be read")

    monkeypatch.setattr("jobs.run.endings.compact", refuse)
    refused, scored = scoring.score_each([left, other], None)
    assert isinstance(refused, RunDamaged)
    assert isinstance(scored, Scored)
    assert scored.num_samples == 8
