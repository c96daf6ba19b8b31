"""Input and result of a check, and a helper that runs Python code in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from harness.code_hash import ROOT
from harness.engines.registry import SERVED
from harness.engines.served.address import is_address
from harness.settings.declaration import validated
from harness.settings.launch_settings import PartialLaunch

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check of one subject."""

    subject: str
    status: Status
    """`failure`: a run would not start, or would lose data; `warning`: it may not run as intended."""
    text: str
    """One line: the observation, and the remedy unless ok."""


def _check(status: Status, subject: str, text: str) -> Check:
    return Check(subject, status, " ".join(text.split()))


ok, warning, failure = partial(_check, "ok"), partial(_check, "warning"), partial(_check, "failure")


@dataclass(frozen=True)
class Question:
    """The run whose requirements are checked, as plain data that can be passed to a job on a node."""

    launch: PartialLaunch
    """Launch settings, with absolute paths."""
    data_dir: str | None = None
    """Data folder of the launch; perhaps not visible on a node."""
    cluster: str = "local"
    """`slurm`, `local` or `debug`."""
    sbatch: Mapping[str, Any] = field(default_factory=dict)
    """sbatch options."""
    login_versions: Mapping[str, str] | None = None
    """Versions of Python and packages on the login node; None: not compared."""
    on_node: bool = False
    """Whether the checks run inside a job."""
    probe_seconds: float = 90.0
    """Time limit for importing one large package."""
    limit_seconds: float = 180.0
    """Time limit per group of checks; exceeding it is a warning."""

    @property
    def engine(self) -> str:
        """`auto`, `vllm`, `transformers`, `scripted`, or `served` if servers run all models."""
        named = [name for name in self.launch.models.values() if name is not None]
        return SERVED if named and all(map(is_address, named)) else self.launch.engine

    @property
    def workers_run_here(self) -> bool:
        """True if workers would run on this machine; False on a login node."""
        return self.on_node or self.cluster != "slurm"

    @property
    def has_own_python(self) -> bool:
        """True if the profile sets the Python interpreter for jobs."""
        return self.cluster == "slurm" and bool(self.sbatch.get("python"))

    @property
    def packages_are_here(self) -> bool:
        """True if the workers use this Python environment."""
        return self.on_node or not self.has_own_python

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str)

    @classmethod
    def read(cls, path: Path) -> Question:
        """Read a file with the output of `to_json`."""
        return validated(cls, json.loads(path.read_text(encoding="utf-8")))


_QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "VLLM_LOGGING_LEVEL": "ERROR", "TQDM_DISABLE": "1"}


def probe(program: str, *arguments: str, seconds: float) -> str:
    """Run a Python program offline and return the last line of its output.

    Raises TimeoutError, or RuntimeError with a one-line message if it fails.
    """
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            env={**os.environ, **_QUIET, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"timed out after {seconds:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exited with status {done.returncode}"]
        raise RuntimeError(lines[-1][:300])
    return done.stdout.strip().rpartition("\n")[2]
