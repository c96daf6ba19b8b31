"""Whether a run of ours may be read beside a published value: comparable, or not, because …"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import benchmarks, models
from harness.engines import adapter
from harness.engines.speculation import proposer
from harness.methods import build
from harness.training import manifest
from warehouse.papers.suite import TIMES, Measure, Suite

TIMES_ONLY = "for the times: "
"""Begins a reason that holds against times and ratios of times, not against accuracies and token counts."""
_WORDS = {"temperature": "temperature", "top_p": "top-p", "token_budget": "token budget"}


def run_columns(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What a run with the launcher's options `chosen` has in the warehouse's table `run`, but for its size."""
    proposing = proposer(chosen["method"], chosen["spec_decode"])
    roles = {*build(chosen["method"], dict(chosen["params"])).roles, *(["draft"] if proposing == "draft" else [])}
    names = {
        role: models.resolve(chosen[role]).name if role in roles and chosen[role] else None
        for role in ("draft", "target")
    }
    same = ("method", "dataset", "params", "temperature", "top_p", "token_budget", "concurrency", "seed")
    found = {**{name: chosen[name] for name in same}, **{f"{role}_name": name for role, name in names.items()}}
    selection = chosen["selection_adapter"] and adapter.fingerprint(
        Path(adapter.read(chosen["selection_adapter"]).path)
    )
    engines = {"engine_spec_decode": proposing, "engine_take_turns": chosen["take_turns"]}
    return {**found, **engines, "selection_fingerprint": selection}


def num_problems(chosen: Mapping[str, Any]) -> int:
    """Problems that these options ask for."""
    count = benchmarks.DATASETS[chosen["dataset"]].count
    return min(count, chosen["limit"] or count)


def why_not(suite: Suite, paper: Mapping[str, Any], run: Mapping[str, Any], measure: Measure) -> list[str]:
    """Reasons against a comparison; empty: comparable as far as the paper states its conditions.

    `paper` holds the launcher's options for the suite's own flags, `run` a row of the warehouse's table `run` with its
    `devices` and `num_finished`.
    """
    reasons = [*_models(paper, run), *_parameters(suite, paper, run), *_size(paper, run)]
    if measure in TIMES:
        reasons += [TIMES_ONLY + reason for reason in _machine(suite, paper, run)]
    return [*reasons, *suite.unlike]


def aligned_from_another(folder: str, wanted: str) -> list[str]:
    """The reason against the aligned draft in `folder` where its base is not `wanted`, the paper's draft by name."""
    made = manifest.find(Path(folder))
    if made is None:
        return [f"draft {folder} does not say what it was aligned from"]
    base = str(made.base["path"])
    same = base == models.resolve(wanted).path_or_hub_id
    return [] if same else [f"draft aligned from {base.rstrip('/').rpartition('/')[2]} instead of {wanted}"]


def _models(paper: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    columns = run_columns(paper)
    pairs = [(role, run[f"{role}_name"], columns[f"{role}_name"]) for role in ("draft", "target")]
    return [f"{role} {ours or 'none'} instead of {theirs}" for role, ours, theirs in pairs if ours != theirs]


def _parameters(suite: Suite, paper: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    reasons = []
    changed = {name: value for name, value in run["params"].items() if paper["params"].get(name) != value}
    if changed:
        reasons.append("other parameters: " + ", ".join(f"{name} {value}" for name, value in changed.items()))
    for name, word in _WORDS.items():
        if run[name] != paper[name] and not any(left.startswith(word) for left in suite.unstated):
            reasons.append(f"{word} {run[name]} instead of {paper[name]}")
    return reasons


def _size(paper: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    reasons = []
    if run["num_problems"] != num_problems(paper):
        reasons.append(f"{run['num_problems']} of {num_problems(paper)} problems")
    if run["samples"] != paper["samples"]:
        reasons.append(f"{run['samples']} samples a problem instead of {paper['samples']}")
    total = run["num_problems"] * run["samples"]
    if run["num_finished"] < total:
        reasons.append(f"only {run['num_finished']} of {total} samples are finished")
    return reasons


def _machine(suite: Suite, paper: Mapping[str, Any], run: Mapping[str, Any]) -> list[str]:
    reasons = []
    gpu = re.findall(r"[AH]\d{2,4}", suite.devices)
    if not run["devices"] or not any(name in run["devices"] for name in gpu):
        reasons.append(f"on {run['devices'] or 'an unknown device'} instead of {suite.devices}")
    if run["engine_kind"] not in suite.engine.lower():
        reasons.append(f"{run['engine_kind']} instead of {suite.engine}")
    if run["concurrency"] != paper["concurrency"]:
        reasons.append(f"{run['concurrency']} samples in flight instead of {paper['concurrency']}")
    for role in ("draft", "target"):
        name = f"{role}_tensor_parallel"
        if run[f"{role}_name"] and run[f"engine_{name}"] != paper[name]:
            reasons.append(f"{role} tensor parallel {run[f'engine_{name}']} instead of {paper[name]}")
    return reasons
