"""Finished runs of SpecCoT's table 2 on three problems, of which some samples were timed one at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from harness.methods import defaults, method_parameters
from harness.trace import Trace
from jobs.run import timing as folder
from jobs.run import trace_files
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, ModelSpec, Unit
from jobs.run.timing import Drawn, timing_id
from tests.warehouse import runs

SMALL, LARGE = (
    ModelSpec(model=name, path=name, revision=None, fingerprint=f"{name}@r") for name in ("org/small", "org/large")
)
PLAIN = replace(
    runs.SPEC, dataset="gsm8k", dataset_size=1319, token_budget=8192, seed=0, engine=EngineSpec("vllm"),
    draft=None, target=LARGE, method="vanilla", params=method_parameters("vanilla", {}), concurrency=64,
)  # fmt: skip
SPECULATIVE = replace(PLAIN, method="speccot", params={**defaults("speccot"), "drafts": 2}, draft=SMALL)


def finished(output: Path, spec: object, trace: Callable[..., Trace], batch_seconds: float) -> RunFolder:
    """A finished run whose samples took so long beside each other."""
    run = runs.create(output, spec)  # type: ignore[arg-type]
    runs.write_part(run, [trace(unit, latency=batch_seconds) for unit in runs.planned(run)])
    return run


def time(run: RunFolder, trace: Callable[..., Trace], seconds: Sequence[float]) -> None:
    """Time the first samples of a run, each in so many seconds."""
    units: list[Unit] = [unit for shard in run.shards() for unit in shard]
    timed = dict(zip([unit.sample_id for unit in units], seconds, strict=False))
    folder.request(run, len(seconds))
    folder.TimingFolder(run.path).trace_files_dir.mkdir(parents=True)
    folder.write_draw(run, [Drawn(unit.sample_id, 0, unit.sample_id in timed) for unit in units])
    records = [
        asdict(replace(trace(unit, latency=timed[unit.sample_id]), sample_id=timing_id(unit.sample_id)))
        for unit in units
        if unit.sample_id in timed
    ]
    metadata = {"attempt": json.dumps(asdict(runs.attempt(run.path.name, "t0")))}
    trace_files.write_table(
        folder.TimingFolder(run.path).trace_files_dir / "t0.parquet", trace_files.TRACES, records, metadata
    )
