"""Short Python programs in processes of their own, so that a broken library can crash or hang only there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of a program."""

    answer: Any
    """The last line of its output, parsed as JSON; None if it failed."""
    problem: str | None
    """One line about its failure; None if it succeeded."""
    timed_out: bool = False


def probe(program: str, *arguments: str, seconds: float) -> Probe:
    """Run a Python program whose last line of output is JSON, offline, with a time limit."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **_QUIET, "PYTHONPATH": _python_path()},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Probe(None, f"no answer within {seconds:.0f} s", timed_out=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return Probe(None, lines[-1][:300])
    try:
        return Probe(json.loads(done.stdout.strip().splitlines()[-1]), None)
    except (IndexError, json.JSONDecodeError):
        return Probe(None, "printed no answer")


_QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "VLLM_LOGGING_LEVEL": "ERROR", "TQDM_DISABLE": "1"}


def _python_path() -> str:
    return os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH", "")]))
