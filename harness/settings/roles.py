"""The settings of one model of a run, the same for the draft, the target and the reward model.

On a command line each has a flag of its own, `--target.temperature 0.7`; in a file a role is the name of its model or a
table, `target = {model = "…", temperature = 0.7}`, or each setting has a key, `target-temperature`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal

from annotated_types import Ge, Gt, Le

from harness.engine import Role
from harness.engines import placement
from harness.settings.declaration import ROLES, Flag, Flags, Setting, Value, flag, role_flag, settings_of, table

DataType = Literal["auto", "bfloat16", "float16", "float32", "half", "float"]
_PAIR: tuple[Role, ...] = ("draft", "target")
_CHOSEN = "chosen on the node (see python -m harness.sizing)"
MOST_TOKENS = 2**31 - 1
"""Engines have top-k in 32 bits."""


def _valid_tags(text: str | None) -> str | None:
    if text is not None:
        from harness.weights import templates

        templates.parsed_tags(text)
    return text


def _cards(value: Value) -> tuple[int, ...] | None:
    """Return numbers of GPUs, as a text or a list has them; None for all of them. Raises ValueError."""
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return None if value in (None, placement.ALL) else placement.parse(str(value))


def _own(name: str) -> Flag:
    return Flag("Sampling", f"The {{role}}'s own {name}.", default=f"--{name}", roles=_PAIR)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """What a launch says of one of its models; None, or no entry, where it says nothing.

    A specification has a model's settings as a `jobs.run.spec.ModelSpec`, which is one of these.
    """

    __pydantic_config__ = {"extra": "forbid", "coerce_numbers_to_str": True, "allow_inf_nan": False}  # noqa: RUF012

    model: Annotated[
        str | None,
        Flag(
            "Models",
            "The {role} model: a name (--list models), org/name[@REVISION], a folder, or a server (http://HOST:PORT/v1).",
            metavar="NAME",
            is_common=True,
        ),
    ] = None
    revision: str | None = None
    """Commit at the hub, which a launch names behind the id, or which this project pins; None: a folder or a server."""
    tokenizer: Annotated[
        str | None,
        Flag(
            "Models",
            "Tokenizer of a {role} model on a server: a known name, a Hugging Face id, or a folder.",
            default="that of the model as the server calls it",
        ),
    ] = None
    served_model: Annotated[
        str | None,
        Flag("Models", "Model to ask the {role}'s server for, where it serves several.", default="the only one"),
    ] = None
    server: str | None = None
    """Kind of the server that runs it: `vllm`, `sglang`, `llama.cpp`, or `unknown` until a job has asked it; None: the
    worker starts an engine. Found at the launch. The address is no part of a run (jobs.run.sizing)."""
    template: Annotated[
        dict[str, Any],
        Flag(
            "Models",
            "A variable of the {role}'s chat template, such as enable_thinking=false; may be repeated.",
            metavar="KEY=VALUE",
            roles=_PAIR,
            read=table,
        ),
    ] = field(default_factory=dict)
    thinking_tags: Annotated[
        str | None,
        Flag(
            "Models",
            "What opens and closes the {role}'s thoughts; none: a plain model.",
            metavar="OPEN,CLOSE",
            default="what its generation prompt opens",
            roles=_PAIR,
            check=_valid_tags,
        ),
    ] = None
    adapter: Annotated[
        str | None,
        Flag("Models", "scot: folder of the LoRA weights that select a draft (see harness.train).", roles=("target",)),
    ] = None
    temperature: Annotated[float | None, Ge(0), _own("temperature")] = None
    top_p: Annotated[float | None, Gt(0), Le(1), _own("top-p")] = None
    top_k: Annotated[int | None, Ge(0), Le(MOST_TOKENS), _own("top-k")] = None
    min_p: Annotated[float | None, Ge(0), Le(1), _own("min-p")] = None
    repetition_penalty: Annotated[float | None, Gt(0), _own("repetition-penalty")] = None
    dtype: Annotated[
        DataType | None,
        Flag("Engine", "Data type of the {role}'s weights; auto: as they are stored.", default="--dtype"),
    ] = None
    tensor_parallel: Annotated[
        int | None, Ge(1), Flag("Engine", "GPUs that the {role} is split over.", default=_CHOSEN)
    ] = None
    gpus: Annotated[
        tuple[int, ...] | None,
        Flag(
            "Engine",
            "The {role}'s GPUs, by their numbers among the worker's: 0 or 0,1 or 0-3.",
            metavar="NUMBERS",
            default="all, so that the engines share them",
            read=_cards,
        ),
    ] = None
    memory: Annotated[
        float | None,
        Gt(0),
        Le(1),
        Flag("Engine", "Share of the memory that the {role}'s engine may use.", default=_CHOSEN),
    ] = None
    engine: Annotated[
        dict[str, Any],
        Flag(
            "Engine",
            "Any other argument of vLLM's engine for the {role}, such as kv_cache_dtype=fp8; may be repeated.",
            metavar="KEY=VALUE",
            roles=_PAIR,
            read=table,
        ),
    ] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Return what is set, by name."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) not in (None, {})}

    def sampling(self) -> dict[str, float]:
        """Return the model's own sampling, by the names of `harness.engine.Sampling`, as far as it is set."""
        return {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}


SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
"""The settings that say how tokens are drawn."""


def flat_role_name(role: str, name: str) -> str:
    """Return what the flat spellings call a model's setting, with underscores; the model itself has the role's name."""
    return role if name == "model" else f"{role}_{name}"


def _of_role(role: Role, setting: Setting) -> Setting:
    name = flat_role_name(role, setting.name)
    is_common = setting.flag.is_common and role != "reward"
    declared = replace(setting.flag, help=setting.flag.help.format(role=role), is_common=is_common)
    spelled = role_flag(role, setting.name)
    return replace(setting, name=name, spelled=spelled, flag=declared, role=role, key=setting.name)


ROLE_SETTINGS: Mapping[str, Setting] = {
    flat_role_name(role, name): _of_role(role, setting)
    for name, setting in settings_of(ModelSettings).items()
    for role in setting.flag.roles
}
"""By the names of the flat spellings, with underscores."""
FLAT_NAMES: Mapping[str, str] = {f"{one.role}.{one.key}": name for name, one in ROLE_SETTINGS.items()}
"""By the keys of the settings of models, as `target.top_k`."""


def spelled(name: str) -> str:
    """Return the flag of a setting by its flat name."""
    return ROLE_SETTINGS[name].spelled if name in ROLE_SETTINGS else flag(name)


def flattened(flags: Flags) -> dict[str, Value]:
    """Return flags by their flat names, in whatever spelling they are, tables of roles taken apart.

    Raises ValueError where one is set twice.
    """
    flat: dict[str, Value] = {}
    for name, value in flags.items():
        own_table = value if name in ROLES and isinstance(value, Mapping) else None
        named = {name: value} if own_table is None else {f"{name}.{key}": own for key, own in own_table.items()}
        for key, own in named.items():
            plain = key.replace("-", "_")
            known = FLAT_NAMES.get(plain, plain)
            if known in flat:
                raise ValueError(f"{key}: set twice")
            flat[known] = own
    return flat


def nested(flat: Flags) -> dict[str, Any]:
    """Return flags by flat name with those of each role in a table of its own, by the names of `ModelSettings`."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        one = ROLE_SETTINGS.get(name)
        if one is None or one.role is None:
            found[name] = value
        else:
            found.setdefault(one.role, {})[one.key] = value
    return found
