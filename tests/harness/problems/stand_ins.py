"""Stand-ins for the library of the hub, and for the benchmarks that are not bundled."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from harness.problems import benchmarks


def write_stand_ins(folder: Path) -> None:
    """Write one file per benchmark, to be found through HARNESS_DATA_DIR."""
    for benchmark in benchmarks.DATASETS.values():
        if (benchmarks.BUNDLED / f"{benchmark.name}.jsonl").is_file():
            continue
        lines = ""
        for i in range(benchmark.count):
            total = i + benchmark.count
            options = {"answer": "A", "choices": [str(total + other) for other in range(4)]}
            answer = options if benchmark.kind == "choice" else {"answer": str(total)}
            lines += json.dumps({"problem": f"{benchmark.name} {i}: what is {i} + {benchmark.count}?", **answer}) + "\n"
        (folder / f"{benchmark.name}.jsonl").write_text(lines, encoding="utf-8")


class Table(list[dict[str, Any]]):
    """A dataset that the library has read from this commit in its cache."""

    def __init__(self, folder: str, commit: str | None, rows: Iterable[dict[str, Any]]) -> None:
        super().__init__(rows)
        self.cache_files = ({"filename": f"/cache/{folder}/default/0.0.0/{commit}/one-test.arrow"},)


def put_datasets(monkeypatch: pytest.MonkeyPatch, load_dataset: Callable[..., Table]) -> None:
    """Put a library in the place of `datasets` that reads with this function."""
    fake = types.ModuleType("datasets")
    fake.__dict__.update(load_dataset=load_dataset, exceptions=types.SimpleNamespace(DatasetsError=RuntimeError))
    monkeypatch.setitem(sys.modules, "datasets", fake)
