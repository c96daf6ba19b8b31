"""Decide whether a run is comparable with a published value, with the reasons where it is not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.engines import adapter
from harness.engines.speculation import proposer
from harness.launch_options import Launch
from harness.methods import build
from harness.problems import benchmarks
from harness.training import manifest
from harness.weights import models
from warehouse.papers.suite import TIMES, Measure, Suite

TIMES_ONLY = "for the times: "
"""Begins a reason that holds against times and ratios of times, not against accuracies and token counts."""


def run_columns(launch: Launch) -> dict[str, Any]:
    """Return what a run of this launch has in the warehouse's table `run`, except for its size."""
    proposing = proposer(launch.method, launch.spec_decode)
    roles = {*build(launch.method, dict(launch.parameters)).roles, *(["draft"] if proposing == "draft" else [])}
    names = {
        f"{role}_name": models.resolve(name).name if role in roles and name else None
        for role, name in (("draft", launch.draft), ("target", launch.target))
    }
    adapter_path = launch.selection_adapter and adapter.read(launch.selection_adapter).path
    return {
        "method": launch.method,
        "dataset": launch.dataset,
        "params": dict(launch.parameters),
        "temperature": launch.temperature,
        "top_p": launch.top_p,
        "token_budget": launch.token_budget,
        "concurrency": launch.concurrency,
        "seed": launch.seed,
        **names,
        "engine_spec_decode": proposing,
        "engine_take_turns": launch.take_turns,
        "selection_fingerprint": adapter_path and adapter.fingerprint(Path(adapter_path)),
    }


def num_problems(launch: Launch) -> int:
    """Return how many problems the launch runs."""
    count = benchmarks.DATASETS[launch.dataset].count
    return min(count, launch.limit or count)


def why_not(suite: Suite, paper: Launch, run: Mapping[str, Any], measure: Measure) -> list[str]:
    """Return the reasons against a comparison; empty: comparable as far as the paper states its conditions.

    `paper` is the launch of the suite's own flags, `run` a row of the warehouse's table `run` with its
    `devices` and `num_finished`.
    """
    reasons = [*_models(paper, run), *_parameters(suite, paper, run), *_size(paper, run)]
    if measure in TIMES:
        reasons += [TIMES_ONLY + reason for reason in _machine(suite, paper, run)]
    return [*reasons, *suite.unlike]


def aligned_from_another(folder: str, draft_name: str) -> list[str]:
    """Return the reason why the aligned draft in `folder` is not comparable: its base is not the paper's `draft_name`.

    The list is empty if the base is the paper's draft.
    """
    made = manifest.find(Path(folder))
    if made is None:
        return [f"draft {folder} does not say what it was aligned from"]
    base = str(made.base["path"])
    same = base == models.resolve(draft_name).path_or_hub_id
    return [] if same else [f"draft aligned from {base.rstrip('/').rpartition('/')[2]} instead of {draft_name}"]


def _models(paper: Launch, run: Mapping[str, Any]) -> list[str]:
    columns = run_columns(paper)
    pairs = [(role, run[f"{role}_name"], columns[f"{role}_name"]) for role in ("draft", "target")]
    return [f"{role} {ours or 'none'} instead of {theirs}" for role, ours, theirs in pairs if ours != theirs]


def _parameters(suite: Suite, paper: Launch, run: Mapping[str, Any]) -> list[str]:
    reasons = []
    changed = {name: value for name, value in run["params"].items() if paper.parameters.get(name) != value}
    if changed:
        reasons.append("other parameters: " + ", ".join(f"{name} {value}" for name, value in changed.items()))
    sampling = {
        "temperature": (run["temperature"], paper.temperature),
        "top-p": (run["top_p"], paper.top_p),
        "token budget": (run["token_budget"], paper.token_budget),
    }
    for name, (ours, theirs) in sampling.items():
        if ours != theirs and not any(unstated.startswith(name) for unstated in suite.unstated):
            reasons.append(f"{name} {ours} instead of {theirs}")
    return reasons


def _size(paper: Launch, run: Mapping[str, Any]) -> list[str]:
    reasons = []
    if run["num_problems"] != num_problems(paper):
        reasons.append(f"{run['num_problems']} of {num_problems(paper)} problems")
    if run["samples"] != paper.samples:
        reasons.append(f"{run['samples']} samples a problem instead of {paper.samples}")
    total = run["num_problems"] * run["samples"]
    if run["num_finished"] < total:
        reasons.append(f"only {run['num_finished']} of {total} samples are finished")
    return reasons


def _machine(suite: Suite, paper: Launch, run: Mapping[str, Any]) -> list[str]:
    reasons = []
    gpu = re.findall(r"[AH]\d{2,4}", suite.devices)
    if not run["devices"] or not any(name in run["devices"] for name in gpu):
        reasons.append(f"on {run['devices'] or 'an unknown device'} instead of {suite.devices}")
    if run["engine_kind"] not in suite.engine.lower():
        reasons.append(f"{run['engine_kind']} instead of {suite.engine}")
    if run["concurrency"] != paper.concurrency:
        reasons.append(f"{run['concurrency']} samples in flight instead of {paper.concurrency}")
    parallel = {"draft": paper.draft_tensor_parallel, "target": paper.target_tensor_parallel}
    for role in ("draft", "target"):
        ours, theirs = run[f"engine_{role}_tensor_parallel"], parallel[role]
        if run[f"{role}_name"] and ours != theirs:
            reasons.append(f"{role} tensor parallel {ours} instead of {theirs}")
    return reasons
