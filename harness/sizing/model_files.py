"""Finds what the files of a model on this machine say about its size: `config.json` and the weight files' bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.cli.toml_file import read_toml
from harness.engines.speculation import config_at_hand
from harness.sizing.model_shape import ModelShape, read_shape
from harness.weights import models

_INDEX = "model.safetensors.index.json"
_INDEX_LIMIT = 64 << 20
"""Bytes of the largest index that is read; that of a model with thousands of experts has a tenth of it."""


@dataclass(frozen=True, slots=True)
class KnownShape:
    """A model's shape, and whether its own files say so."""

    shape: ModelShape
    is_assumed: bool
    """True where the figures are this project's, because the model's files are not on this machine."""


def shape_of(name: str, path_or_hub_id: str, revision: str | None = None) -> KnownShape | None:
    """Return the shape of a model in a folder or at the hub; None where nothing about it is known here.

    A config.json in the folder or in the hub's cache decides; without one, the figures in `models.toml` are assumed.
    Raises ValueError, with one line, where the configuration is not valid.
    """
    reference = models.ModelRef(name, path_or_hub_id, revision, None)
    config = config_at_hand(reference)
    if config is not None:
        return KnownShape(
            read_shape(name, config, _file_bytes(models.files_at_hand(path_or_hub_id, revision))), is_assumed=False
        )
    figures = _figures().get(path_or_hub_id)
    return None if figures is None else KnownShape(read_shape(name, figures), is_assumed=True)


@cache
def _figures() -> Mapping[str, Mapping[str, Any]]:
    return read_toml(Path(__file__).with_name("models.toml"))


def _file_bytes(folder: Path | None) -> int | None:
    """Return the bytes of the weight files; None where files are missing and no index tells their size."""
    if folder is None:
        return None
    names, total = _indexed(folder / _INDEX)
    # A folder may hold the same weights twice: Mistral's have a consolidated file beside the parts.
    files = [folder / name for name in names] or [
        path for path in folder.glob("*.safetensors") if not path.name.startswith("consolidated")
    ]
    files = files or list(folder.glob("pytorch_model*.bin"))
    if files and all(path.is_file() for path in files):
        return sum(path.stat().st_size for path in files) or None
    return total


def _indexed(index: Path) -> tuple[set[str], int | None]:
    """Return the names of the files that an index lists, and the size that it states; a damaged one states nothing."""
    try:
        if not index.is_file() or index.stat().st_size > _INDEX_LIMIT:
            return set(), None
        content = json.loads(index.read_bytes())
        names = {name for name in content["weight_map"].values() if isinstance(name, str) and Path(name).name == name}
        total = content.get("metadata", {}).get("total_size")
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return set(), None
    return names, int(total) if isinstance(total, int | float) and 0 < total < 1 << 50 else None
