"""Everything that a launch may be told, as one frozen and validated object.

A `Launch` is built once, from the flags of a command line, a configuration file, a preset, a row of a suite, or Python,
and is passed on as it is. Every flag of `harness.launch` is declared in `harness.flags` with its type, default, range
and help; `harness.cli.options` turns the declarations into click options. Light: no torch, vllm, transformers or
datasets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from harness.engine import Role
from harness.flags.budget import BudgetFlags
from harness.flags.cluster import ClusterFlags
from harness.flags.engine import EngineFlags
from harness.flags.models import ModelFlags
from harness.flags.placement import PlacementFlags
from harness.flags.run import DATASET, METHOD, RunFlags
from harness.flags.sampling import SamplingFlags
from harness.flags.speculation import SpeculationFlags
from harness.launch_flags import (
    SBATCH,
    BadLaunch,
    Cluster,
    Flag,
    error_in_one_line,
    from_toml,
    with_widths_of_named_gpus,
)
from harness.methods.method import Parameter, flag
from harness.methods.parameters import assignments, method_parameters, parameter_names, switch_names
from harness.methods.references import resolve

__all__ = ["RESERVED", "SBATCH", "BadLaunch", "Cluster", "Flag", "Launch", "PartialLaunch"]


class PartialLaunch(
    BudgetFlags, ClusterFlags, PlacementFlags, SpeculationFlags, EngineFlags, SamplingFlags, ModelFlags, RunFlags
):
    """A launch of which the method and the dataset may be missing, as `harness.doctor` takes it.

    The fields are in the order of the bases from the last to the first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    sbatch: Mapping[str, str] = Field(default_factory=dict)
    """Options of sbatch that are flags of their own, by their name in `SBATCH`."""

    output: Annotated[Path, Flag("output", "Folder for run folders and the warehouse.")] = Path("runs")

    parameters: Mapping[str, Parameter] = Field(default_factory=dict)
    """All hyper-parameters of the method by name; without a method, those that were set."""

    @model_validator(mode="before")
    @classmethod
    def _parameters_of_the_method(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("method") is not None:
            method = resolve(str(values["method"]))
            parameters = method_parameters(method, values.get("parameters") or {}, RESERVED)
            return {**values, "method": method, "parameters": parameters}
        return values

    @model_validator(mode="before")
    @classmethod
    def _widths_of_named_gpus(cls, values: Any) -> Any:
        return with_widths_of_named_gpus(values) if isinstance(values, Mapping) else values

    @property
    def models(self) -> dict[Role, str | None]:
        """The models by role, as they are named; None where one is not."""
        return {"draft": self.draft, "target": self.target, "reward": self.reward}

    @property
    def tokenizers(self) -> dict[Role, str | None]:
        """The tokenizers that are named for models on servers, by role."""
        return {"draft": self.draft_tokenizer, "target": self.target_tokenizer, "reward": self.reward_tokenizer}

    @property
    def served_models(self) -> dict[Role, str | None]:
        """The models to ask servers for, by role."""
        return {
            "draft": self.draft_served_model,
            "target": self.target_served_model,
            "reward": self.reward_served_model,
        }

    @property
    def widths(self) -> dict[Role, int | None]:
        """Each engine's number of GPUs."""
        return {
            "draft": self.draft_tensor_parallel,
            "target": self.target_tensor_parallel,
            "reward": self.reward_tensor_parallel,
        }

    @property
    def memory(self) -> dict[Role, float | None]:
        """Each engine's share of the memory."""
        return {"draft": self.draft_memory, "target": self.target_memory, "reward": self.reward_memory}

    @property
    def gpus(self) -> dict[Role, str | None]:
        """Each engine's GPUs, as the flags have them."""
        return {"draft": self.draft_gpus, "target": self.target_gpus, "reward": self.reward_gpus}

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Self:
        """Build from flat values by flag name, with dashes or underscores and without the dashes in front.

        Hyper-parameters stand among them, or by name in the table `parameters`. Raises BadLaunch.
        """
        values = {name.replace("-", "_"): from_toml(value) for name, value in flags.items() if value is not None}
        try:
            parameters = own_parameters(values)
        except ValueError as error:
            raise BadLaunch(str(error)) from error
        for name, value in values.items():
            if isinstance(value, bool) and name in cls.model_fields and _takes_no_switch(cls, name):
                raise BadLaunch(f"{flag(name)}: expected a value, not true or false")
        sbatch = {word: str(values.pop(word.replace("-", "_"))) for word in SBATCH if word.replace("-", "_") in values}
        try:
            return cls.model_validate({**values, "sbatch": sbatch, "parameters": parameters})
        except ValidationError as error:
            names = [*cls.model_fields, *(word.replace("-", "_") for word in SBATCH), *parameter_names(None)]
            raise BadLaunch(error_in_one_line(error, names)) from error

    def changed(self, **values: Any) -> Self:
        """Return a validated copy with other values for these fields. Raises pydantic.ValidationError."""
        return type(self).model_validate({**dict(self), **values})


class Launch(PartialLaunch):
    """One method on one benchmark with two models: what is run and where."""

    method: Annotated[str, METHOD]
    dataset: Annotated[str, DATASET]


RESERVED = frozenset(
    (
        *(name for field in Launch.model_fields for name in (field, f"no_{field}")),
        *(word.replace("-", "_") for word in SBATCH),
        *("config", "parameter", "dry_run", "list", "listing", "help", "version", "on_node"),
        *("wait", "json", "as_json", "tracker"),
    )
)
"""Names that a hyper-parameter may have, but then without a flag of its own: the launcher has one of this name."""


def own_parameters(values: dict[str, Any]) -> dict[str, Any]:
    """Take the hyper-parameters out of flags, whose names have underscores, and return them by name.

    `parameter` holds words NAME=VALUE, `parameters` is a table. Raises ValueError where one is set twice.
    """
    method = resolve(str(values["method"])) if values.get("method") is not None else None
    table = values.pop("parameters", {})
    if not isinstance(table, Mapping):
        raise ValueError("parameters: expected a table of hyper-parameters by name")
    named = {str(name).replace("-", "_"): value for name, value in table.items()}
    words = assignments(values.pop("parameter", ()))
    switches = switch_names(method)
    for name in [name for name in values if name.startswith("no_") and name.removeprefix("no_") in switches]:
        values[name.removeprefix("no_")] = not values.pop(name)
    flat = {n: values.pop(n) for n in parameter_names(method) if n in values and n not in RESERVED}
    if clashes := (flat.keys() & named.keys()) | (words.keys() & (flat.keys() | named.keys())):
        raise ValueError(f"--parameter {min(clashes)}: set twice")
    return {**flat, **named, **words}


def _takes_no_switch(launch: type[BaseModel], name: str) -> bool:
    return launch.model_fields[name].annotation not in (bool, bool | None)
