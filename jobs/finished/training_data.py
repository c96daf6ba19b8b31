"""The data of a training: the run that holds it, whether it may be trained on, chains and graded drafts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from shlex import quote
from typing import TYPE_CHECKING

import click

from harness.cli.messages import counted
from harness.cli.screen import terminal
from harness.engine import Json
from harness.problems import benchmarks
from harness.settings.layers import launch_from
from harness.training.training_examples import Draft, Drafts, TargetChain, check_dataset, compare_with_benchmarks
from jobs import drive, graders
from jobs.finished import grading
from jobs.outcome import Outcome
from jobs.run import endings, trace_files
from jobs.run.folder import RunFolder, run_path
from jobs.run.spec import ModelSpec, RunSpec
from jobs.run.trace_files import SampleRow, counting_records

if TYPE_CHECKING:
    from harness.train import TrainingRequest


def check(run: RunFolder, task: str) -> None:
    """Raise ValueError where a run is not of the kind that the training task needs, or is not finished."""
    spec = run.spec()
    required = {"align": "vanilla with the target", "select": "scot"}[task]
    method = f"{spec.method} with the {spec.params['model']}" if spec.method == "vanilla" else spec.method
    if method != required:
        raise ValueError(f"{task} needs a run of {required}, but {run.path.name} is a run of {method}")
    if not spec.engine.can.counts_as_result:
        raise ValueError(f"{run.path.name} has {spec.engine.kind} engines: no model wrote its chains")
    if num_unfinished := endings.num_unfinished(run):
        remedy = f"python -m jobs resume {quote(str(run.path))}"
        raise ValueError(f"{run.path.name} has {counted(num_unfinished, 'unfinished sample')}: {remedy}")


def run_of(request: TrainingRequest) -> RunFolder | None:
    """Return the run that holds the data; None where it is not finished yet, or in a dry run.

    Raises ValueError, before any model loads, where it would not be training data.
    """
    settings = "  " + ", ".join(f"{name} {value}" for name, value in dataclasses.asdict(request.settings).items())
    if request.run is not None:
        run = RunFolder(run_path(str(request.run)))
        if not run.exists():
            raise ValueError(f"--run {request.run} is not a run folder: it has no events.jsonl")
        click.echo(f"{request.task}: the data of {request.run}\n{settings}")
        return None if request.dry_run else run
    launch, accepts = launch_from(request.data_flags), request.accept_test_questions
    check_dataset(launch.dataset, accepts_test_questions=accepts)
    dataset = benchmarks.load(launch.dataset, launch.data_dir, launch.seed)
    chosen = benchmarks.select(dataset, launch.limit, launch.problems)
    compare_with_benchmarks(chosen, launch.data_dir, accepts_test_questions=accepts)
    click.echo(f"{request.task}: problems {launch.problems} of {launch.dataset}\n{settings}")
    run = drive.launch(Outcome(), launch, (), terminal(), is_dry=request.dry_run).run
    if request.dry_run:
        return None
    if unfinished := endings.num_unfinished(run):
        click.echo(f"{unfinished} samples are not finished yet. When they are, run the same command again to train.")
        return None
    return run


def checked(request: TrainingRequest, run: RunFolder) -> tuple[RunSpec, ModelSpec, dict[str, Json]]:
    """Return the run's specification, its target, and what the manifest of the training says of it.

    Raises ValueError where it is no training data.
    """
    check(run, request.task)
    spec, accepts = run.spec(), request.accept_test_questions
    check_dataset(spec.dataset, accepts_test_questions=accepts)
    comparison = compare_with_benchmarks(run.problems(), request.data_dir, accepts_test_questions=accepts)
    endings.compact(run)
    assert spec.target is not None
    for name, number in comparison.accepted.items():
        click.echo(f"WARNING: {number} training problems are test questions of {name}; no result on these is one.")
    others = [name for name in comparison.compared if name not in comparison.accepted]
    click.echo(f"No training problem occurs in: {', '.join(others)}.")
    if comparison.missing_benchmarks:
        click.echo(f"WARNING: not compared with {', '.join(comparison.missing_benchmarks)}, which were not found here.")
    source: dict[str, Json] = {
        "run_id": run.path.name,
        "run_spec": json.loads(spec.to_json()),
        "compared_with": comparison.compared,
        "not_compared_with": comparison.missing_benchmarks,
        "test_questions": dict(comparison.accepted),
        **({"grader_version": graders.recorded(run).version} if request.task == "select" else {}),
    }
    return spec, spec.target, source


def target_chains(run: RunFolder) -> Iterator[TargetChain]:
    """Yield the chain of every finished sample of a run by the target alone, ordered by problem and sample index."""
    for row in _in_order(run, ["problem_id", "sample_index", "steps"]):
        chain = next((step for step in row["steps"] if step["role"] == "chain"), None)
        if chain is not None:
            yield TargetChain(
                row["sample_id"], row["problem_id"], chain["text"], tuple(chain["token_ids"]), chain["finish"]
            )


def graded_drafts(run: RunFolder) -> Iterator[Drafts]:
    """Yield the drafts of every finished sample as they were offered, with the verdicts of this grader version."""
    grading.grade_candidates(run)
    grades = {
        (row["sample_id"], row["step_index"], row["candidate_index"]): row["verdict"]
        for row in trace_files.read_rows(run.derived_path("candidate_grades", graders.recorded(run).version))
    }
    for row in _in_order(run, ["problem_id", "sample_index", "steps"]):
        step = next((i for i, step in enumerate(row["steps"]) if step["candidates"]), None)
        if step is None:
            continue
        offered: dict[int, Draft] = {}
        for number, candidate in enumerate(row["steps"][step]["candidates"]):
            if candidate["option"] is not None:
                verdict = grades.get((row["sample_id"], step, number), "not graded")
                offered.setdefault(candidate["option"], Draft(candidate["text"], verdict))
        yield Drafts(row["sample_id"], row["problem_id"], tuple(offered[i] for i in sorted(offered)))


def _in_order(run: RunFolder, columns: list[str]) -> list[SampleRow]:
    """Return finished samples without those that failed, in an order that does not depend on which finished first."""
    order = {problem.id: place for place, problem in enumerate(run.problems())}
    rows = counting_records(run, columns, failed=False)
    return sorted(rows, key=lambda row: (order[row["problem_id"]], row["sample_index"]))
