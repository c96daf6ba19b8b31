"""What is run: the method, the problems, and how often each is sampled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, field_validator, model_validator

from harness.cli.presets import presets
from harness.launch_flags import Flag, as_words, existing_path
from harness.problems import own_problems, sources

METHOD = Flag(
    "run",
    "Method: the algorithm over the draft and the target, built in or installed (--list methods), or a class of one's "
    "own as FILE.py:CLASS or PACKAGE.MODULE:CLASS.",
    metavar="NAME",
)
DATASET = Flag("run", f"Benchmark (see --list datasets), or {own_problems.VALID}.", metavar="NAME")


def _as_columns(value: object) -> object:
    """Return a mapping, as a file of flags may have it, as the words that the flag takes."""
    if isinstance(value, Mapping):
        return tuple(f"{name}={'+'.join(c) if isinstance(c, list) else c}" for name, c in value.items())
    return as_words(value)


class RunFlags(BaseModel):
    """What is run: the method, the problems, and how often each is sampled."""

    method: Annotated[str | None, METHOD] = None
    dataset: Annotated[str | None, DATASET] = None
    split: Annotated[str | None, Flag("run", "Split of a dataset of the hub (hf:).", default="test")] = None
    columns: Annotated[
        tuple[str, ...],
        Flag(
            "run",
            "Own dataset: columns of the problem's fields, e.g. problem=question,answer=final; may be repeated.",
            metavar="FIELD=COLUMN",
        ),
        BeforeValidator(_as_columns),
    ] = ()
    preset: Annotated[str | None, Flag("run", "Settings of a paper: models, sampling and hyper-parameters.")] = None
    samples: Annotated[int, Flag("run", "Samples per problem."), Field(ge=1)] = 16
    latency_sample: Annotated[
        int | None,
        Flag(
            "run",
            "Time this many samples again, one at a time, after all have run in full batches. The latency of one "
            "request at a time is estimated from them, without --concurrency 1.",
            metavar="M",
        ),
        Field(ge=1),
    ] = None
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

    @field_validator("preset")
    @classmethod
    def _preset_exists(cls, preset: str | None) -> str | None:
        if preset is not None and preset not in presets():
            raise ValueError(f"unknown; valid: {', '.join(presets())}")
        return preset

    @model_validator(mode="after")
    def _dataset_is_known_or_own(self) -> Self:
        if self.dataset is not None:
            sources.check(self.dataset, self.split, self.columns)
        elif self.split or self.columns:
            raise ValueError(f"{'--split' if self.split else '--columns'}: only with --dataset")
        return self
