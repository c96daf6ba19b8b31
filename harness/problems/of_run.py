"""The problems of a run, from its folder: `--dataset RUN/spec.json` goes on with a run whose file is gone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from harness.problems import own_rows
from harness.problems.benchmarks import BadDataset
from harness.problems.problem import DatasetOrigin, Problem, dataset_hash

SPEC, PROBLEMS = "spec.json", "problems.parquet"
MAX_SPEC_BYTES = 1 << 20
_PROBLEMS = TypeAdapter(list[Problem])


class _Spec(BaseModel):
    """What of a run's specification says which problems it has."""

    model_config = ConfigDict(frozen=True, strict=True)

    dataset: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
    dataset_hash: str
    dataset_size: Annotated[int, Field(ge=1)]
    dataset_origin: DatasetOrigin | None = None


@dataclass(frozen=True, slots=True)
class RunProblems:
    """The problems of a run, and the dataset that they are of."""

    dataset: str
    problems: list[Problem]
    dataset_size: int
    """The number of problems of the dataset, those that the run leaves out included."""
    origin: DatasetOrigin | None


def load(path: Path) -> RunProblems:
    """Return the problems in the folder of a `spec.json`. Raises BadDataset with one line."""
    spec = _read_spec(path)
    rows = own_rows.read(path.parent / PROBLEMS)
    try:
        problems = _PROBLEMS.validate_python([row for _, row in rows])
    except ValidationError as error:
        raise BadDataset(f"{path.parent / PROBLEMS}: not the problems of a run") from error
    if dataset_hash(problems) != spec.dataset_hash:
        raise BadDataset(f"{path.parent / PROBLEMS}: not the problems that the run was made with")
    return RunProblems(spec.dataset, problems, spec.dataset_size, spec.dataset_origin)


def _read_spec(path: Path) -> _Spec:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_SPEC_BYTES + 1)
        if len(content) > MAX_SPEC_BYTES:
            raise BadDataset(f"{path}: larger than {MAX_SPEC_BYTES >> 20} MiB")
        return _Spec.model_validate(json.loads(content))
    except OSError as error:
        raise BadDataset(f"{path}: cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise BadDataset(f"{path}: JSON nested too deeply") from error
    except ValueError as error:
        if isinstance(error, BadDataset):
            raise
        raise BadDataset(f"{path}: not the specification of a run") from error
