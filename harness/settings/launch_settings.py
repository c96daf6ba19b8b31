"""All settings of a launch, as one frozen, validated object.

A `Launch` is built once from a command line, a configuration file, a preset, a suite row, or Python. Cheap to import:
no torch, vllm, transformers or datasets; methods, problems and pydantic are imported when a launch is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from annotated_types import Ge, Gt, Le, MinLen

from harness.cli.messages import counted, did_you_mean
from harness.engine import Role
from harness.engines import placement
from harness.engines.registry import AUTO, CHOICES
from harness.engines.speculation import DraftSampling
from harness.settings.declaration import (
    ROLES,
    Flag,
    Flags,
    Parameter,
    Value,
    existing_path,
    flag,
    in_one_line,
    role_flag,
    settings_of,
    validated,
    words,
)
from harness.settings.roles import (
    FLAT_NAMES,
    MOST_TOKENS,
    ROLE_SETTINGS,
    SAMPLING,
    DataType,
    ModelSettings,
    flattened,
    nested,
    spelled,
)

if TYPE_CHECKING:
    EngineChoice = str
else:
    EngineChoice = Literal[(AUTO, *CHOICES)]
Proposer = Literal["none", "draft", "ngram", "suffix", "eagle3", "mtp"]
Cluster = Literal["auto", "slurm", "local", "debug"]

SBATCH: Mapping[str, str] = {
    "partition": "Partition.",
    "account": "Account to charge.",
    "qos": "Quality of service.",
    "time": "Time limit per job, in sbatch format; longer runs are requeued and resumed.  [default: 4:00:00]",
    "gpus-per-node": "GPUs per task, e.g. 4 or h100:4. Each task has one worker unless --workers-per-task is set.",
    "gpu-memory": "Memory of one GPU, e.g. 80GB, if its type is unknown; used for planning, not passed to sbatch.",
    "cpus-per-task": "CPU cores per task.",
    "mem": "Memory per task, e.g. 200G.",
    "constraint": "Required node features.",
    "exclude": "Nodes to avoid.",
    "nodelist": "Nodes to use.",
    "gres": "Generic resources, for sites without gpus-per-node.",
    "reservation": "Reservation to use.",
}
"""sbatch options that are launcher flags, with their help texts."""
SBATCH_NAMES: Mapping[str, str] = {word.replace("-", "_"): word for word in SBATCH}

BUILT_IN_GRADER = "built-in"
_METHOD = Flag(
    "Run", "Method (--list methods), or a class: FILE.py:CLASS or PACKAGE.MODULE:CLASS.", metavar="NAME", is_common=True
)
_DATASET = Flag(
    "Run",
    "Benchmark (--list datasets), problem file (.jsonl, .csv, .parquet, .toml), or hf:ORG/NAME[:CONFIG][@REVISION].",
    metavar="NAME",
    is_common=True,
)


def _columns(value: Value) -> Value:
    """Convert a column mapping from a file to the flag's arguments, such as `problem=question`."""
    if isinstance(value, Mapping):
        return tuple(f"{name}={'+'.join(c) if isinstance(c, list) else c}" for name, c in value.items())
    return words(value)


