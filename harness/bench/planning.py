"""`python -m harness.bench.planning PROBLEMS SAMPLES`: the plan of a run of made-up problems, written as by the
launcher."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

_DATASET = "math500"


def write_problems(folder: Path, dataset: str, sentences: int = 1) -> None:
    """Write as many made-up problems as the dataset has, of so many sentences each."""
    from harness import benchmarks

    lines = (
        json.dumps({"id": f"{dataset}/{i}", "problem": f"What is {i} + {i}? " * sentences, "answer": str(2 * i)})
        for i in range(benchmarks.DATASETS[dataset].count)
    )
    (folder / f"{dataset}.jsonl").write_text("\n".join(lines), encoding="utf-8")


def main(problems: int, samples: int) -> None:
    """Prints one JSON object."""
    begun = time.monotonic()
    from harness import benchmarks
    from harness.launch import main as launcher
    from harness.options import settled
    from jobs.run.folder import RunFolder
    from jobs.run.plan import plan
    from jobs.run.shards import assign_to_shards
    from jobs.run.spec import units

    if problems > benchmarks.DATASETS[_DATASET].count:
        raise SystemExit(f"at most {benchmarks.DATASETS[_DATASET].count} problems")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_problems(data, _DATASET, sentences=12)
        arguments = ["--method", "speccot", "--dataset", _DATASET, "--engine", "scripted", "--data-dir", folder]
        arguments += ["--samples", str(samples), "--limit", str(problems)]
        context = launcher.make_context("launch", arguments)
        started = time.monotonic()
        chosen = settled(context, None, None)
        spec, found, _ = plan(chosen, {"drafts": 5, "guidance_tokens": 50, "step_tokens": 512})
        run = RunFolder(data / spec.run_id)
        run.create(spec, found, assign_to_shards(units(spec, found), 8))
        ended = time.monotonic()
        num_units = run.units_by_shard().num_rows
    print(json.dumps({"plan_seconds": ended - started, "seconds": ended - begun, "units": num_units}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
