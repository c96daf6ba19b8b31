"""Labels for routers: the value of probed steps, with the text available to a router.

A router decides at each step whether to keep the draft's proposal or to let the target write one (Arbitrage, arXiv
2512.05033). Each row is a point of a probe. The split is by problem and the same in all probes of all runs.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pyarrow as pa

from harness.cli.messages import counted
from harness.problems.problem import Problem
from harness.prompts import THINK_END
from jobs import graders
from jobs.run import files, trace_files
from jobs.run.folder import RunFolder

_text, _int, _real, _flag = pa.string(), pa.int32(), pa.float64(), pa.bool_()
LABELS = pa.schema(
    {"split": _text, "dataset": _text, "problem_id": _text, "family": _text, "problem": _text}
    | {"choices": pa.list_(_text), "context": _text, "draft_step": _text, "target_step": _text}
    | {"draft_worth": _real, "target_worth": _real, "num_draft_rollouts": _int, "num_target_rollouts": _int}
    | {"weight": _real, "kind": _text, "value": _real, "accepts_below": _flag, "accepted": _flag}
    | {"step_index": _int, "candidate_index": _int, "num_steps": _int, "sample_id": _text, "source_run_id": _text}
    | {"probe_run_id": _text, "method": _text, "draft_model": _text, "draft_fingerprint": _text}
    | {"target_model": _text, "target_fingerprint": _text, "grader_version": _text}
)
"""Columns of the file of labels; see docs/formats.md."""
SPLITS = {"train": 0.6, "validation": 0.8, "test": 1.0}
"""Cumulative share of the problems at the end of each split."""


def split_of(problem: Problem) -> str:
    """Assign a problem to a split by hashing its family (or its text if it has none)."""
    digest = hashlib.sha256((problem.family or problem.text).encode()).digest()
    place = int.from_bytes(digest[:4], "big") / 2**32
    return next(name for name, end in SPLITS.items() if place < end)


def write(probe: RunFolder, source: RunFolder, path: Path) -> str:
    """Write one row per point of a finished probe of the run `source`; return a line with the count.

    The value of a step is the share of correct continuations under the selected grader version. Raises OSError and
    FileDamaged.
    """
    spec, version = source.spec(), graders.recorded(probe).version
    grades = trace_files.read_rows(probe.derived_path("grades", version), ["sample_id", "verdict"])
    verdicts = {row["sample_id"]: row["verdict"] for row in grades}
    right: defaultdict[str, list[bool]] = defaultdict(list)
    first: dict[str, str] = {}
    for sample in trace_files.counting_records(probe, ["problem_id", "sample_index", "steps.list.element.text"]):
        if sample["sample_id"] in verdicts:
            right[sample["problem_id"]].append(verdicts[sample["sample_id"]] == "correct")
        if sample["sample_index"] == 0:
            first[sample["problem_id"]] = "".join(step["text"] for step in sample["steps"])
    problems = {problem.id: problem for problem in probe.problems()}
    ids = {unit.sample_id: unit.problem_id for shard in source.shards() for unit in shard}
    of_run = {"probe_run_id": probe.path.name, "method": spec.method, "dataset": spec.dataset}
    for role, model in (("draft", spec.draft), ("target", spec.target)):
        of_run |= {f"{role}_model": model.model, f"{role}_fingerprint": model.fingerprint} if model else {}
    [point_file] = probe.derived("probe_points")
    points, rows = trace_files.read_rows(point_file), []
    for point in points:
        behind, own = (problems[point[f"{arm}_problem_id"]] for arm in ("draft", "own"))
        if not (right[behind.id] and right[own.id]):
            continue
        rows.append(
            {name: value for name, value in point.items() if name in LABELS.names}
            | {"split": split_of(own), "problem_id": ids[point["sample_id"]], "family": own.family}
            | {"problem": own.text, "choices": own.choices, "context": own.beginning}
            | {"draft_step": behind.beginning.removeprefix(own.beginning)}
            | {"target_step": _first_step(first.get(own.id, ""), own.beginning, spec.wording.step_separator)}
            | {"draft_worth": fmean(right[behind.id]), "num_draft_rollouts": len(right[behind.id])}
            | {"target_worth": fmean(right[own.id]), "num_target_rollouts": len(right[own.id])}
            | {**of_run, "grader_version": version}
        )
    files.write_atomically(path, trace_files.content_of(pa.Table.from_pylist(rows, schema=LABELS), {}))
    ungraded = len(points) - len(rows)
    left_out = f"; left out: {counted(ungraded, 'point')} without grades" if ungraded else ""
    return f"{path}: {counted(len(rows), 'point')}{left_out}."


def _first_step(reply: str, beginning: str, separator: str) -> str | None:
    """Return the first step of a reply after `beginning`, including the separator; None if empty."""
    # A plain model's reply lacks the closing tag.
    opening = beginning if reply.startswith(beginning) else beginning.replace(THINK_END, "")
    head, found, _ = reply.removeprefix(opening).partition(separator)
    return head + found or None