@dataclass(frozen=True, kw_only=True)
class PartialLaunch:
    """A launch whose method and dataset are optional, for `harness.doctor`. Build it with `from_flags`."""

    __pydantic_config__ = {"coerce_numbers_to_str": True, "allow_inf_nan": False}  # noqa: RUF012  pydantic reads it

    # Method, problems and samples.
    method: Annotated[str | None, _METHOD] = None
    dataset: Annotated[str | None, _DATASET] = None
    split: Annotated[str | None, Flag("Run", "Split of a Hugging Face Hub dataset (hf:).", default="test")] = None
    columns: Annotated[
        tuple[str, ...],
        Flag("Run", "Column for a field of a custom dataset; can be repeated.", metavar="FIELD=COLUMN", read=_columns),
    ] = ()
    preset: Annotated[
        str | None, Flag("Run", "A paper's settings (--list presets).", metavar="NAME", is_common=True)
    ] = None
    samples: Annotated[
        int, Ge(1), Le(100_000), Flag("Run", "Samples per problem; default for custom datasets: 1.", is_common=True)
    ] = 16
    latency_sample: Annotated[
        int | None,
        Ge(1),
        Flag("Run", "Rerun M samples one at a time to measure latency, as with --concurrency 1.", metavar="M"),
    ] = None
    limit: Annotated[
        int | None, Ge(1), Flag("Run", "Run only the first N problems (a partial run).", is_common=True)
    ] = None
    problems: Annotated[str | None, Flag("Run", "Run only these problems: numbers, ranges or ids, e.g. 3,7,10-15.")] = (
        None
    )
    seed: Annotated[int, Ge(0), Le(2**63 - 1), Flag("Run", "Seed of every random draw.")] = 0
    tag: Annotated[
        str | None,
        MinLen(1),
        Flag("Run", "Label that makes this a separate run with new samples."),
    ] = None
    accept_code_change: Annotated[
        bool, Flag("Run", "Continue a run started with another code version; its results are labelled accordingly.")
    ] = False
    data_dir: Annotated[
        Path | None, Flag("Run", "Folder of <dataset>.jsonl files.  [default: $HARNESS_DATA_DIR]", check=existing_path)
    ] = None
    prompts: Annotated[Path | None, Flag("Run", "TOML file that replaces built-in prompts (see --list prompts).")] = (
        None
    )

    grader: Annotated[
        str,
        Flag(
            "Run",
            "Custom grader: FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION (docs/methods.md).",
            metavar="NAME",
        ),
    ] = BUILT_IN_GRADER

    # Models, and the default sampling parameters of the draft and target.
    draft: ModelSettings = field(default_factory=ModelSettings)
    target: ModelSettings = field(default_factory=ModelSettings)
    reward: ModelSettings = field(default_factory=ModelSettings)
    """Process reward model, for methods that use one."""
    temperature: Annotated[
        float, Ge(0), Flag("Sampling", "Sampling temperature; 0 is greedy decoding.", is_common=True)
    ] = 0.6
    top_p: Annotated[float, Gt(0), Le(1), Flag("Sampling", "Nucleus sampling threshold.")] = 0.95
    top_k: Annotated[int, Ge(0), Le(MOST_TOKENS), Flag("Sampling", "Sample from the N most likely tokens; 0: all.")] = 0
    min_p: Annotated[
        float, Ge(0), Le(1), Flag("Sampling", "Minimum probability, relative to the most likely token; 0: no minimum.")
    ] = 0.0
    repetition_penalty: Annotated[
        float, Gt(0), Flag("Sampling", "Above 1: penalize tokens already in the prompt or chain; not used in verdicts.")
    ] = 1.0
    token_budget: Annotated[
        int,
        Ge(1),
        Le(MOST_TOKENS),
        Flag("Sampling", "Maximum emitted tokens per sample, including the answer.", is_common=True),
    ] = 8192

    # Engines.
    engine: Annotated[
        EngineChoice,
        Flag("Engine", "Inference engine. auto: vLLM if installed or a profile sets python, otherwise transformers."),
    ] = "auto"
    concurrency: Annotated[
        int, Ge(1), Le(100_000), Flag("Engine", "Concurrent samples per worker; 1 to measure latency.", is_common=True)
    ] = 64
    take_turns: Annotated[bool, Flag("Engine", "Run only one engine at a time. By default, all run at once.")] = False
    logprobs: Annotated[
        bool | None,
        Flag(
            "Engine",
            "Record the mean log-probability of each candidate; costs about 50 µs per token.",
            default="off unless the method uses it",
        ),
    ] = None
    target_logprobs: Annotated[
        bool, Flag("Engine", "After sampling, compute and store the target's log-probability of each accepted step.")
    ] = False
    dtype: Annotated[DataType, Flag("Engine", "Data type of all model weights; auto: as stored.")] = "auto"
    max_context: Annotated[
        int | None,
        Ge(16),
        Le(MOST_TOKENS),
        Flag("Engine", "Maximum prompt plus output, in tokens.", default="derived from prompts and token budget"),
    ] = None

    # Token-level speculative decoding in the target's engine.
    spec_decode: Annotated[
        Proposer | None,
        Flag(
            "Engine",
            "Proposer for token-level speculative decoding in the target's engine. draft: a model; ngram and suffix: a "
            "search in the earlier text; eagle3: a head (--spec-model); mtp: the target's multi-token prediction "
            "layers.",
            default="draft for specdecode, otherwise none",
        ),
    ] = None
    spec_model: Annotated[
        str | None,
        Flag(
            "Engine",
            "Weights of the proposer. eagle3: a head trained for the target; draft: a model other than --draft; mtp: "
            "prediction layers missing from the target's files.",
        ),
    ] = None
    spec_sampling: Annotated[
        DraftSampling | None,
        Flag(
            "Engine",
            "Sampling of draft, eagle3 and mtp proposals. Above temperature 0, greedy ones are a weaker baseline than "
            "probabilistic ones.",
            default="greedy, as in vLLM",
        ),
    ] = None
    spec_tokens: Annotated[
        int | None,
        Ge(1),
        Flag("Engine", "Tokens per proposal; for suffix, the maximum.", default="5; 24 for suffix, 1 for mtp"),
    ] = None

    # Cluster, shards and cost limit.
    cluster: Annotated[
        Cluster,
        Flag("Cluster", "Where to run. auto: Slurm if available, otherwise local; debug: in this process."),
    ] = "auto"
    profile: Annotated[
        str | None, Flag("Cluster", "Cluster profile: a name from slurm/clusters, or a file.", is_common=True)
    ] = None
    slurm: Annotated[
        tuple[str, ...],
        Flag("Cluster", "Any other sbatch option; can be repeated.", metavar="KEY=VALUE", read=words),
    ] = ()
    shards: Annotated[int, Ge(1), Flag("Cluster", "Number of shards, each run by one worker.", is_common=True)] = 1
    shards_per_task: Annotated[
        int,
        Ge(1),
        Flag("Cluster", "Number of shards that each worker of a Slurm task runs without restarting the engines."),
    ] = 1
    workers_per_task: Annotated[
        int,
        Ge(1),
        Le(64),
        Flag("Cluster", "Workers per Slurm task (for whole nodes), each with an equal part of the task's GPUs."),
    ] = 1
    max_gpu_hours: Annotated[
        float | None,
        Gt(0),
        Flag(
            "Cluster",
            "Abort if the estimate exceeds H GPU-hours (without GPUs: worker-hours), or if there is no estimate.",
            metavar="H",
        ),
    ] = None
    sbatch: Mapping[str, str] = field(default_factory=dict)
    """sbatch options with a flag, by their name in `SBATCH`."""
    output: Annotated[Path, Flag("Output", "Folder for runs and the warehouse.", metavar="FOLDER", is_common=True)] = (
        Path("runs")
    )
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """Hyper-parameters of the method by name; without a method, only those that were set."""

    @property
    def roles(self) -> dict[Role, ModelSettings]:
        """Model settings by role."""
        return {"draft": self.draft, "target": self.target, "reward": self.reward}

    @property
    def models(self) -> dict[Role, str | None]:
        """Model names by role; None if not set."""
        return {role: settings.model for role, settings in self.roles.items()}

    def sampling_of(self, role: Role) -> dict[str, int | float]:
        """Return a model's sampling parameters that differ from --temperature, --top-p and the other defaults."""
        plain = {
            "temperature": self.temperature, "top_p": self.top_p, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0
        }  # fmt: skip
        asked = {name: getattr(self, name) for name in SAMPLING} | self.roles[role].sampling()
        return {name: value for name, value in asked.items() if value != plain[name]}

    def dtype_of(self, role: Role) -> DataType:
        """Return the data type of a model's weights."""
        return self.roles[role].dtype or self.dtype

    def temperature_of(self, role: Role) -> float:
        """Return a model's sampling temperature."""
        own = self.roles[role].temperature
        return self.temperature if own is None else own

    @classmethod
    def from_flags(cls, flags: Flags) -> Self:
        """Build from values by flag name, in any spelling and without leading dashes.

        Hyper-parameters are flags or entries of the table `parameters`. Raises ValueError with a one-line message.
        """
        from harness.methods import parameter_names

        given = flattened({name: value for name, value in flags.items() if value is not None})
        # TOML may parse a tag or a time limit as a date or time.
        values: dict[str, Value] = {n: str(v) if isinstance(v, date | time) else v for n, v in given.items()}
        named = values.get("method")
        parameters = own_parameters(values, None if named is None else method_named(str(named)))
        declared = {**settings_of(Launch), **ROLE_SETTINGS}
        for name, value in values.items():
            if name not in declared and name not in SBATCH_NAMES:
                hint = did_you_mean(name, [*declared, *SBATCH_NAMES, *FLAT_NAMES, *parameter_names(None)])
                raise ValueError(
                    f"unknown key {name!r}{hint}; valid: flags without leading --, listed by python -m harness.launch "
                    "--help-all"
                )
            if isinstance(value, bool) and name in declared and declared[name].type is not bool:
                raise ValueError(f"{spelled(name)}: expected a value, not true or false")
        sbatch = {word: str(values.pop(name)) for name, word in SBATCH_NAMES.items() if name in values}
        return cls._made({**nested(values), "sbatch": sbatch, "parameters": parameters})

    def changed(self, **values: Any) -> Self:
        """Return a validated copy with changed fields. Raises ValueError with a one-line message."""
        return type(self)._made({**vars(self), **values})

    @classmethod
    def _made(cls, values: Mapping[str, Any]) -> Self:
        """Validate field values, fill in derived values, and check combinations."""
        from pydantic import ValidationError

        from harness.methods import method_parameters
        from harness.problems import sources

        if cls is Launch:
            _check_named(values)
        if "samples" not in values and sources.is_own(str(values.get("dataset") or "")):
            values = {**values, "samples": 1}
        if values.get("method") is not None:
            method = method_named(str(values["method"]))
            parameters = method_parameters(method, values.get("parameters") or {})
            values = {**values, "method": method, "parameters": parameters}
        try:
            made = validated(cls, values)
        except ValidationError as error:
            raise ValueError(in_one_line(error)) from error
        for role, settings in made.roles.items():
            object.__setattr__(made, role, _with_width(role, settings))  # safe: `made` is not shared yet
        if made.dataset is not None:
            sources.check(made.dataset, made.split, made.columns)
        return made


