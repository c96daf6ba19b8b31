"""The columns of the table `run` that hold the models of a run and their settings.

In a specification these are one record for each role (`jobs.run.spec.ModelSpec`, which is a `ModelSettings`). Here
every field has its column, with its type and its meaning; tables, loading, comparisons, the report and results.json
read this list.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from harness.engine import Role
from harness.engines import placement
from harness.settings.declaration import settings_of
from harness.settings.roles import ModelSettings
from jobs.run.spec import ModelSpec, RunSpec

Matter = Literal["subject", "accuracy", "latency", "accuracy and latency", "note"]
"""Which results of two runs a difference affects."""
Owner = Role | Literal["speculator"]
_NAMES: Final[Mapping[Owner, str]] = {
    "draft": "the draft",
    "target": "the target",
    "reward": "the reward model",
    "speculator": "the model that proposes tokens",
}
_SAMPLING = "sampling"
"""Stands for all settings that say how tokens are drawn: they share a column."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a model's record, and how its columns look; `{owner}` is the role, `{model}` names it in words."""

    name: str
    """In `ModelSpec`; of the adapter behind a point."""
    column: str
    type: str
    meaning: str
    printed: str | None = None
    """What a comparison calls it; None: it is not compared."""
    matter: Matter = "note"
    is_found: bool = False
    """Whether it tells of the model itself, not of its settings: weights that only propose tokens have it too."""
    is_shown: bool = False
    """Whether pages and the cells of nights name it, where a run has it."""


