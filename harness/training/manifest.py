"""The manifest of a trained model or adapter: `training.json` beside its weights.

A run that uses the weights records the hash of the training data from here. Imports no torch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import environment
from harness.training.hyperparameters import Task

NAME = "training.json"
FORMAT = 1
"""Version of its format; no other one is read."""


@dataclass(frozen=True)
class Manifest:
    """One finished training."""

    task: Task
    identity: str
    """Hash over base, data and settings (`tuning.identity`)."""
    weights: str
    """Fingerprint of the model folder or adapter beside this file."""
    base: Mapping[str, Any]
    data: Mapping[str, Any]
    """`sha256` of training/data.jsonl, its run, dataset and numbers, and which benchmarks it was compared with."""
    settings: Mapping[str, Any]
    finished_at: float = field(default_factory=time.time)
    """UTC, seconds since the epoch."""
    git_commit: str | None = field(default_factory=environment.git_commit)
    versions: Mapping[str, str] = field(default_factory=environment.versions)
    hardware: Mapping[str, Any] = field(default_factory=environment.hardware)
    format: int = FORMAT


def write(folder: Path, manifest: Manifest) -> None:
    """Write a folder's manifest."""
    (folder / NAME).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")


def find(folder: Path) -> Manifest | None:
    """Return a folder's manifest; None if there is no readable one. Raises ValueError where it has another format."""
    try:
        record = json.loads((folder / NAME).read_text(encoding="utf-8"))
        written = record.get("format")
        found = Manifest(**record)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    if written != FORMAT:
        raise ValueError(f"{folder / NAME} has another format than this version's: train the weights anew")
    return found


def data_hash(folder: Path, weights: str) -> str | None:
    """Return 16 hex digits of the hash of these weights' training data.

    None if the folder has no manifest, or one of other weights.
    """
    manifest = find(folder)
    return None if manifest is None or manifest.weights != weights else str(manifest.data["sha256"])[:16]
