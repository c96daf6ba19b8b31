"""Runs that were killed in the middle: a real worker process, ended by SIGKILL while samples are under way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.cli import options
from harness.engines.factory import SCRIPTED_SECONDS
from jobs.run.folder import RunFolder
from jobs.run.state import RunState, read_state

_CALL_SECONDS = "0.3"
"""Slow enough for a kill to find a worker between two steps of a sample."""
_LOOK_SECONDS, _PATIENCE_SECONDS = 0.01, 120.0
_ENDED = 2
"""Samples that must have ended since the last kill."""
WITHOUT_STEPS = frozenset({"vanilla"})
"""Methods whose samples have no step before their last."""


def kill_twice(run: RunFolder, flags: Mapping[str, Any]) -> None:
    """Launch a run two times and kill it each time; the second worker goes on from what the first one left."""
    for _ in range(2):
        kill(run, flags)


def kill(run: RunFolder, flags: Mapping[str, Any]) -> None:
    """Launch a run and kill its worker once samples have ended and others have accepted steps."""
    before = len(read_state(run).finished) if run.exists() else 0
    command = [sys.executable, "-m", "harness.launch", *options.arguments(flags)]
    environment = {**os.environ, SCRIPTED_SECONDS: _CALL_SECONDS}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as worker:
        try:
            _wait_for_the_middle(worker, run, before)
        finally:
            worker.send_signal(signal.SIGKILL)


def _wait_for_the_middle(worker: subprocess.Popen[bytes], run: RunFolder, before: int) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        if worker.poll() is not None:
            raise RuntimeError(f"{run.path.name}: its worker ended with {worker.returncode} before it was killed")
        if run.exists() and _is_in_the_middle(run, read_state(run), before):
            return
        time.sleep(_LOOK_SECONDS)
    raise RuntimeError(f"{run.path.name} was not in the middle within {_PATIENCE_SECONDS:.0f} s")


def _is_in_the_middle(run: RunFolder, state: RunState, before: int) -> bool:
    """Samples have ended, others have steps; of several shards the last one is at work."""
    if len(state.finished) < before + _ENDED or not any(run.journal_dir.iterdir()):
        return False
    at_last_shard = {unit.sample_id for unit in run.shard(run.num_shards() - 1)}
    least = 0 if run.spec().method in WITHOUT_STEPS else 1
    under_way = [t for t in state.unfinished.values() if t.sample_id in at_last_shard and len(t.steps) >= least]
    return bool(under_way)


def tear(journal: Path) -> None:
    """Cut the last line of a journal in half, as a machine does that loses its power; a kill alone tears none."""
    content = journal.read_bytes()
    last = len(content.rstrip(b"\n").rpartition(b"\n")[2]) + 1
    journal.write_bytes(content[: -last // 2])