@dataclass(frozen=True, kw_only=True)
class Launch(PartialLaunch):
    """All settings of a launch, with method and dataset."""

    method: Annotated[str, _METHOD] = field()
    dataset: Annotated[str, _DATASET] = field()


_SETTINGS = (*settings_of(Launch), *ROLE_SETTINGS, "sbatch", "parameters")
_OF_COMMANDS = (
    "config", "dry_run", "list", "listing", "help", "help_all", "version", "on_node", "wait", "json",
    "as_json", "tracker",
)  # fmt: skip
RESERVED: Final = frozenset({*_SETTINGS, *(f"no_{name}" for name in _SETTINGS), *SBATCH_NAMES, *_OF_COMMANDS})
"""Names not available to hyper-parameters, because they are launcher flags."""


def method_named(reference: str) -> str:
    """Return the name of a method. Raises ValueError if it is invalid or a hyper-parameter clashes with a flag."""
    from harness.methods import defaults
    from harness.methods.references import resolve

    name = resolve(reference)
    if clashing := sorted(RESERVED & defaults(name).keys()):
        raise ValueError(f"--method {reference}: {flag(clashing[0])} is also a launcher flag: rename the parameter")
    return name


def own_parameters(values: dict[str, Value], method: str | None) -> dict[str, Value]:
    """Remove a method's hyper-parameters from `values` (including the table `parameters`) and return them by name.

    `method`: None for the parameters of all built-in methods. Raises ValueError if one is set twice.
    """
    from harness.methods import parameter_names

    given = values.pop("parameters", {})
    if not isinstance(given, Mapping):
        raise ValueError("parameters: expected a table of hyper-parameters by name")
    named = {str(name).replace("-", "_"): value for name, value in given.items()}
    flat = {n: values.pop(n) for n in parameter_names(method) if n in values}
    if clashes := flat.keys() & named.keys():
        raise ValueError(f"{flag(min(clashes))}: set twice")
    return {**flat, **named}


def _check_named(values: Mapping[str, Any]) -> None:
    from harness.methods import METHODS
    from harness.problems.benchmarks import DATASETS

    valid = {"--method": METHODS, "--dataset": (*DATASETS, "a problem file (see --list datasets)")}
    missing = [name for name in valid if values.get(name.removeprefix("--")) is None]
    if missing:
        raise ValueError("; ".join(f"{name} is missing; choose from {', '.join(valid[name])}" for name in missing))


def _with_width(role: Role, settings: ModelSettings) -> ModelSettings:
    """Set the tensor-parallel size to the number of `gpus`, if given. Raises ValueError if the two differ."""
    if settings.gpus is None:
        return settings
    number, asked = len(settings.gpus), settings.tensor_parallel
    if asked not in (None, number):
        given = f"{role_flag(role, 'gpus')} {placement.written(settings.gpus)}"
        other = f"{role_flag(role, 'tensor_parallel')} is {asked}"
        raise ValueError(f"{given} lists {counted(number, 'GPU')}, but {other}: remove one of these flags")
    return replace(settings, tensor_parallel=number)


__all__ = ["RESERVED", "ROLES", "SBATCH", "Cluster", "Launch", "PartialLaunch"]
