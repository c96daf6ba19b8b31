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
from harness.settings.roles import DataType

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

    engine: str
    """`auto`, `vllm`, `transformers`, `scripted`, or `served` where servers run all models."""
    output: str
    """Folder of run folders, absolute."""
    models: Mapping[Role, str]
    """Names, hub ids or absolute folders of the required models, by role; empty: no models are checked."""
    tensor_parallel: Mapping[Role, int]
    """Widths that were asked for; an engine without one gets what its node chooses."""
    memory: Mapping[Role, float] = field(default_factory=dict)
    """Memory shares that were asked for."""
    cards: Mapping[Role, tuple[int, ...] | None] = field(default_factory=dict)
    """Numbers of the GPUs that an engine was given among the worker's; None or no entry: all."""
    servers: Mapping[Role, str] = field(default_factory=dict)
    """Addresses of the servers that run models of the run, which are not in `models`."""
    tokenizers: Mapping[Role, str] = field(default_factory=dict)
    """Tokenizers of served models by name, hub id or absolute folder; no entry: that of the model as its server calls
    it."""
    served_models: Mapping[Role, str] = field(default_factory=dict)
    """Models to ask servers for; no entry: the only one."""
    selection_adapter: str | None = None
    """Absolute folder of the target's LoRA weights, if any."""
    speculator: str | None = None
    """Name, hub id or absolute folder of the weights that propose tokens (`--spec-model`), if any."""
    spec_decode: str | None = None
    """Who proposes tokens to the target; None: no token-level speculation."""
    spec_sampling: str | None = None
    """`greedy` or `probabilistic`; None: nothing was asked for."""
    spec_tokens: int = 0
    """Tokens proposed at a time; 0 without token-level speculation."""
    templates: Mapping[Role, Mapping[str, Any]] = field(default_factory=dict)
    """Variables of a model's chat template that were asked for."""
    thinking_tags: Mapping[Role, str] = field(default_factory=dict)
    """What opens and closes a model's thoughts, `OPEN,CLOSE` or `none`, where it was asked for."""
    temperature: float = 0.0
    method: str | None = None
    params: Mapping[str, Any] | None = None
    prompts: str | None = None
    """The wording of `--prompts` as JSON; None: the built-in one."""
    dataset: str | None = None
    """A known name, the absolute path of a file, or a dataset of the hub (`hf:`)."""
    split: str | None = None
    columns: tuple[str, ...] = ()
    data_dir: str | None = None
    seed: int = 0
    token_budget: int = 8192
    max_context: int | None = None
    """Longest prompt plus output that was asked for; None: what prompt and token budget need."""
    dtype: DataType = "auto"
    concurrency: int = 64
    """Samples in flight per worker."""
    cluster: str = "local"
    """`slurm`, `local` or `debug`."""
    sbatch: Mapping[str, Any] | None = None
    """Options of sbatch."""
    workers_per_task: int = 1
    tasks: int = 1
    login_versions: Mapping[str, str] | None = None
    """Versions of Python and packages on the machine that asks a node; None: nothing is compared."""
    on_node: bool = False
    """Whether the checks run inside a job, where workers run."""
    probe_seconds: float = 90.0
    """Time limit of one import of a large package."""
    limit_seconds: float = 180.0
    """Time limit of each group of checks; exceeding it is a warning."""

    @property
    def workers_run_here(self) -> bool:
        """True if workers would run on this machine; False on a login node."""
        return self.on_node or self.cluster != "slurm"

    @property
    def has_own_python(self) -> bool:
        """True if the profile names the Python of the jobs."""
        return self.cluster == "slurm" and bool((self.sbatch or {}).get("python"))

    @property
    def packages_are_here(self) -> bool:
        """True if the workers have the packages of this process's Python, or are meant to."""
        return self.on_node or not self.has_own_python

    def to_json(self) -> str:
        """Return the question as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: Path) -> Question:
        """Read a file with the output of `to_json`."""
        values = json.loads(path.read_text(encoding="utf-8"))
        cards = {role: numbers and tuple(numbers) for role, numbers in values.pop("cards").items()}
        return cls(**values | {"columns": tuple(values.get("columns", ()))}, cards=cards)


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
