"""Settings that two runs must share for a ratio of their times, and settings that identify repeats of a run.

They define the conditions of the views `comparable_baseline` and `distance_baseline`, the reasons why a suite's table
refuses a ratio (`unlike`), and the differences reported by `warehouse.compare`. A draft's settings, token-level
speculation and engines taking turns belong to the method: a speed-up over the target alone includes their effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from warehouse.sql.model_columns import MODEL_COLUMNS, Matter, Owner, column_of, model_columns

Record = Mapping[str, Any]
Alone = Literal["equal", "equal or as many cards", "equal or none", "free"]
"""How a setting of the target alone must match the run's, for the target alone to be a baseline for times."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that may differ between runs."""

    column: str
    """Column of `run` or of the view `run_conditions`."""
    printed: str
    matter: Matter
    alone: Alone = "free"
    decides_text: bool = False
    """Whether the setting affects how tokens are sampled, or the text before them."""
    is_published: bool = False
    """Whether a published table may have a baseline with another value."""
    owner: Owner | None = None
    """Model to which the setting belongs; the setting applies only to runs with this model."""

    @property
    def is_of_settings(self) -> bool:
        """Whether this is a setting of a model that a run may lack, as opposed to the subject of a comparison."""
        return self.owner not in (None, "speculator") and self.matter != "subject"

    def is_alike(self, run: Record, baseline: Record) -> bool:
        """Return whether a baseline meets the requirement. Both are rows of `run` joined with `run_conditions`."""
        own, base = run[self.column], baseline[self.column]
        has_cards = self.alone == "equal or as many cards" and run["num_cards"] is not None
        if self.column == "device_kinds" and own is None:
            return False
        return (
            own == base
            or (self.owner == "target" and run[column_of("target", "fingerprint")] is None)
            or (has_cards and run["num_cards"] == baseline["num_cards"])
            or (self.alone == "equal or none" and base is None)
        )

    @property
    def condition(self) -> str:
        """`is_alike` as SQL, for `run` and `baseline`."""
        own, base = (f"{side}.{self.column}" for side in ("run", "baseline"))
        further = {
            "equal or as many cards": " OR run.num_cards = baseline.num_cards",
            "equal or none": f" OR {base} IS NULL",
        }.get(self.alone, "")
        if self.owner == "target":
            further += f" OR run.{column_of('target', 'fingerprint')} IS NULL"
        if self.column == "device_kinds":  # unknown devices are never equal
            return f"{own} = {base}"
        return f"({own} IS NOT DISTINCT FROM {base}{further})"


_ALONE: dict[tuple[Owner, str], Alone] = {
    **{
        ("target", name): "equal"
        for name in ("fingerprint", "server", "sampling", "template", "thinking_tags", "dtype", "engine")
    },
    **{("target", name): "equal or as many cards" for name in ("tensor_parallel", "memory")},
    **{("speculator", name): "equal or none" for name in ("model", "fingerprint", "server")},
}
_DRAWS = frozenset({"sampling", "template", "thinking_tags"})
_OF_MODELS = tuple(
    Setting(
        column.name,
        column.printed,
        column.matter,
        _ALONE.get((column.owner, column.field.name), "free"),
        decides_text=column.owner == "target" and column.field.name in _DRAWS,
        is_published=column.owner == "speculator" or column.field.name == "fingerprint",
        owner=column.owner,
    )
    for column in MODEL_COLUMNS
    if column.printed is not None
)
SETTINGS = (
    Setting("dataset", "dataset", "subject"),
    Setting("method", "method", "subject"),
    Setting("method_source", "source of the method", "note"),
    Setting("method_code", "code of the method", "subject"),
    Setting("params", "parameters", "subject"),
    *_OF_MODELS,
    Setting("engine_kind", "engine", "accuracy and latency", "equal"),
    # SCoT's baseline is greedy.
    Setting("temperature", "temperature", "accuracy and latency", "equal", decides_text=True, is_published=True),
    Setting("top_p", "top-p", "accuracy and latency", "equal", decides_text=True),
    Setting("token_budget", "token budget", "accuracy and latency", "equal", decides_text=True),
    Setting("prompt_hash", "prompts", "accuracy and latency", "equal", decides_text=True, is_published=True),
    Setting("engine_max_context", "longest context", "accuracy"),
    Setting("dataset_hash", "problems", "accuracy"),
    Setting("dataset_source", "source of the problems", "note"),
    Setting("samples", "samples per problem", "accuracy"),
    Setting("grader_version", "grader", "accuracy"),
    Setting("concurrency", "samples in flight", "latency", "equal"),
    Setting(
        "engine_spec_decode", "token-level speculation", "accuracy and latency", "equal or none", is_published=True
    ),
    Setting("engine_spec_tokens", "tokens proposed at a time", "latency", "equal or none", is_published=True),
    Setting("engine_spec_sampling", "sampling of proposed tokens", "latency", "equal or none", is_published=True),
    Setting("engine_take_turns", "engines take turns", "latency"),
    Setting("seed", "seed", "note"),
    Setting("tag", "tag", "note"),
    Setting("preset", "preset", "note"),
)
"""All settings, in the order in which a comparison lists them."""
_CONDITIONS = (
    Setting("device_kinds", "devices", "latency", "equal"),
    Setting("processors", "processor", "latency", "equal"),
    Setting("samples_in_flight", "samples in flight on a worker", "latency", "equal"),
)
"""Settings of the machine. The number of devices is not compared: a separate device for the draft does not slow the
target, and the target's tensor-parallel size is compared instead.
"""
_OF_TIMES = tuple(one for one in (*_CONDITIONS, *SETTINGS) if one.alone != "free")
CONDITIONED = """
SELECT run.*, regime, device_kinds, processors, samples_in_flight, num_cards, versions
FROM run JOIN run_conditions USING (run_id)
"""
"""Query for the rows to which the conditions apply."""
_IS_ALONE = (
    "({side}.method = 'vanilla' AND json_extract_string({side}.params, '$.model') = 'target' "
    "AND coalesce(json_extract({side}.params, '$.answer_tokens')::INTEGER, 0) = 0)"
)


