"""What is run: the method, the problems, and how often each is sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field, field_validator

from harness.cli.presets import presets
from harness.launch_flags import Flag, existing_path
from harness.problems.benchmarks import DATASETS

METHOD = Flag(
    "run",
    "Method: the algorithm over the draft and the target, built in or installed (--list methods), or a class of one's "
    "own as FILE.py:CLASS or PACKAGE.MODULE:CLASS.",
    metavar="NAME",
)
DATASET = Flag("run", "Benchmark (see --list datasets).", metavar="NAME")


class RunFlags(BaseModel):
    """What is run: the method, the problems, and how often each is sampled."""

    method: Annotated[str | None, METHOD] = None
    dataset: Annotated[str | None, DATASET] = None
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
