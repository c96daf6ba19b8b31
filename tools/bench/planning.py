"""`python -m tools.bench.planning PROBLEMS SAMPLES`: time to plan a run of synthetic problems, as the launcher does."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_DATASET = "math500"


def write_problems(folder: Path, dataset: str, sentences: int = 1) -> None:
    """Write synthetic problems: the dataset's number of problems, with a given number of sentences."""
    from harness.problems import benchmarks

    lines = (
        json.dumps({"id": f"{dataset}/{i}", "problem": f"What is {i} + {i}? " * sentences, "answer": str(2 * i)})
        for i in range(benchmarks.DATASETS[dataset].count)
    )
    (folder / f"{dataset}.jsonl").write_text("\n".join(lines), encoding="utf-8")


def main(problems: int, samples: int) -> None:
    """Plan a run and write its run folder; print the duration in seconds as JSON."""
    begun_at = time.monotonic()
    from harness.problems import benchmarks
    from harness.settings.launch_settings import Launch
    from jobs.run.folder import run_folder
    from jobs.run.plan import plan
    from jobs.run.spec import assign_to_shards, units

    if problems > benchmarks.DATASETS[_DATASET].count:
        raise SystemExit(f"at most {benchmarks.DATASETS[_DATASET].count} problems")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_problems(data, _DATASET, sentences=12)
        flags: dict[str, Any] = {"engine": "scripted", "data_dir": data, "samples": samples, "limit": problems}
        launch = Launch.from_flags({"method": "speccot", "dataset": _DATASET, **flags})
        started_at = time.monotonic()
        planned = plan(launch, "local")
        run = run_folder(data, planned.spec)
        run.create(planned.spec, planned.problems, assign_to_shards(units(planned.spec, planned.problems), 8))
        ended_at = time.monotonic()
        num_units = run.units_by_shard().num_rows
    print(json.dumps({"plan_seconds": ended_at - started_at, "seconds": ended_at - begun_at, "units": num_units}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
