"""An engine process is killed inside a Slurm task: real vLLM engines, so it takes a minute or two."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from jobs.finished.grading import finished_samples
from jobs.run.folder import RunFolder
from jobs.run.journal import read_journal
from tests.slurm.conftest import Launched, harness, wait_for, warehouse
from tools.smollm import smollm_folder

pytestmark = [pytest.mark.slurm, pytest.mark.needs_tool("vllm", "smollm")]


def accepted_so_far(run: RunFolder) -> dict[str, str]:
    """Return the text of the accepted steps of each unfinished sample, by its id."""
    return {
        sample_id: "".join(step.text for step in trace.steps)
        for path in run.journals()
        for sample_id, trace in read_journal(path).unfinished.items()
        if trace.steps
    }


def engines(worker: int) -> list[psutil.Process]:
    return [child for child in psutil.Process(worker).children(recursive=True) if "EngineCore" in child.name()]


def test_an_engine_process_is_killed(tmp_path: Path) -> None:
    arguments = ["--method", "speccot", "--drafts", "2", "--dataset", "demo", "--limit", "3", "--samples", "2"]
    arguments += ["--token-budget", "256", "--concurrency", "3", "--cluster", "slurm", "--mem", "20G"]
    arguments += ["--engine", "vllm"]
    arguments += ["--draft", str(smollm_folder()), "--target", str(smollm_folder()), "--output", str(tmp_path / "runs")]
    harness("harness.launch", *arguments, environment={**os.environ})
    [path] = (tmp_path / "runs").glob("demo-*")
    launched = Launched(RunFolder(path), arguments, {**os.environ})
    wait_for(lambda: accepted_so_far(launched.run), "an accepted step", 500)
    [worker] = launched.worker_pids()
    before, witness = accepted_so_far(launched.run), launched.witness()
    os.kill(engines(worker)[0].pid, signal.SIGKILL)
    wait_for(launched.has_ended, "the end", 400)
    now = launched.status()
    assert (now.finished, now.failed, now.states["finished"]) == (6, 0, 1), "one task, started once, was enough"
    texts = {sample["sample_id"]: text for sample, text in finished_samples(launched.run)}
    for sample_id, text in before.items():
        assert texts[sample_id].startswith(text), "accepted steps stay"
    counts = "SELECT count(*), count(DISTINCT sample_id), max(num_attempts) FROM sample"
    assert warehouse(launched.run, counts) == [(6, 6, 2)]
    assert witness.lost() == 0
    logs = "".join(log.read_text("utf-8", "replace") for log in (path / "logs" / "jobs").glob("*_log.out"))
    assert "engine died; restarting it" in logs
