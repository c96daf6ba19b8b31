"""The input and the result of a check, and a question to a Python process of its own."""

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
    """The result for one subject."""

    subject: str
    status: Status
    """`failure`: a run would not start or would lose data; `warning`: it would run, perhaps not as intended."""
    text: str
    """One line: the observation and, unless it is ok, the remedy."""


def _check(status: Status, subject: str, text: str) -> Check:
    return Check(subject, status, " ".join(text.split()))


ok, warning, failure = partial(_check, "ok"), partial(_check, "warning"), partial(_check, "failure")


@dataclass(frozen=True)
class Question:
    """The run to check for, as plain data, so that a job on a node can be given the same question."""

    launch: PartialLaunch
    """What was asked for. Files and folders are absolute."""
    data_dir: str | None = None
    """That of the launch, which a node may not see."""
    cluster: str = "local"
    """`slurm`, `local` or `debug`."""
    sbatch: Mapping[str, Any] = field(default_factory=dict)
    """Options of sbatch."""
    login_versions: Mapping[str, str] | None = None
    """Versions of Python and packages on the machine that asks a node; None: nothing is compared."""
    on_node: bool = False
    """Whether the checks run inside a job, where workers run."""
    probe_seconds: float = 90.0
    """Time limit of one import of a large package."""
    limit_seconds: float = 180.0
    """Time limit of each group of checks; exceeding it is a warning."""

    @property
    def engine(self) -> str:
        """`auto`, `vllm`, `transformers`, `scripted`, or `served` where servers run all models."""
        named = [name for name in self.launch.models.values() if name is not None]
        return SERVED if named and all(map(is_address, named)) else self.launch.engine

    @property
    def workers_run_here(self) -> bool:
        """True if workers would run on this machine; False on a login node."""
        return self.on_node or self.cluster != "slurm"

    @property
    def has_own_python(self) -> bool:
        """True if the profile names the Python of the jobs."""
        return self.cluster == "slurm" and bool(self.sbatch.get("python"))

    @property
    def packages_are_here(self) -> bool:
        """True if the workers have the packages of this process's Python, or are meant to."""
        return self.on_node or not self.has_own_python

    def to_json(self) -> str:
        """Return the question as JSON."""
        return json.dumps(asdict(self), default=str)

    @classmethod
    def read(cls, path: Path) -> Question:
        """Read a file with the output of `to_json`."""
        return validated(cls, json.loads(path.read_text(encoding="utf-8")))


_QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "VLLM_LOGGING_LEVEL": "ERROR", "TQDM_DISABLE": "1"}


def probe(program: str, *arguments: str, seconds: float) -> str:
    """Return the last line that a Python program prints, offline.

    Raises TimeoutError, and RuntimeError with one line where it fails.
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
        raise TimeoutError(f"no answer within {seconds:.0f} s") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        raise RuntimeError(lines[-1][:300])
    return done.stdout.strip().rpartition("\n")[2]
