"""Everything that a launch may be told, as one frozen and validated object.

A `Launch` is built once, from the flags of a command line, a configuration file, a preset, a row of a suite, or Python,
and is passed on as it is. Light: no torch, vllm, transformers or datasets, and methods, problems and pydantic only once
a launch is built.
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
    "time": "Time limit of one job, as sbatch's; a longer run is requeued and resumes.  [default: 4:00:00]",
    "gpus-per-node": "GPUs per task, e.g. 4 or h100:4. A task has one worker unless --workers-per-task says more.",
    "gpu-memory": "Memory of one GPU, e.g. 80GB, where its type does not tell; for the plan only, not for sbatch.",
    "cpus-per-task": "CPU cores per task.",
    "mem": "Memory per task, e.g. 200G.",
    "constraint": "Features that a node must have.",
    "exclude": "Nodes not to use.",
    "nodelist": "Nodes to use.",
    "gres": "Generic resources, for sites that do not support gpus-per-node.",
    "reservation": "Reservation to use.",
}
"""Options of sbatch that are flags of the launcher, and their help."""
SBATCH_NAMES: Mapping[str, str] = {word.replace("-", "_"): word for word in SBATCH}

BUILT_IN_GRADER = "built-in"
_METHOD = Flag(
    "Run", "Method (--list methods), or a class: FILE.py:CLASS, PACKAGE.MODULE:CLASS.", metavar="NAME", is_common=True
)
_DATASET = Flag(
    "Run",
    "Benchmark (--list datasets), a file of problems (.jsonl, .csv, .parquet, .toml), or "
    "hf:ORG/NAME[:CONFIG][@REVISION].",
    metavar="NAME",
    is_common=True,
)


def _columns(value: Value) -> Value:
    """Return a mapping, as a file may have it, as the words that the flag takes."""
    if isinstance(value, Mapping):
        return tuple(f"{name}={'+'.join(c) if isinstance(c, list) else c}" for name, c in value.items())
    return words(value)


@dataclass(frozen=True, kw_only=True)
class PartialLaunch:
    """A launch of which the method and the dataset may be missing, as `harness.doctor` takes it.

    Made by `from_flags`, which validates; equal launches are equal.
    """

    __pydantic_config__ = {"coerce_numbers_to_str": True, "allow_inf_nan": False}  # noqa: RUF012  pydantic reads it

    # What is run: the method, the problems, and how often each is sampled.
    method: Annotated[str | None, _METHOD] = None
    dataset: Annotated[str | None, _DATASET] = None
    split: Annotated[str | None, Flag("Run", "Split of a dataset of the hub (hf:).", default="test")] = None
    columns: Annotated[
        tuple[str, ...],
        Flag("Run", "Own dataset: its columns, as answer=final; repeatable.", metavar="FIELD=COLUMN", read=_columns),
    ] = ()
    preset: Annotated[
        str | None, Flag("Run", "Settings of a paper (--list presets).", metavar="NAME", is_common=True)
    ] = None
    samples: Annotated[int, Ge(1), Flag("Run", "Samples per problem; own problems: 1.", is_common=True)] = 16
    latency_sample: Annotated[
        int | None,
        Ge(1),
        Flag("Run", "Time M samples again, one at a time, for latencies without --concurrency 1.", metavar="M"),
    ] = None
    limit: Annotated[
        int | None, Ge(1), Flag("Run", "Only the first N problems; marked as limited.", is_common=True)
    ] = None
    problems: Annotated[str | None, Flag("Run", "Run only these problems: numbers, ranges or ids, e.g. 3,7,10-15.")] = (
        None
    )
    seed: Annotated[int, Ge(0), Le(2**63 - 1), Flag("Run", "Seed of every random draw.")] = 0
    tag: Annotated[
        str | None,
        MinLen(1),
        Flag("Run", "A label that makes this a run of its own, with new samples of the same problems."),
    ] = None
    accept_code_change: Annotated[
        bool, Flag("Run", "Go on with a run that other code began; its results then say that two codes made them.")
    ] = False
    data_dir: Annotated[
        Path | None, Flag("Run", "Folder of <dataset>.jsonl files; also HARNESS_DATA_DIR.", check=existing_path)
    ] = None
    prompts: Annotated[
        Path | None, Flag("Run", "TOML file of texts that replace the built-in prompts (see --list prompts).")
    ] = None

    grader: Annotated[
        str,
        Flag(
            "Run",
            "What grades the answers: a function, FILE.py:FUNCTION or PACKAGE.MODULE:FUNCTION (docs/methods.md).",
            metavar="NAME",
        ),
    ] = BUILT_IN_GRADER

    # The models, and how they draw tokens where they have no settings of their own.
    draft: ModelSettings = field(default_factory=ModelSettings)
    target: ModelSettings = field(default_factory=ModelSettings)
    reward: ModelSettings = field(default_factory=ModelSettings)
    """Rates steps, for methods that have such a model."""
    temperature: Annotated[
        float, Ge(0), Flag("Sampling", "Sampling temperature; 0 is greedy decoding.", is_common=True)
    ] = 0.6
    top_p: Annotated[float, Gt(0), Le(1), Flag("Sampling", "Nucleus sampling threshold.")] = 0.95
    top_k: Annotated[int, Ge(0), Le(MOST_TOKENS), Flag("Sampling", "Sample from the N likeliest tokens; 0: all.")] = 0
    min_p: Annotated[
        float, Ge(0), Le(1), Flag("Sampling", "Sample tokens at least this share as probable as the likeliest; 0: all.")
    ] = 0.0
    repetition_penalty: Annotated[
        float, Gt(0), Flag("Sampling", "Above 1: tokens of prompt and chain become less likely, except in verdicts.")
    ] = 1.0
    token_budget: Annotated[
        int, Ge(1), Le(MOST_TOKENS), Flag("Sampling", "Emitted tokens per sample, the answer included.", is_common=True)
    ] = 8192

    # The engines that the models run in.
    engine: Annotated[
        EngineChoice,
        Flag("Engine", "Inference engine. auto: vLLM where it or a profile's python is there, else transformers."),
    ] = "auto"
    concurrency: Annotated[
        int, Ge(1), Le(100_000), Flag("Engine", "Samples in flight per worker; 1 to measure latency.", is_common=True)
    ] = 64
    take_turns: Annotated[
        bool, Flag("Engine", "Run only one of the two engines at a time; by default both work at once.")
    ] = False
    logprobs: Annotated[
        bool | None,
        Flag(
            "Engine",
            "Record the mean log-probability of each candidate, at some 50 µs of the event loop a token.",
            default="off, because no method decides by it",
        ),
    ] = None
    target_logprobs: Annotated[
        bool, Flag("Engine", "Store the target's log-probability of each accepted step, read after a worker's samples.")
    ] = False
    dtype: Annotated[DataType, Flag("Engine", "Data type of the weights of every model; auto: as they are stored.")] = (
        "auto"
    )
    max_context: Annotated[
        int | None,
        Ge(16),
        Le(MOST_TOKENS),
        Flag("Engine", "Longest prompt plus output, in tokens.", default="what prompt and token budget need"),
    ] = None

    # Token-level speculative decoding in the target's engine.
    spec_decode: Annotated[
        Proposer | None,
        Flag(
            "Engine",
            "Token-level speculative decoding in the target's engine: who proposes tokens. draft: a model; ngram, "
            "suffix: earlier text; eagle3: a head (--spec-model); mtp: the target's own prediction layers.",
            default="draft for specdecode, otherwise none",
        ),
    ] = None
    spec_model: Annotated[
        str | None,
        Flag(
            "Engine",
            "The weights that propose tokens: for eagle3 a head trained for the target, for draft "
            "another model than the run's, for mtp layers that are not in the target's own files.",
        ),
    ] = None
    spec_sampling: Annotated[
        DraftSampling | None,
        Flag(
            "Engine",
            "How draft, eagle3 and mtp draw tokens. Greedy drafts are a weaker baseline above temperature 0.",
            default="greedy, as in vLLM",
        ),
    ] = None
    spec_tokens: Annotated[
        int | None,
        Ge(1),
        Flag("Engine", "Tokens proposed at a time, with suffix the most.", default="5; 24 for suffix, 1 for mtp"),
    ] = None

    # Where the workers run, how the samples are split among them, and what it may cost.
    cluster: Annotated[
        Cluster,
        Flag("Cluster", "Where to run. auto: Slurm where there is a cluster, otherwise here; debug: this process."),
    ] = "auto"
    profile: Annotated[
        str | None, Flag("Cluster", "Cluster profile: a name in slurm/clusters, or a file.", is_common=True)
    ] = None
    slurm: Annotated[
        tuple[str, ...],
        Flag("Cluster", "Any other option for sbatch; may be repeated.", metavar="KEY=VALUE", read=words),
    ] = ()
    shards: Annotated[int, Ge(1), Flag("Cluster", "Shards, each run by a worker.", is_common=True)] = 1
    shards_per_task: Annotated[
        int, Ge(1), Flag("Cluster", "Shards that one worker of a Slurm task runs with one start of the engines.")
    ] = 1
    workers_per_task: Annotated[
        int,
        Ge(1),
        Le(64),
        Flag("Cluster", "Workers that a Slurm task starts, each with an equal part of its GPUs: for whole nodes."),
    ] = 1
    max_gpu_hours: Annotated[
        float | None,
        Gt(0),
        Flag(
            "Cluster",
            "Refuse above an estimate of H GPU-hours, or without one. Without GPUs: hours of workers.",
            metavar="H",
        ),
    ] = None
    sbatch: Mapping[str, str] = field(default_factory=dict)
    """Options of sbatch that are flags of their own, by their name in `SBATCH`."""
    output: Annotated[Path, Flag("Output", "Folder for runs and the warehouse.", metavar="FOLDER", is_common=True)] = (
        Path("runs")
    )
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """All hyper-parameters of the method by name; without a method, those that were set."""

    @property
    def roles(self) -> dict[Role, ModelSettings]:
        """The settings of each model."""
        return {"draft": self.draft, "target": self.target, "reward": self.reward}

    @property
    def models(self) -> dict[Role, str | None]:
        """The models by role, as they are named; None where one is not."""
        return {role: settings.model for role, settings in self.roles.items()}

    def sampling_of(self, role: Role) -> dict[str, int | float]:
        """Return how a model draws tokens, by the names of harness.engine.Sampling, where --temperature and --top-p do
        not say it."""
        plain = {
            "temperature": self.temperature, "top_p": self.top_p, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0
        }  # fmt: skip
        asked = {name: getattr(self, name) for name in SAMPLING} | self.roles[role].sampling()
        return {name: value for name, value in asked.items() if value != plain[name]}

    def dtype_of(self, role: Role) -> DataType:
        """Return the data type of a model's weights."""
        return self.roles[role].dtype or self.dtype

    def temperature_of(self, role: Role) -> float:
        """Return the temperature that a model samples at."""
        own = self.roles[role].temperature
        return self.temperature if own is None else own

    @classmethod
    def from_flags(cls, flags: Flags) -> Self:
        """Build from values by flag name, in any spelling of it and without the dashes in front.

        Hyper-parameters stand among them, or by name in the table `parameters`. Raises ValueError with one line.
        """
        from harness.methods import parameter_names

        given = flattened({name: value for name, value in flags.items() if value is not None})
        # A tag or a time limit may be written as a date or a time of TOML.
        values: dict[str, Value] = {n: str(v) if isinstance(v, date | time) else v for n, v in given.items()}
        named = values.get("method")
        parameters = own_parameters(values, None if named is None else method_named(str(named)))
        declared = {**settings_of(Launch), **ROLE_SETTINGS}
        for name, value in values.items():
            if name not in declared and name not in SBATCH_NAMES:
                hint = did_you_mean(name, [*declared, *SBATCH_NAMES, *FLAT_NAMES, *parameter_names(None)])
                raise ValueError(
                    f"unknown key {name!r}{hint}; valid are the flags without the dashes: python -m harness.launch "
                    "--help-all lists them"
                )
            if isinstance(value, bool) and name in declared and declared[name].type is not bool:
                raise ValueError(f"{spelled(name)}: expected a value, not true or false")
        sbatch = {word: str(values.pop(name)) for name, word in SBATCH_NAMES.items() if name in values}
        return cls._made({**nested(values), "sbatch": sbatch, "parameters": parameters})

    def changed(self, **values: Any) -> Self:
        """Return a validated copy with other values for these fields. Raises ValueError with one line."""
        return type(self)._made({**vars(self), **values})

    @classmethod
    def _made(cls, values: Mapping[str, Any]) -> Self:
        """Validate values by field, complete what follows from them, and check what belongs together."""
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
            object.__setattr__(made, role, _with_width(role, settings))  # nobody has it yet
        if made.dataset is not None:
            sources.check(made.dataset, made.split, made.columns)
        return made