_FIELDS: Final = (
    Field(
        "model", "{owner}_name", "VARCHAR", "Name of {model}; NULL where the run has none", "{model}", "subject", True
    ),
    Field("path", "{owner}_path", "VARCHAR", "Local folder or hub id of {model}", is_found=True),
    Field("revision", "{owner}_revision", "VARCHAR", "Revision of {model} at the hub", is_found=True),
    Field(
        "fingerprint", "{owner}_fingerprint", "VARCHAR", "Content hash, or hub id and revision, of {model}",
        "{model} files", "subject", True,
    ),
    Field(
        "training", "{owner}_training", "VARCHAR",
        "Hash of the data that {model} was trained on (training.json in its folder); NULL: not said", is_found=True,
    ),
    Field(
        "server", "{owner}_server", "VARCHAR",
        "Kind of the server that runs {model}: vllm, sglang, llama.cpp, or unknown where the launch could not reach "
        "it; NULL: the worker starts an engine", "server of {model}", "accuracy and latency", True,
    ),
    Field(
        _SAMPLING, "{owner}_sampling", "JSON",
        'How {model} drew tokens where it did not by temperature and top_p alone, e.g. {{"top_k": 20}}; NULL: by these',
        "sampling of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "template", "{owner}_template", "JSON",
        "Variables of the chat template of {model} (--{owner}.template); NULL: none",
        "template variables of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "thinking_tags", "{owner}_thinking_tags", "VARCHAR",
        "What opens and closes the thoughts of {model} (--{owner}.thinking-tags), none: a plain model; NULL: what its "
        "chat template has", "thinking tags of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "dtype", "engine_{owner}_dtype", "VARCHAR",
        "Number format of the weights of {model} (--{owner}.dtype, --dtype); NULL where the run has none",
        "number format of {model}", "accuracy and latency",
    ),
    Field(
        "tensor_parallel", "engine_{owner}_tensor_parallel", "INTEGER",
        "Devices that {model} is split over, as given or as chosen on the node",
        "tensor parallel of {model}", "latency",
    ),
    Field(
        "memory", "engine_{owner}_memory", "DOUBLE",
        "Share of device memory that the engine of {model} was given (--{owner}.memory); NULL: chosen on the node, see "
        "attempt.engines", "memory share of {model}", "latency",
    ),
    Field(
        "gpus", "engine_{owner}_gpus", "VARCHAR",
        "GPUs of the engine of {model}, by their numbers among the worker's; NULL: all", "GPUs of {model}", "note",
    ),
    Field(
        "engine", "engine_{owner}_arguments", "JSON",
        "Arguments of vLLM's engine for {model} (--{owner}.engine); NULL: none",
        "engine arguments of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "adapter.name", "selection_name", "VARCHAR",
        "LoRA weights that {model} chose drafts with (SCoT, --{owner}.adapter); NULL: it chose as it is",
    ),
    Field("adapter.path", "selection_path", "VARCHAR", "Local folder of these"),
    Field(
        "adapter.fingerprint", "selection_fingerprint", "VARCHAR", "Content hash of these",
        "selection adapter", "subject",
    ),
    Field("adapter.rank", "selection_rank", "INTEGER", "Rank of these"),
    Field(
        "adapter.training", "selection_training", "VARCHAR",
        "Hash of the data that these were trained on; NULL: not said",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """A column of `run` that holds a field of one model."""

    owner: Owner
    field: Field

    @property
    def name(self) -> str:
        """Its name."""
        return self.field.column.format(owner=self.owner)

    @property
    def meaning(self) -> str:
        """Its comment."""
        return self.field.meaning.format(owner=self.owner, model=_NAMES[self.owner])

    @property
    def printed(self) -> str | None:
        """What a comparison calls it."""
        own = self.field.printed
        return own and own.format(model=_NAMES[self.owner]).removeprefix("the ")

    @property
    def matter(self) -> Matter:
        """Which results a difference affects: what only proposes tokens changes no text."""
        return "latency" if self.owner == "speculator" else self.field.matter

    @property
    def is_of_settings(self) -> bool:
        """Whether it is a setting of a model that a run may lack, not a part of what is compared."""
        return self.owner != "speculator" and self.field.matter != "subject"


def _every() -> Iterator[ModelColumn]:
    declared = settings_of(ModelSettings)
    for owner in (*get_args(Role), "speculator"):
        for one in _FIELDS:
            setting = declared.get("temperature" if one.name == _SAMPLING else one.name.partition(".")[0])
            if one.is_found or (owner != "speculator" and (setting is None or owner in setting.flag.roles)):
                yield ModelColumn(owner, one)


MODEL_COLUMNS: Final = tuple(_every())
"""Role by role, in the order of the table."""
SHOWN_COLUMNS: Final = tuple(c for one in _FIELDS if one.is_shown for c in MODEL_COLUMNS if c.field is one)
"""What a page says of how each model was asked, where it was asked in an own way; setting by setting."""
JSON_COLUMNS: Final = frozenset(column.name for column in MODEL_COLUMNS if column.field.type == "JSON")


def model_columns(*names: str, owners: tuple[Owner, ...] = get_args(Role)) -> list[str]:
    """Return the columns that hold these fields of these models, for the models that have them; `sampling` is one."""
    found = {(column.owner, column.field.name): column.name for column in MODEL_COLUMNS}
    return [found[owner, name] for name in names for owner in owners if (owner, name) in found]


def column_of(owner: Owner, name: str) -> str:
    """Return the column that holds a field of a model. Raises ValueError where there is none."""
    [column] = model_columns(name, owners=(owner,))
    return column


def definitions() -> str:
    """Return the lines of CREATE TABLE for these columns."""
    return "\n".join(f"    {column.name} {column.field.type}," for column in MODEL_COLUMNS)


def comments() -> str:
    """Return the statements that give these columns their comments."""
    texts = ((column.name, column.meaning.replace("'", "''")) for column in MODEL_COLUMNS)
    return "\n".join(f"COMMENT ON COLUMN run.{name} IS '{text}';" for name, text in texts)


def stored(spec: RunSpec) -> dict[str, object]:
    """Return these columns of a run: tables as JSON, numbers of GPUs as a flag has them, what is not set as NULL."""
    row = {}
    for column in MODEL_COLUMNS:
        model = spec.speculator if column.owner == "speculator" else spec.models[column.owner]
        row[column.name] = _stored(_value(model, column.field.name))
    return row


def _value(model: ModelSpec | None, name: str) -> object:
    outer, _, inner = name.partition(".")
    if model is None or outer == _SAMPLING:
        return model and model.sampling()
    value = getattr(model, outer)
    return getattr(value, inner) if value is not None and inner else value


def _stored(value: object) -> object:
    if isinstance(value, tuple):
        return placement.written(value)
    return (json.dumps(value, sort_keys=True) if value else None) if isinstance(value, dict) else value


def model_in(row: Mapping[str, object], owner: Owner) -> dict[str, Any]:
    """Return what a row of `run` says of a model, nested as `ModelSpec` is, without what it does not say."""
    found: dict[str, Any] = {}
    for column in MODEL_COLUMNS:
        if column.owner != owner or (value := row.get(column.name)) is None:
            continue
        held: Any = json.loads(str(value)) if column.field.type == "JSON" else value
        outer, _, inner = column.field.name.partition(".")
        if outer == _SAMPLING:
            found |= held
        elif inner:
            found.setdefault(outer, {})[inner] = held
        else:
            found[outer] = held
    return found
