"""Columns of the table `run` for a run's models and their settings.

A specification has one record per role (`jobs.run.spec.ModelSpec`, a `ModelSettings`). Here every field has a column
with type and meaning. Tables, loading, comparisons, the report and results.json use this list.
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
"""Represents all sampling settings, which share one column."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a model's record and its column. In strings, `{owner}` is the role, `{model}` its `_NAMES` entry."""

    name: str
    """Name in `ModelSpec`; for fields of the adapter, the part after the dot."""
    column: str
    type: str
    meaning: str
    printed: str | None = None
    """Name in a comparison. None: not compared."""
    matter: Matter = "note"
    is_found: bool = False
    """Whether the field describes the model itself, not its settings; models that only propose tokens have it too."""
    is_shown: bool = False
    """Whether report pages and nightly cells list it, if set."""


_FIELDS: Final = (
    Field(
        "model", "{owner}_name", "VARCHAR", "Name of {model}; NULL if the run has none", "{model}", "subject", True
    ),
    Field("path", "{owner}_path", "VARCHAR", "Local folder or hub id of {model}", is_found=True),
    Field("revision", "{owner}_revision", "VARCHAR", "Revision of {model} on the Hub", is_found=True),
    Field(
        "fingerprint", "{owner}_fingerprint", "VARCHAR", "Content hash, or hub id and revision, of {model}",
        "{model} files", "subject", True,
    ),
    Field(
        "training", "{owner}_training", "VARCHAR",
        "Hash of the data that {model} was trained on (training.json in its folder); NULL: unknown", is_found=True,
    ),
    Field(
        "server", "{owner}_server", "VARCHAR",
        "Kind of the server that runs {model}: vllm, sglang, llama.cpp, or unknown if the launch could not reach "
        "the server; NULL: the worker starts an engine", "server of {model}", "accuracy and latency", True,
    ),
    Field(
        _SAMPLING, "{owner}_sampling", "JSON",
        'Sampling of {model} beyond temperature and top_p, e.g. {{"top_k": 20}}; NULL: only these',
        "sampling of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "template", "{owner}_template", "JSON",
        "Variables of the chat template of {model} (--{owner}.template); NULL: none",
        "template variables of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "thinking_tags", "{owner}_thinking_tags", "VARCHAR",
        "Opening and closing tag of the reasoning of {model} (--{owner}.thinking-tags), none: no tags; NULL: from its "
        "chat template", "thinking tags of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "dtype", "engine_{owner}_dtype", "VARCHAR",
        "Number format of the weights of {model} (--{owner}.dtype, --dtype); NULL if the run has none",
        "number format of {model}", "accuracy and latency",
    ),
    Field(
        "tensor_parallel", "engine_{owner}_tensor_parallel", "INTEGER",
        "Tensor-parallel size of {model}, as given or as chosen on the node",
        "tensor parallel of {model}", "latency",
    ),
    Field(
        "memory", "engine_{owner}_memory", "DOUBLE",
        "Share of device memory for the engine of {model} (--{owner}.memory); NULL: chosen on the node, see "
        "attempt.engines", "memory share of {model}", "latency",
    ),
    Field(
        "gpus", "engine_{owner}_gpus", "VARCHAR",
        "GPU indices, within the worker, for the engine of {model}; NULL: all", "GPUs of {model}", "note",
    ),
    Field(
        "engine", "engine_{owner}_arguments", "JSON",
        "Arguments of vLLM's engine for {model} (--{owner}.engine); NULL: none",
        "engine arguments of {model}", "accuracy and latency", is_shown=True,
    ),
    Field(
        "adapter.name", "selection_name", "VARCHAR",
        "LoRA adapter of {model} used to select drafts (SCoT, --{owner}.adapter); NULL: no adapter",
    ),
    Field("adapter.path", "selection_path", "VARCHAR", "Local folder of the LoRA adapter"),
    Field(
        "adapter.fingerprint", "selection_fingerprint", "VARCHAR", "Content hash of the LoRA adapter",
        "selection adapter", "subject",
    ),
    Field("adapter.rank", "selection_rank", "INTEGER", "Rank of the LoRA adapter"),
    Field(
        "adapter.training", "selection_training", "VARCHAR",
        "Hash of the training data of the LoRA adapter; NULL: unknown",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """A column of `run` with a field of one model."""

    owner: Owner
    field: Field

    @property
    def name(self) -> str:
        return self.field.column.format(owner=self.owner)

    @property
    def meaning(self) -> str:
        """Comment of the column."""
        return self.field.meaning.format(owner=self.owner, model=_NAMES[self.owner])

    @property
    def printed(self) -> str | None:
        """Name in a comparison."""
        own = self.field.printed
        return own and own.format(model=_NAMES[self.owner]).removeprefix("the ")

    @property
    def matter(self) -> Matter:
        """Which results a difference affects; for a speculator only latency, because its proposals change no text."""
        return "latency" if self.owner == "speculator" else self.field.matter

    @property
    def is_of_settings(self) -> bool:
        """Whether this is a setting of a model that a run may lack, as opposed to the subject of a comparison."""
        return self.owner != "speculator" and self.field.matter != "subject"


def _every() -> Iterator[ModelColumn]:
    declared = settings_of(ModelSettings)
    for owner in (*get_args(Role), "speculator"):
        for one in _FIELDS:
            setting = declared.get("temperature" if one.name == _SAMPLING else one.name.partition(".")[0])
            if one.is_found or (owner != "speculator" and (setting is None or owner in setting.flag.roles)):
                yield ModelColumn(owner, one)


MODEL_COLUMNS: Final = tuple(_every())
"""By role, in table order."""
SHOWN_COLUMNS: Final = tuple(c for one in _FIELDS if one.is_shown for c in MODEL_COLUMNS if c.field is one)
"""Model settings, ordered by setting, that pages list unless they are the default."""
JSON_COLUMNS: Final = frozenset(column.name for column in MODEL_COLUMNS if column.field.type == "JSON")


def model_columns(*names: str, owners: tuple[Owner, ...] = get_args(Role)) -> list[str]:
    """Return the columns that exist for these fields of these models; `sampling` stands for all sampling settings."""
    found = {(column.owner, column.field.name): column.name for column in MODEL_COLUMNS}
    return [found[owner, name] for name in names for owner in owners if (owner, name) in found]


def column_of(owner: Owner, name: str) -> str:
    """Return the column for a field of a model. Raises ValueError if there is none."""
    [column] = model_columns(name, owners=(owner,))
    return column


def definitions() -> str:
    """Return the lines of CREATE TABLE for these columns."""
    return "\n".join(f"    {column.name} {column.field.type}," for column in MODEL_COLUMNS)


def comments() -> str:
    """Return the COMMENT statements for these columns."""
    texts = ((column.name, column.meaning.replace("'", "''")) for column in MODEL_COLUMNS)
    return "\n".join(f"COMMENT ON COLUMN run.{name} IS '{text}';" for name, text in texts)


def stored(spec: RunSpec) -> dict[str, object]:
    """Return these columns' values for a run: dictionaries as JSON, GPU indices in flag format, NULL if not set."""
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
    """Return a model's values in a row of `run`, nested like `ModelSpec`, without unset values."""
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
