"""What `--dataset` names: a known benchmark, a dataset of one's own, or a run.

The problems of a run are in its folder: `--dataset RUN/spec.json` goes on with one whose file is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.cli.messages import did_you_mean
from harness.problems import benchmarks, own_problems
from harness.problems.benchmarks import BadDataset
from harness.problems.problem import Dataset as Dataset
from harness.problems.problem import DatasetOrigin, Problem, dataset_hash

SPEC, PROBLEMS = "spec.json", "problems.parquet"
_PROBLEMS = TypeAdapter(list[Problem])


class _Spec(BaseModel):
    """What of a run's specification says which problems it has."""

    model_config = ConfigDict(frozen=True, strict=True)

    dataset: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    dataset_hash: str
    dataset_size: Annotated[int, Field(ge=1)]
    dataset_origin: DatasetOrigin | None = None


def check(dataset: str, split: str | None = None, columns: Sequence[str] = ()) -> None:
    """Raise ValueError, with one line that says what is valid, where these flags cannot name a dataset."""
    if is_run(dataset):
        own_problems.check_exists(Path(dataset))
        _refuse(dataset, split, columns)
    elif own_problems.is_own(dataset):
        own_problems.describe(dataset, split, columns)
    elif dataset not in benchmarks.DATASETS:
        hint = did_you_mean(dataset, benchmarks.DATASETS)
        valid = f"{', '.join(benchmarks.DATASETS)}, {own_problems.VALID}"
        raise ValueError(f"--dataset {dataset}: unknown; valid: {valid}{hint}")
    else:
        _refuse(dataset, split, columns)


def _refuse(dataset: str, split: str | None, columns: Sequence[str]) -> None:
    if given := [flag for flag, value in (("--split", split), ("--columns", columns)) if value]:
        raise ValueError(f"{' and '.join(given)}: {dataset} has its own; they are for {own_problems.VALID}")


def is_run(dataset: str) -> bool:
    """Return whether the text of `--dataset` names the specification of a run."""
    return Path(dataset).name == SPEC


def load(
    dataset: str, data_dir: Path | None = None, seed: int = 0, split: str | None = None, columns: Sequence[str] = ()
) -> Dataset:
    """Return the problems that these flags name; `seed` decides the order of options that are shuffled.

    Raises ValueError for flags that name no dataset, DatasetNotFound and BadDataset, each with one line.
    """
    if is_run(dataset):
        return _load_run(Path(dataset))
    if own_problems.is_own(dataset):
        return own_problems.load(own_problems.describe(dataset, split, columns), seed)
    known = benchmarks.load_recorded(dataset, data_dir, seed)
    return Dataset(dataset, known.problems, known.source, len(known.problems), is_training=_trains(dataset))


def _load_run(path: Path) -> Dataset:
    """Return the problems in the folder of a `spec.json`. Raises BadDataset with one line."""
    try:
        spec = _Spec.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise BadDataset(f"{path}: not the specification of a run") from error
    rows = own_problems.read_rows(path.parent / PROBLEMS)
    try:
        problems = _PROBLEMS.validate_python([row for _, row in rows])
    except ValidationError as error:
        raise BadDataset(f"{path.parent / PROBLEMS}: not the problems of a run") from error
    if dataset_hash(problems) != spec.dataset_hash:
        raise BadDataset(f"{path.parent / PROBLEMS}: not the problems that the run was made with")
    source, is_training = f"run {path.resolve().parent}", _trains(spec.dataset)
    return Dataset(spec.dataset, problems, source, spec.dataset_size, spec.dataset_origin, is_training=is_training)


def _trains(name: str) -> bool:
    return name in benchmarks.DATASETS and benchmarks.DATASETS[name].training
