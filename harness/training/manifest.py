"""What a trained model or adapter was made of, as `training.json` beside its weights.

A run that uses the weights takes the data's hash from here into its specification. Light: no torch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import environment
from harness.training.settings import Task

NAME = "training.json"


@dataclass(frozen=True)
class Manifest:
    """One finished training."""

    task: Task
    identity: str
    """Hash over base, data and settings (`tuning.identity`)."""
    weights: str
    """Fingerprint of what lies beside this file: a model folder's, or an adapter's."""
    base: Mapping[str, Any]
    data: Mapping[str, Any]
    """`sha256` of training/data.jsonl, its run, dataset and numbers, and which benchmarks it was compared with."""
    settings: Mapping[str, Any]
    finished_at: float = field(default_factory=time.time)
    """UTC, seconds since the epoch."""
    git_commit: str | None = field(default_factory=environment.git_commit)
    versions: Mapping[str, str] = field(default_factory=environment.versions)
    hardware: Mapping[str, Any] = field(default_factory=environment.hardware)


def write(folder: Path, manifest: Manifest) -> None:
    """Write a folder's manifest."""
    (folder / NAME).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")


def find(folder: Path) -> Manifest | None:
    """A folder's manifest; None where there is none that can be read."""
    try:
        return Manifest(**json.loads((folder / NAME).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def data_hash(folder: Path, weights: str) -> str | None:
    """16 hex digits of the data that these weights were trained on; None where a folder does not say, or says it of
    other weights."""
    manifest = find(folder)
    return None if manifest is None or manifest.weights != weights else str(manifest.data["sha256"])[:16]
