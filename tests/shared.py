"""What tests of several packages use: benchmarks that may lie beside the checkout, changed settings, values."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from harness.engine import Role
from jobs.run.spec import RunSpec
from tests.requirements import skip_by_design

_BESIDE_THE_CHECKOUT = Path(__file__).resolve().parents[2] / "shared"
SHARED = Path(os.environ.get("HARNESS_SHARED", _BESIDE_THE_CHECKOUT)) / "datasets"
DATA_DIR = Path(os.environ.get("HARNESS_DATA_DIR", SHARED))
Value = TypeVar("Value")


def shared_file(name: str, folder: Path = SHARED) -> Path:
    """Return the JSON-lines file of a benchmark; the test is skipped where there is none."""
    path = folder / f"{name}.jsonl"
    if not path.is_file():
        skip_by_design(f"no {path}: HARNESS_SHARED names the folder above datasets/")
    return path


def shared_rows(name: str, folder: Path = SHARED) -> list[dict[str, Any]]:
    """Return the rows of a benchmark, in file order; the test is skipped where there are none."""
    return [json.loads(line) for line in shared_file(name, folder).read_bytes().split(b"\n") if line]


def with_settings(spec: RunSpec, role: Role, **changes: Any) -> RunSpec:
    """The specification with other settings of one of its models."""
    return replace(spec, **{role: replace(known(spec.models[role]), **changes)})  # type: ignore[arg-type]


def known(value: Value | None) -> Value:
    assert value is not None
    return value
