"""Files that stand in for the benchmarks that are not bundled, with as many problems as each of them has."""

from __future__ import annotations

import json
from pathlib import Path

from harness.problems import benchmarks


def write_stand_ins(folder: Path) -> None:
    """Write one file per benchmark, to be found through HARNESS_DATA_DIR."""
    for benchmark in benchmarks.DATASETS.values():
        if (benchmarks.BUNDLED / f"{benchmark.name}.jsonl").is_file():
            continue
        records = (_record(benchmark, index) for index in range(benchmark.count))
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        (folder / f"{benchmark.name}.jsonl").write_text(lines, encoding="utf-8")


def _record(benchmark: benchmarks.Benchmark, index: int) -> dict[str, object]:
    asked = {"problem": f"{benchmark.name} {index}: what is {index} + {benchmark.count}?"}
    if benchmark.kind == "choice":
        return {**asked, "answer": "A", "choices": [str(index + benchmark.count + i) for i in range(4)]}
    return {**asked, "answer": str(index + benchmark.count)}
