"""What a check is asked, and what it answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harness.engine import Role

Status = Literal["ok", "warning", "failure"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    subject: str
    status: Status
    """`failure`: a run would not start or would lose data; `warning`: it would run, perhaps not as meant."""
    text: str
    """One line: what was found and, where it is not ok, what to do."""


@dataclass(frozen=True)
class Question:
    """What is to be run, and where; plain data, so that a job can be asked the same."""

    engine: str
    """`auto`, `vllm`, `transformers` or `scripted`."""
    output: str
    """Folder of run folders, absolute."""
    models: Mapping[Role, str]
    """Names, hub ids or absolute folders of the models that are needed, by role; empty: none are looked at."""
    tensor_parallel: Mapping[Role, int]
    selection_adapter: str | None = None
    """Absolute folder of the target's LoRA weights; None: there are none."""
    method: str | None = None
    params: Mapping[str, Any] | None = None
    dataset: str | None = None
    data_dir: str | None = None
    seed: int = 0
    token_budget: int = 8192
    cluster: str = "local"
    """`slurm`, `local` or `debug`."""
    sbatch: Mapping[str, Any] | None = None
    """Words of sbatch."""
    tasks: int = 1
    on_node: bool = False
    """Asked inside a job: this is where workers run."""
    probe_seconds: float = 90.0
    """Limit of one import of a large package."""
    limit_seconds: float = 180.0
    """What is not found out by then is a warning."""

    @property
    def workers_run_here(self) -> bool:
        """Whether this machine needs what a worker needs; a login node does not."""
        return self.on_node or self.cluster != "slurm"

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, path: Path) -> Question:
        """The inverse of `to_json`, from a file."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def ok(subject: str, text: str) -> Check:
    """All is well."""
    return Check(subject, "ok", _one_line(text))


def warning(subject: str, text: str) -> Check:
    """It would run, perhaps not as meant."""
    return Check(subject, "warning", _one_line(text))


def failure(subject: str, text: str) -> Check:
    """A run would not start, or would lose data."""
    return Check(subject, "failure", _one_line(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())
