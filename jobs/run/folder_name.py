"""The folder of a specification: its readable name ends in the hash, by which it is found again.

    runs/demo-speccot-demo-draft_demo-target-947bf651    dataset, method, draft, target (and reward model), hash

Only the hash tells specifications apart; what stands before it is for people, who may rename it: a folder is found and
resumed by its hash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from jobs.run.folder import RunFolder
from jobs.run.spec import RunSpec

_LONGEST_MODEL = 32
"""Characters of a model's name that are kept."""
_LONGEST_NAME = 200
"""Bytes of a folder's name; 255 are possible, and archives and temporary files have longer names."""


def folder_name(spec: RunSpec) -> str:
    """Return the name of a new folder for a specification."""
    dataset_and_method = f"{spec.dataset}-{spec.method}"
    room = _LONGEST_NAME - len(f"{dataset_and_method}--{spec.digest}".encode())
    models = "_".join(readable(model.name) for model in spec.models.values() if model)[: max(0, room)].strip("-._")
    return "-".join(part for part in (dataset_and_method, models, spec.digest) if part)


def run_folder(output: Path, spec: RunSpec) -> RunFolder:
    """Return the folder of a specification below `output`: one that has its hash in its name, else a new one."""
    new = output / folder_name(spec)
    if os.path.lexists(new):
        return RunFolder(new)
    return RunFolder(next(_with_hash_of(spec, output), new))


def _with_hash_of(spec: RunSpec, output: Path) -> Iterator[Path]:
    """Yield the folders of the specification that a user has renamed."""
    beginning, ending = f"{spec.dataset}-{spec.method}-", f"-{spec.digest}"
    try:
        names = sorted(entry.name for entry in os.scandir(output) if entry.name.endswith(ending))
    except OSError:  # there is no such folder yet, or what makes it unusable is said where it is written
        return
    yield from (output / name for name in names if name.startswith(beginning) and RunFolder(output / name).exists())


def readable(model: str) -> str:
    """Return a model's name without its organization, in characters that no shell treats specially."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", model.rstrip("/").rpartition("/")[2])
    return plain[:_LONGEST_MODEL].strip("-.") or "model"
