"""Run folders for tests, with scripted engines."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result
from rich.console import Console

from harness.cli.screen import Screen
from harness.engine import Role
from harness.launch import main as launch
from harness.methods import method_parameters
from harness.problems import benchmarks
from harness.problems.problem import dataset_hash
from harness.prompts import prompt_hash
from harness.settings import layers
from harness.settings.roles import ModelSettings
from harness.sizing.memory import Option
from harness.weights import models
from jobs import suite
from jobs.__main__ import main
from jobs.drive import drive
from jobs.finished.grading import finished_samples
from jobs.run import codes, trace_files, trust
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec, assign_to_shards, units
from jobs.submission.dispatch import Dispatched, Request, dispatch_together
from jobs.suite import Suite
from jobs.watch.follow import Follower
from jobs.watch.status import page, status
from jobs.work.worker import run_shard

SCRIPTED = ModelSpec(model="scripted", path="scripted", revision=None, fingerprint="scripted")
ENGINES = EngineSpec("scripted")


def plan(
    folder: Path,
    *,
    samples: int = 3,
    shards: int = 1,
    method: str = "speccot",
    engine: EngineSpec = ENGINES,
    settings: Mapping[Role, ModelSettings] | None = None,
    dtype: str = "auto",
    temperature: float = 0.6,
    **params: Any,
) -> RunFolder:
    problems = benchmarks.load("demo")[:8]
    spec = RunSpec(
        method=method,
        params=method_parameters(method, params),
        dataset="demo",
        dataset_hash=dataset_hash(problems),
        dataset_size=40,
        num_problems=len(problems),
        samples=samples,
        seed=0,
        temperature=temperature,
        top_p=0.95,
        token_budget=2048,
        draft=replace(SCRIPTED, **(settings or {}).get("draft", ModelSettings()).given() | {"dtype": dtype}),
        target=replace(SCRIPTED, **(settings or {}).get("target", ModelSettings()).given() | {"dtype": dtype}),
        engine=engine,
        concurrency=4,
        prompt_hash=prompt_hash(),
    )
    run = RunFolder(folder / spec.run_id)
    run.create(spec, problems, assign_to_shards(units(spec, problems), shards))
    return run


def finished_run(folder: Path, **options: Any) -> RunFolder:
    run = plan(folder, **options)
    for shard in range(run.num_shards()):
        run_shard(str(run.path), shard)
    return run


def bundled(name: str) -> ModelSpec:
    reference = models.resolve(name)
    return ModelSpec(
        dtype="float32",
        model=reference.name,
        path=reference.path_or_hub_id,
        revision=reference.revision,
        fingerprint=reference.identity,
    )


def planned_ids(run: RunFolder) -> list[str]:
    return sorted(unit.sample_id for shard in run.shards() for unit in shard)


def finished_ids(run: RunFolder) -> list[str]:
    return sorted(sample["sample_id"] for sample, _ in finished_samples(run))


def texts(run: RunFolder) -> dict[str, str]:
    return {sample["sample_id"]: text for sample, text in finished_samples(run)}


def trace_rows(run: RunFolder) -> list[dict[str, Any]]:
    return [row for path in run.trace_files() for row in trace_files.read_rows(path)]


def attempts(run: RunFolder) -> list[dict[str, Any]]:
    return [json.loads(trace_files.read_metadata(path)["attempt"]) for path in run.trace_files()]


def hashes(run: RunFolder) -> list[str]:
    """Of the codes that have worked on a run."""
    return [record.code_hash for record in codes.read(run)]


def jobs(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


def launched(folder: Path, *words: object, **flags: Any) -> Result:
    """A launch of speccot on two problems of the demo, in this process, unless these say otherwise."""
    given: dict[str, Any] = {"method": "speccot", "dataset": "demo", "engine": "scripted", "limit": 2, "samples": 1}
    given |= {"cluster": "debug", "output": str(folder)}
    return CliRunner().invoke(launch, [*layers.arguments(given | flags), *map(str, words)])


_SLOW_WORKER = """
import os, sys
os.environ["HARNESS_SCRIPTED_SECONDS"] = "0.02"
from jobs.work.worker import run_shard
run_shard(sys.argv[1], 0)
"""


def slow_worker(run: RunFolder) -> subprocess.Popen[bytes]:
    """A worker process that takes 20 ms a call."""
    return subprocess.Popen([sys.executable, "-c", _SLOW_WORKER, str(run.path)], stderr=subprocess.DEVNULL)


def wait_for_steps(run: RunFolder, steps: int) -> None:
    follower = Follower(run)
    deadline = time.monotonic() + 60
    while follower.poll().steps < steps:
        assert time.monotonic() < deadline, "the worker made no progress"
        time.sleep(0.02)


def write_suite(folder: Path, *runs: Mapping[str, Any], tables: str = "", **common: Any) -> Path:
    """Write small.toml: a suite of these runs on the demo with scripted engines in this process, and other tables."""
    given = {"output": f"{folder / 'runs'}", "engine": "scripted", "cluster": "debug", "dataset": "demo", **common}

    def table(values: Mapping[str, Any]) -> str:
        return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())

    path = folder / "small.toml"
    path.write_text("[[run]]\n".join(map(table, (given, *runs))) + tables, encoding="utf-8")
    return path


def shown(run: RunFolder) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    Screen(console).show(page(status(run)))
    return console.export_text()


def launch_suite(chosen: Suite, tag: str | None = None, only: Sequence[int] | None = None) -> list[RunFolder]:
    """Launch the runs of a suite, or some by number, without their probes."""
    return drive([suite.prepare(chosen, tag, only)], Console(highlight=False))


def dispatch_alone(run: RunFolder, options: Mapping[str, Option], **more: Any) -> Dispatched:
    """Submit a run that shares its jobs with no other, as whoever gave these options."""
    trust.remember(run, trust.options(options))
    [done] = dispatch_together([Request(run, options, **more)])
    return done
