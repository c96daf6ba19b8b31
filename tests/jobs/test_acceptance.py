"""The checks that interrupt runs, on real workers with scripted engines: sound ones pass, and each fault fails one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from harness.acceptance.outcome import CheckFailed, judged
from harness.acceptance.plan import SMALL, Plan, PlannedModel
from harness.engines import factory
from jobs import acceptance

MODEL = PlannedModel("scripted", "scripted", None)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[acceptance.Runs]:
    monkeypatch.setenv(factory.SCRIPTED_SECONDS, "0.02")
    sizes = dataclasses.replace(SMALL, run_method="speccot")
    runs = acceptance.Runs(Plan("scripted", "cpu", MODEL, MODEL, True, sizes, str(tmp_path)))  # type: ignore[arg-type]
    yield runs
    runs.close()


def test_a_worker_that_is_killed_and_one_that_is_signaled_lose_nothing(runs: acceptance.Runs) -> None:
    killed = judged("worker-killed", acceptance.kill_worker(runs), 0.0)
    assert killed.status == "PASS", killed
    preempted = judged("preempted", acceptance.preempt(runs), 0.0)
    assert preempted.status == "PASS", preempted
    assert {m.name: m.value for m in preempted.measurements}["finished"] == 40


def test_a_process_that_outlives_its_worker_fails_the_check_and_is_killed(
    runs: acceptance.Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptance, "_GONE_SECONDS", 1.0)
    orphan = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    launched = runs.launched()
    own, left = launched.processes, psutil.Process(orphan.pid)
    monkeypatch.setattr(launched, "processes", lambda: [*own(), left])
    outcome = judged("worker-killed", acceptance.kill_worker(runs), 0.0)
    assert outcome.status == "FAIL"
    assert {"processes left", "gone after"} <= {m.name for m in outcome.measurements if m.is_met is False}
    assert orphan.wait(timeout=10) < 0


def test_a_worker_without_an_engine_s_process_fails_the_check(runs: acceptance.Runs) -> None:
    with pytest.raises(CheckFailed, match="EngineCore"):
        acceptance.kill_engine(runs)


def test_a_run_that_does_not_start_says_what_it_printed_last(runs: acceptance.Runs) -> None:
    runs.plan = dataclasses.replace(runs.plan, kind="none")  # type: ignore[arg-type]
    with pytest.raises(CheckFailed, match=r"ended with 2 before .*'none' is not one of"):
        acceptance.kill_worker(runs)
