"""The input and the result of a check, and a question to a Python process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.engine import Role
from harness.engines.served.address import is_address
from harness.engines.speculation import Proposer, check_flags, proposer
from harness.settings.declaration import validated
from harness.settings.launch_settings import PartialLaunch
from harness.settings.roles import ModelSettings

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result for one subject."""

    subject: str
    status: Status
    """`failure`: a run would not start or would lose data; `warning`: it would run, perhaps not as intended."""
    text: str
    """One line: the observation and, unless it is ok, the remedy."""


@dataclass(frozen=True)
class Question:
    """The run to check for, as plain data, so that a job on a node can be given the same question."""

    launch: PartialLaunch
    """What was asked for. Files and folders are absolute."""
    models: Mapping[Role, ModelSettings] = field(default_factory=dict)
    """Settings of the models that the run needs, the method's default where the launch names none; empty: no models
    are checked."""
    data_dir: str | None = None
    prompts: str | None = None
    """The wording of `--prompts` as JSON; None: the built-in one."""
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
    def served(self) -> dict[Role, ModelSettings]:
        """The models that servers run, whose names are addresses."""
        return {role: own for role, own in self.models.items() if is_address(str(own.model))}

    @property
    def named(self) -> dict[Role, str]:
        """Names, hub ids or absolute folders of the models that workers load, by role."""
        return {role: str(own.model) for role, own in self.models.items() if role not in self.served}

    @property
    def engine(self) -> str:
        """`auto`, `vllm`, `transformers`, `scripted`, or `served` where servers run all models."""
        return "served" if self.models and not self.named else self.launch.engine

    @property
    def spec_decode(self) -> Proposer | None:
        """Who proposes tokens to the target; None: no token-level speculation."""
        return proposer_of(self.launch)

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


def proposer_of(launch: PartialLaunch) -> Proposer | None:
    """Return who proposes tokens to the target of a launch. Raises ValueError where its flags contradict each other."""
    if launch.method is None and launch.spec_decode is None:
        return None
    proposing = proposer(launch.method or "specdecode", launch.spec_decode)
    check_flags(proposing, launch.spec_model, launch.spec_sampling, launch.spec_tokens)
    return proposing


def ok(subject: str, text: str) -> Check:
    """Return a passed check."""
    return Check(subject, "ok", _one_line(text))


def warning(subject: str, text: str) -> Check:
    """Return a check for a run that would start, perhaps not as intended."""
    return Check(subject, "warning", _one_line(text))


def failure(subject: str, text: str) -> Check:
    """Return a check for a run that would not start, or would lose data."""
    return Check(subject, "failure", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


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
    paths = [str(_ROOT), os.environ.get("PYTHONPATH", "")]
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
        return Probe(None, f"no answer within {seconds:.0f} s", timed_out=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"]
        return Probe(None, lines[-1][:300])
    try:
        return Probe(json.loads(done.stdout.strip().splitlines()[-1]), None)
    except (IndexError, json.JSONDecodeError):
        return Probe(None, "printed no answer")


_QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error", "VLLM_LOGGING_LEVEL": "ERROR", "TQDM_DISABLE": "1"}
