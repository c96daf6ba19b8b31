"""A short program in a process of its own: a broken library may crash or hang there, and nowhere else."""

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
    """What became of it."""

    answer: Any
    """The last line that it printed, read as JSON; None where there is none."""
    problem: str | None
    """One line; None where it ended well."""
    timed_out: bool = False


def probe(program: str, *arguments: str, seconds: float) -> Probe:
    """Run a Python program that prints JSON last, offline, for at most so long."""
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
