"""The bundled pair's distances: what has the target's distribution is at 0 within its interval, the draft is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from harness.problems import benchmarks
from harness.problems.problem import dataset_hash
from harness.prompts import prompt_hash
from harness.weights import models
from jobs.finished import scoring
from jobs.run.folder import RunFolder
from jobs.run.spec import EngineSpec, ModelSpec, RunSpec, assign_to_shards, units
from jobs.work.worker import run_shard
from tests.jobs.runs import plan
from warehouse.database import reader, rows
from warehouse.loading.runs import load_run

_NUM_PROBLEMS = 20


def bundled(name: str) -> ModelSpec:
    reference = models.resolve(name)
    return ModelSpec(
        dtype="float32",
        model=reference.name,
        path=reference.path_or_hub_id,
        revision=reference.revision,
        fingerprint=reference.identity,
    )


def finished(where: Path, method: str, params: dict[str, str], model: str, seed: int) -> RunFolder:
    """A run of one model of the pair, on the reference engine: a method without proposals is the target itself."""
    scripted: RunSpec = plan(where / f"{method}-{model}", method="vanilla").spec()
    problems = benchmarks.load("demo")[:_NUM_PROBLEMS]
    spec = replace(
        scripted,
        method=method,
        params=params,
        dataset_hash=dataset_hash(problems),
        num_problems=len(problems),
        samples=1,
        seed=seed,
        temperature=0.6,  # as the demo; at 1 single samples of the target go astray and hide the draft's distance
        top_p=1.0,
        token_budget=256,
        draft=bundled("demo-draft") if model == "draft" else None,
        target=bundled("demo-target") if model == "target" else None,
        engine=EngineSpec("transformers"),
        prompt_hash=prompt_hash(),
    )
    run = RunFolder(where / spec.run_id)
    run.create(spec, problems, assign_to_shards(units(spec, problems), 1))
    run_shard(str(run.path), 0)
    return run


@pytest.fixture(scope="module")
def distances(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, float]]:
    """The row of each run in the view, by its method."""
    where = tmp_path_factory.mktemp("pair")
    alone = finished(where, "vanilla", {"model": "target"}, "target", seed=0)
    same = finished(where, "specdecode", {}, "target", seed=1)
    draft = finished(where, "vanilla", {"model": "draft"}, "draft", seed=0)
    folders = [alone, same, draft]
    scoring.score_each(folders, alone)
    for folder in folders:
        load_run(folder, where / "w.duckdb")
    with reader(where / "w.duckdb") as connection:
        found = rows(connection, "FROM distance_from_target")
    by_run = {folder.path.name: name for folder, name in zip(folders, ("target", "specdecode", "draft"), strict=True)}
    return {by_run[str(row["run_id"])]: row for row in found}


def test_the_same_distribution_is_at_distance_zero_within_its_interval(distances: dict[str, dict[str, float]]) -> None:
    row = distances["specdecode"]
    assert row["n"] == _NUM_PROBLEMS
    assert row["distance_low_95"] < 0 < row["distance_high_95"]


def test_the_draft_alone_is_further_from_the_target(distances: dict[str, dict[str, float]]) -> None:
    assert distances["draft"]["distance"] > 0
    assert distances["draft"]["nats_per_token"] > 2 * distances["target"]["nats_per_token"]
    assert distances["draft"]["distance"] > distances["specdecode"]["distance_high_95"]
