"""Real benchmarks that may lie beside the checkout."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("HARNESS_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "datasets"


def shared_rows(name: str) -> list[dict[str, Any]]:
    """The rows of one, in order; skips where it is not here."""
    path = SHARED / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"{path} is not here; HARNESS_SHARED names the folder above datasets/")
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]
