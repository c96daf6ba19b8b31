"""Everything that a launch may be told, as one frozen and validated object.

A `Launch` is built once, from the flags of a command line, a configuration file, a preset, a row of a suite, or Python,
and is passed on as it is. Every flag of `harness.launch` is declared here with its type, default, range and help;
`harness.cli.options` turns the declarations into click options. Light: no torch, vllm, transformers or datasets.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from harness.cli.presets import presets
from harness.launch_flags import (
    SBATCH,
    BadLaunch,
    Cluster,
    DataType,
    DraftSampling,
    EngineChoice,
    Flag,
    Proposer,
    as_list_text,
    as_words,
    card_numbers,
    error_in_one_line,
    existing_path,
    from_toml,
    with_widths_of_named_gpus,
)
from harness.methods.ranges import flag
from harness.methods.values import Parameter, method_parameters, parameter_names, switch_names
from harness.problems.benchmarks import DATASETS

__all__ = ["SBATCH", "BadLaunch", "Cluster", "Flag", "Launch", "PartialLaunch"]


_METHOD = Flag("run", "Method: the algorithm over the draft and the target.")
_CHOSEN = "chosen on the node (see python -m harness.sizing)"
_DATASET = Flag("run", "Benchmark (see --list datasets).", metavar="NAME")


class PartialLaunch(BaseModel):
    """A launch of which the method and the dataset may be missing, as `harness.doctor` takes it."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    method: Annotated[str | None, _METHOD] = None
    dataset: Annotated[str | None, _DATASET] = None
    preset: Annotated[str | None, Flag("run", "Settings of a paper: models, sampling and hyper-parameters.")] = None
    samples: Annotated[int, Flag("run", "Samples per problem."), Field(ge=1)] = 16
    limit: Annotated[
        int | None, Flag("run", "Run only the first N problems; the result is marked as limited."), Field(ge=1)
    ] = None
    problems: Annotated[str | None, Flag("run", "Run only these problems: numbers, ranges or ids, e.g. 3,7,10-15.")] = (
        None
    )
    seed: Annotated[int, Flag("run", "Seed of every random draw.")] = 0
    tag: Annotated[
        str | None, Flag("run", "A label that makes this a run of its own, with new samples of the same problems.")
    ] = Field(default=None, min_length=1)
    accept_code_change: Annotated[
        bool,
        Flag("run", "Go on with a run that other code began; its results then say that two codes made them."),
    ] = False
    data_dir: Annotated[
        Path | None,
        Flag("run", "Folder of <dataset>.jsonl files; also HARNESS_DATA_DIR."),
        AfterValidator(lambda path: path and existing_path(path)),
    ] = None

    prompts: Annotated[
        Path | None,
        Flag("run", "TOML file of texts that replace the built-in prompts (see --list prompts), or a run's spec.json."),
    ] = None

    draft: Annotated[
        str | None, Flag("models", "Draft model: a known name (--list models), a Hugging Face id, or a folder.")
    ] = None
    target: Annotated[
        str | None, Flag("models", "Target model: a known name (--list models), a Hugging Face id, or a folder.")
    ] = None
    selection_adapter: Annotated[
        str | None, Flag("models", "scot: folder of the LoRA weights that select a draft (see harness.train).")
    ] = None

    temperature: Annotated[float, Flag("sampling", "Sampling temperature; 0 is greedy decoding."), Field(ge=0)] = 0.6
    top_p: Annotated[float, Flag("sampling", "Nucleus sampling threshold."), Field(gt=0, le=1)] = 0.95
    token_budget: Annotated[int, Flag("sampling", "Emitted tokens per sample, including the answer."), Field(ge=1)] = (
        8192
    )

    engine: Annotated[
        EngineChoice,
        Flag(
            "engine",
            "Inference engine. auto: vLLM if it is installed, otherwise transformers; with the profile's python, vLLM.",
        ),
    ] = "auto"
    concurrency: Annotated[
        int, Flag("engine", "Samples in flight per worker; use 1 to measure latency."), Field(ge=1)
    ] = 64
    spec_decode: Annotated[
        Proposer | None,
        Flag(
            "engine",
            "Token-level speculative decoding in the target's engine: who proposes tokens. draft: a model; ngram, "
            "suffix: earlier text; eagle3: a head (--spec-model); mtp: the target's own prediction layers.",
            default="draft for specdecode, otherwise none",
        ),
    ] = None
    spec_model: Annotated[
        str | None,
        Flag(
            "engine",
            "The weights that propose tokens: for eagle3 a head trained for the target (--list speculators), for draft "
            "another model than the run's, for mtp layers that are not in the target's own files.",
        ),
    ] = None
    spec_sampling: Annotated[
        DraftSampling | None,
        Flag(
            "engine",
            "How draft, eagle3 and mtp draw the tokens they propose. Greedy drafts are a weaker baseline at "
            "temperatures above 0.",
            default="greedy, as in vLLM",
        ),
    ] = None
    spec_tokens: Annotated[
        int | None,
        Flag(
            "engine",
            "Tokens proposed per step of token-level speculation; for suffix at most so many.",
            default="5; 24 for suffix, 1 for mtp",
        ),
        Field(ge=1),
    ] = None
    take_turns: Annotated[
        bool, Flag("engine", "Run only one of the two engines at a time; by default both work at once.")
    ] = False
    logprobs: Annotated[
        bool | None,
        Flag(
            "engine",
            "Ask for the log-probability of every generated token, recorded as each candidate's mean. Costs the "
            "worker's event loop about 50 µs a token.",
            default="off, because no method decides by it",
        ),
    ] = None
    dtype: Annotated[DataType, Flag("engine", "Data type of the weights; auto: as they are stored.")] = "auto"
    max_context: Annotated[
        int | None,
        Flag("engine", "Longest prompt plus output, in tokens.", default="what prompt and token budget need"),
        Field(ge=16),
    ] = None
    draft_tensor_parallel: Annotated[
        int | None, Flag("engine", "GPUs that the draft is split over.", default=_CHOSEN), Field(ge=1)
    ] = None
    target_tensor_parallel: Annotated[
        int | None, Flag("engine", "GPUs that the target is split over.", default=_CHOSEN), Field(ge=1)
    ] = None
    draft_gpus: Annotated[
        str | None,
        Flag(
            "engine",
            "The draft's GPUs, by their numbers among the worker's: 0 or 0,1 or 0-3.",
            metavar="NUMBERS",
            default="all, so that both engines share them",
        ),
        BeforeValidator(as_list_text),
        AfterValidator(card_numbers),
    ] = None
    target_gpus: Annotated[
        str | None,
        Flag("engine", "The target's GPUs, such as 1,2,3,4.", metavar="NUMBERS", default="all"),
        BeforeValidator(as_list_text),
        AfterValidator(card_numbers),
    ] = None
    draft_memory: Annotated[
        float | None,
        Flag("engine", "Share of the memory that the draft's engine may use.", default=_CHOSEN),
        Field(gt=0, le=1),
    ] = None
    target_memory: Annotated[
        float | None,
        Flag("engine", "Share of the memory that the target's engine may use.", default=_CHOSEN),
        Field(gt=0, le=1),
    ] = None

    cluster: Annotated[
        Cluster,
        Flag(
            "cluster",
            "Where to run. auto: Slurm where there is a cluster, otherwise here; debug: this process.",
        ),
    ] = "auto"
    profile: Annotated[
        str | None, Flag("cluster", "Cluster profile: a file in slurm/clusters by name, or the path of a file.")
    ] = None
    slurm: Annotated[
        tuple[str, ...],
        Flag("cluster", "Any other option for sbatch; may be repeated.", metavar="KEY=VALUE"),
        BeforeValidator(as_words),
    ] = ()
    shards: Annotated[int, Flag("cluster", "Number of shards that the samples are split into."), Field(ge=1)] = 1
    shards_per_task: Annotated[
        int, Flag("cluster", "Shards that one worker of a Slurm task runs with one start of the engines."), Field(ge=1)
    ] = 1
    workers_per_task: Annotated[
        int,
        Flag(
            "cluster",
            "Workers that one Slurm task starts side by side, each with an equal part of its GPUs and cores: "
            "for sites that give out whole nodes.",
        ),
        Field(ge=1, le=64),
    ] = 1
    sbatch: Mapping[str, str] = Field(default_factory=dict)
    """Options of sbatch that are flags of their own, by their name in `SBATCH`."""

    output: Annotated[Path, Flag("output", "Folder for run folders and the warehouse.")] = Path("runs")

    parameters: Mapping[str, Parameter] = Field(default_factory=dict)
    """All hyper-parameters of the method by name; without a method, those that were set."""

    @field_validator("preset")
    @classmethod
    def _preset_exists(cls, preset: str | None) -> str | None:
        if preset is not None and preset not in presets():
            raise ValueError(f"unknown; valid: {', '.join(presets())}")
        return preset

    @field_validator("dataset")
    @classmethod
    def _dataset_exists(cls, dataset: str | None) -> str | None:
        if dataset is not None and dataset not in DATASETS:
            raise ValueError(f"unknown; valid: {', '.join(DATASETS)}")
        return dataset

    @model_validator(mode="before")
    @classmethod
    def _parameters_of_the_method(cls, values: Any) -> Any:
        if isinstance(values, Mapping) and values.get("method") is not None:
            return {**values, "parameters": method_parameters(str(values["method"]), values.get("parameters") or {})}
        return values

    @model_validator(mode="before")
    @classmethod
    def _widths_of_named_gpus(cls, values: Any) -> Any:
        return with_widths_of_named_gpus(values) if isinstance(values, Mapping) else values

    @classmethod
    def from_flags(cls, flags: Mapping[str, Any]) -> Self:
        """Build from flat values by flag name, with dashes or underscores and without the dashes in front.

        Raises BadLaunch.
        """
        values = {name.replace("-", "_"): from_toml(value) for name, value in flags.items() if value is not None}
        for name in [name for name in values if name.removeprefix("no_") in switch_names() and name.startswith("no_")]:
            values[name.removeprefix("no_")] = not values.pop(name)
        for name, value in values.items():
            if isinstance(value, bool) and name in cls.model_fields and _takes_no_switch(cls, name):
                raise BadLaunch(f"{flag(name)}: expected a value, not true or false")
        sbatch = {word: str(values.pop(word.replace("-", "_"))) for word in SBATCH if word.replace("-", "_") in values}
        parameters = {name: values.pop(name) for name in parameter_names() if name in values}
        try:
            return cls.model_validate({**values, "sbatch": sbatch, "parameters": parameters})
        except ValidationError as error:
            raise BadLaunch(error_in_one_line(error)) from error

    def changed(self, **values: Any) -> Self:
        """Return a validated copy with other values for these fields. Raises pydantic.ValidationError."""
        return type(self).model_validate({**dict(self), **values})


class Launch(PartialLaunch):
    """One method on one benchmark with two models: what is run and where."""

    method: Annotated[str, _METHOD]
    dataset: Annotated[str, _DATASET]


def _takes_no_switch(launch: type[BaseModel], name: str) -> bool:
    return launch.model_fields[name].annotation not in (bool, bool | None)