@dataclass(frozen=True, kw_only=True)
class Launch(PartialLaunch):
    """One method on one benchmark with two models: what is run and where."""

    method: Annotated[str, _METHOD] = field()
    dataset: Annotated[str, _DATASET] = field()


_SETTINGS = (*settings_of(Launch), *ROLE_SETTINGS, "sbatch", "parameters")
_OF_COMMANDS = (
    "config", "dry_run", "list", "listing", "help", "help_all", "version", "on_node", "wait", "json",
    "as_json", "tracker",
)  # fmt: skip
RESERVED: Final = frozenset({*_SETTINGS, *(f"no_{name}" for name in _SETTINGS), *SBATCH_NAMES, *_OF_COMMANDS})
"""Names that no hyper-parameter may have, because the launcher has a flag of this name."""


def method_named(reference: str) -> str:
    """Return the name of a method. Raises ValueError, also where a hyper-parameter is called like another flag."""
    from harness.methods import defaults
    from harness.methods.references import resolve

    name = resolve(reference)
    if clashing := sorted(RESERVED & defaults(name).keys()):
        raise ValueError(f"--method {reference}: {flag(clashing[0])} is a flag of the launcher: rename this parameter")
    return name


def own_parameters(values: dict[str, Value], method: str | None) -> dict[str, Value]:
    """Take the hyper-parameters of a method out of flags, whose names have underscores, and return them by name.

    `parameters` is a table of them. `method`: None, for those of every built-in method. Raises ValueError where one is
    set twice.
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
    """Raise ValueError where a launch names no method or no dataset."""
    from harness.methods import METHODS
    from harness.problems.benchmarks import DATASETS

    valid = {"--method": METHODS, "--dataset": (*DATASETS, "a file of problems (see --list datasets)")}
    missing = [name for name in valid if values.get(name.removeprefix("--")) is None]
    if missing:
        raise ValueError("; ".join(f"{name} is missing; choose from {', '.join(valid[name])}" for name in missing))


def _with_width(role: Role, settings: ModelSettings) -> ModelSettings:
    """Return the settings with the width of an engine that has GPUs of its own: it is split over all of them.

    Raises ValueError where another width is asked for.
    """
    if settings.gpus is None:
        return settings
    number, asked = len(settings.gpus), settings.tensor_parallel
    if asked not in (None, number):
        given = f"{role_flag(role, 'gpus')} {placement.written(settings.gpus)}"
        other = f"{role_flag(role, 'tensor_parallel')} is {asked}"
        raise ValueError(f"{given} names {counted(number, 'GPU')}, but {other}: leave one of them out")
    return replace(settings, tensor_parallel=number)


__all__ = ["RESERVED", "ROLES", "SBATCH", "Cluster", "Launch", "PartialLaunch"]
