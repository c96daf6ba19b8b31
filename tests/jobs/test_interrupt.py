"""A launch that is interrupted ends with one line instead of the tracebacks of its processes, and resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness.cli import exit_codes
from jobs.run.endings import num_unfinished
from jobs.run.folder import run_folders

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60


def test_an_interrupt_ends_a_local_launch_with_one_line(tmp_path: Path) -> None:
    flags = "--method speccot --dataset demo --engine scripted --cluster local --samples 2000 --output"
    launch = subprocess.Popen(
        [sys.executable, "-m", "harness.launch", *flags.split(), str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + SECONDS
    while not any(run.journals() for run in run_folders([tmp_path])):
        assert time.monotonic() < until, "no worker has begun"
        time.sleep(0.1)
    os.killpg(launch.pid, signal.SIGINT)  # as a terminal does
    out, error = launch.communicate(timeout=SECONDS)
    assert launch.returncode == exit_codes.INTERRUPTED
    assert "Traceback" not in out + error
    assert error.strip() == "Interrupted. Finished samples are kept; run the same command again to resume."
    [run] = run_folders([tmp_path])
    assert 0 < num_unfinished(run) <= run.num_planned()
