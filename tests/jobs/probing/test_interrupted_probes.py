"""Ctrl-C while a suite is probed ends the suite at once; the same command goes on with the probe and compares then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cli import exit_codes
from jobs import after
from jobs.__main__ import main
from jobs.continuations import probe
from jobs.run.endings import num_unfinished
from jobs.run.folder import run_folders
from tests.jobs.probing.test_probes_of_suites import LATENCY, SPECCOT, SUITE, probes, written

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 60
MANY = SUITE.replace(SPECCOT, "").replace(LATENCY, "").replace("rollouts = 2", "rollouts = 1000")
MANY = MANY.replace("target-logprobs = true\n", "")


@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_an_interrupt_ends_a_probe_at_once_with_the_usual_line(cluster: str, tmp_path: Path) -> None:
    path = written(tmp_path, MANY.replace('"debug"', f'"{cluster}"'))
    launch = subprocess.Popen(
        [sys.executable, "-m", "jobs", "suite", str(path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + SECONDS
    (tmp_path / "runs").mkdir()
    while not any(run.journals() for run in probes(tmp_path)):
        assert time.monotonic() < until, "no probe has begun"
        time.sleep(0.1)
    os.killpg(launch.pid, signal.SIGINT)  # as a terminal does
    out, error = launch.communicate(timeout=SECONDS)
    assert launch.returncode == exit_codes.INTERRUPTED
    assert error.rstrip().splitlines()[-1] == "Interrupted. What is finished is kept, and the same command resumes."
    assert "Traceback" not in out + error
    [probe] = probes(tmp_path)
    assert 0 < num_unfinished(probe) <= probe.num_planned()
    assert not (tmp_path / "runs" / "small.html").exists(), "nothing is compared before the end"


def test_an_interrupted_probe_is_not_compared_and_checks_no_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    def compared(*_: object, **__: object) -> None:
        raise AssertionError("an interrupt ends at once")

    monkeypatch.setattr(probe, "rounds", interrupted)
    monkeypatch.setattr(after, "compare_and_report", compared)
    with pytest.raises(SystemExit) as ended:
        main.main(["suite", str(written(tmp_path, MANY))], standalone_mode=False)
    assert ended.value.code == exit_codes.INTERRUPTED
    assert run_folders([tmp_path / "runs"])
