"""What training reads from run folders: a target's chains, and SCoT's drafts with their grades."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from harness.cli.messages import counted
from harness.training.training_examples import Draft, Drafts, TargetChain
from jobs.run import endings, trace_files
from jobs.run.folder import RunFolder
from jobs.run.trace_files import SampleRow, counting_records


class NotReady(ValueError):
    """The run cannot be used for training, or not yet; the message is one line."""


def check(run: RunFolder, task: str) -> None:
    """Raise NotReady where a run is not of the kind that the training task needs, or is not finished."""
    if not run.exists():
        raise NotReady(f"{run.path} is not a run folder: it has no events.jsonl")
    spec = run.spec()
    required = {"align": "vanilla with the target", "select": "scot"}[task]
    method = f"{spec.method} with the {spec.params['model']}" if spec.method == "vanilla" else spec.method
    if method != required:
        raise NotReady(f"{task} needs a run of {required}, but {run.path.name} is a run of {method}")
    if not spec.engine.can.counts_as_result:
        raise NotReady(f"{run.path.name} has {spec.engine.kind} engines: no model wrote its chains")
    if num_unfinished := endings.num_unfinished(run):
        remedy = f"python -m jobs resume {quote(str(run.path))}"
        raise NotReady(f"{run.path.name} has {counted(num_unfinished, 'unfinished sample')}: {remedy}")


def target_chains(run: RunFolder) -> Iterator[TargetChain]:
    """Yield the chain of every finished sample of a run by the target alone, ordered by problem and sample index."""
    for row in _in_order(run, ["problem_id", "sample_index", "steps"]):
        chain = next((step for step in row["steps"] if step["role"] == "chain"), None)
        if chain is not None:
            yield TargetChain(
                row["sample_id"], row["problem_id"], chain["text"], tuple(chain["token_ids"]), chain["finish"]
            )


def graded_drafts(run: RunFolder, grader_version: str) -> Iterator[Drafts]:
    """Yield the drafts of every finished sample as they were offered, with the verdicts of one grader version."""
    grades = {
        (row["sample_id"], row["step_index"], row["candidate_index"]): row["verdict"]
        for row in trace_files.read_rows(run.derived_path("candidate_grades", grader_version))
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
