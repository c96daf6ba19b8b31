"""Settings of one model of a run: the draft, the target or the reward model.

Command line: `--target.temperature 0.7`. Files: a model name, a table (`target = {model = "…", temperature = 0.7}`), or
one key per setting (`target-temperature`).
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
"""Maximum token count: engines store it as a 32-bit integer."""


def _valid_tags(text: str | None) -> str | None:
    if text is not None:
        from harness.weights import templates

        templates.parsed_tags(text)
    return text


def _cards(value: Value) -> tuple[int, ...] | None:
    """Parse GPU indices from a string or list; None: all GPUs. Raises ValueError."""
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return None if value in (None, placement.ALL) else placement.parse(str(value))


def _own(name: str) -> Flag:
    return Flag("Sampling", f"The {{role}}'s {name}.", default=f"--{name}", roles=_PAIR)


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings of one model in a launch; None or empty if not set. `jobs.run.spec.ModelSpec` extends this class."""

    __pydantic_config__ = {"extra": "forbid", "coerce_numbers_to_str": True, "allow_inf_nan": False}  # noqa: RUF012

    model: Annotated[
        str | None,
        Flag(
            "Models",
            "The {role} model: a name (--list models), ORG/NAME[@REVISION], a folder, or a server (http://HOST:PORT/v1).",
            metavar="NAME",
            is_common=True,
        ),
    ] = None
    revision: str | None = None
    """Hub commit, from the model name or pinned by this project; None: a folder or a server."""
    tokenizer: Annotated[
        str | None,
        Flag(
            "Models",
            "Tokenizer of a {role} model on a server: a known name, a Hugging Face id, or a folder.",
            default="the model's name on the server",
        ),
    ] = None
    served_model: Annotated[
        str | None,
        Flag("Models", "Model on the {role}'s server, if the server has several.", default="the only one"),
    ] = None
    server: str | None = None
    """Kind of server, detected at launch: `vllm`, `sglang`, `llama.cpp`, or `unknown` until a job has queried it. None:
    the worker starts an engine. The address is not part of a run (jobs.run.sizing)."""
    template: Annotated[
        dict[str, Any],
        Flag(
            "Models",
            "Variable of the {role}'s chat template, such as enable_thinking=false; can be repeated.",
            metavar="KEY=VALUE",
            roles=_PAIR,
            read=table,
        ),
    ] = field(default_factory=dict)
    thinking_tags: Annotated[
        str | None,
        Flag(
            "Models",
            "Tags around the {role}'s thinking; none: not a reasoning model.",
            metavar="OPEN,CLOSE",
            default="detected from the generation prompt",
            roles=_PAIR,
            check=_valid_tags,
        ),
    ] = None
    adapter: Annotated[
        str | None,
        Flag(
            "Models", "For scot: folder of the LoRA adapter that selects drafts (see harness.train).", roles=("target",)
        ),
    ] = None
    temperature: Annotated[float | None, Ge(0), _own("temperature")] = None
    top_p: Annotated[float | None, Gt(0), Le(1), _own("top-p")] = None
    top_k: Annotated[int | None, Ge(0), Le(MOST_TOKENS), _own("top-k")] = None
    min_p: Annotated[float | None, Ge(0), Le(1), _own("min-p")] = None
    repetition_penalty: Annotated[float | None, Gt(0), _own("repetition-penalty")] = None
    dtype: Annotated[
        DataType | None,
        Flag("Engine", "Data type of the {role}'s weights; auto: as stored.", default="--dtype"),
    ] = None
    tensor_parallel: Annotated[
        int | None, Ge(1), Flag("Engine", "Number of GPUs for the {role} (tensor parallelism).", default=_CHOSEN)
    ] = None
    gpus: Annotated[
        tuple[int, ...] | None,
        Flag(
            "Engine",
            "The {role}'s GPUs, as indices into the worker's GPUs: 0 or 0,1 or 0-3.",
            metavar="NUMBERS",
            default="all, shared by the engines",
            read=_cards,
        ),
    ] = None
    memory: Annotated[
        float | None,
        Gt(0),
        Le(1),
        Flag("Engine", "Fraction of GPU memory (on a CPU: of cache memory) for the {role}'s engine.", default=_CHOSEN),
    ] = None
    engine: Annotated[
        dict[str, Any],
        Flag(
            "Engine",
            "Any other vLLM engine argument for the {role}, such as kv_cache_dtype=fp8; can be repeated.",
            metavar="KEY=VALUE",
            roles=_PAIR,
            read=table,
        ),
    ] = field(default_factory=dict)

    def given(self) -> dict[str, Any]:
        """Return the settings that have a value, by name."""
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) not in (None, {})}

    def sampling(self) -> dict[str, float]:
        """Return the sampling parameters set for this model, as in `harness.engine.Sampling`."""
        return {name: value for name in SAMPLING if (value := getattr(self, name)) is not None}


SAMPLING: Final = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def flat_role_name(role: str, name: str) -> str:
    """Return the flat name of a model setting, such as `target_top_k`; `target` for the model itself."""
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
"""Model settings by flat name."""
FLAT_NAMES: Mapping[str, str] = {f"{one.role}.{one.key}": name for name, one in ROLE_SETTINGS.items()}
"""Flat names by dotted key, such as `target.top_k`."""


def spelled(name: str) -> str:
    """Return the flag for a flat name."""
    return ROLE_SETTINGS[name].spelled if name in ROLE_SETTINGS else flag(name)


def flattened(flags: Flags) -> dict[str, Value]:
    """Convert flags in any spelling, including role tables, to flat names. Raises ValueError if one is set twice."""
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
    """Group model settings by role in one table each, keyed as in `ModelSettings`; the inverse of `flattened`."""
    found: dict[str, Any] = {}
    for name, value in flat.items():
        one = ROLE_SETTINGS.get(name)
        if one is None or one.role is None:
            found[name] = value
        else:
            found.setdefault(one.role, {})[one.key] = value
    return found