def is_target_alone(method: str, params: Record) -> bool:
    """Return whether the target writes both reasoning and answer, without step-level speculation."""
    return bool(method == "vanilla" and params.get("model") == "target" and not params.get("answer_tokens"))


def baseline_sql(decides: Literal["times", "texts"]) -> str:
    """Return the condition under which `baseline`, a run of the target alone, is a baseline of `run`."""
    chosen = _OF_TIMES if decides == "times" else tuple(one for one in _OF_TIMES if one.decides_text)
    parts = [
        _IS_ALONE.format(side="baseline"),
        f"NOT {_IS_ALONE.format(side='run')}",
        *(one.condition for one in chosen),
        "run.night IS NOT DISTINCT FROM baseline.night",  # machines may differ between nights
    ]
    return "\n    AND ".join(parts)


def ratio_sql() -> str:
    """Return the condition for a ratio of the times of `run` and `baseline` in a suite's table."""
    return "\n    AND ".join(one.condition for one in _OF_TIMES if not one.is_published)


def unlike(run: Record, baseline: Record, *, across_concurrencies: bool = False) -> list[str]:
    """Return why two runs' times are not comparable in a suite's table, e.g. `its baseline has concurrency 8, not 1`.

    Both are rows of `warehouse.suites.measured.runs_like`. across_concurrencies: the ratio compares runs with
    different numbers of samples in flight.
    """
    other = run["dataset_hash"] != baseline["dataset_hash"]
    problems = ["its baseline has other problems; ratios use the common ones"] if other else []
    return problems + [
        f"its baseline has {one.column.removeprefix('engine_').replace('_', ' ')} {baseline[one.column]}, "
        f"not {run[one.column]}"
        for one in _unlike(run, baseline, across_concurrencies)
    ]


def is_alike(run: Record, baseline: Record, *, across_concurrencies: bool = False) -> bool:
    """Return whether the times of two runs are comparable in a suite's table, over their common problems."""
    return not list(_unlike(run, baseline, across_concurrencies))


def _unlike(run: Record, baseline: Record, across_concurrencies: bool) -> Iterator[Setting]:
    expected = ("concurrency", "samples_in_flight") if across_concurrencies else ()
    for one in _OF_TIMES:
        if not one.is_published and one.column not in expected and not one.is_alike(run, baseline):
            yield one


_WORK = (
    "method", "method_code", "params", "dataset_hash", "samples", "temperature", "top_p", "token_budget",
    "prompt_hash", "engine_kind", "engine_max_context", "engine_spec_decode", "engine_spec_tokens",
    "engine_spec_sampling", "engine_logprobs", "engine_take_turns", "concurrency",
    *model_columns("fingerprint", owners=("draft", "target", "reward", "speculator")),
    *model_columns("adapter.fingerprint", "sampling", "template", "thinking_tags"),
    *model_columns("dtype", "tensor_parallel", "memory", "gpus", "engine"),
)  # fmt: skip
"""Columns of `run` that are equal for runs of one setting: everything but seed, tag and time."""


def setting_sql() -> str:
    """Return SQL for a number that is equal for repeats of a run; `run` is a row of `CONDITIONED`."""
    names = (*_WORK, "device_kinds", "processors", "samples_in_flight", "versions", "night")
    return f"hash({', '.join(f'run.{name}::VARCHAR' for name in names)})"
